"""Compare X-RLflow with TASO, Tensat, PET and random episodes, on whole programs through XLA.

    python -m experiments.xrlflow
    python -m experiments.xrlflow --models SqueezeNet --measurements 50 --folder runs/squeezenet

Every method rewrites each model. Searches cost programs by their ops, measured one by one. The
agent, and episodes that learn nothing, measure whole programs now and then, with equal budgets.
Half of the episodes continue from the fastest known program, except for "random".

The finalists are the three fastest programs of each player, the program of an agent's likeliest
rewrites, and the model as read. The finalist that is fastest when timed again is taken. In the end,
all programs of a model are timed together, in interleaved rounds. Agents start from the shipped
weights, from random weights, or from a file of `experiments.xrlflow.pretraining` (`--weights`).

An interrupted run resumes: rows of models and seeds are kept, and times of ops and programs. The
agents of the first seed are saved, for `experiments.xrlflow.shapes`. Needs the extras `rewriting`
and `xrlflow`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.models import EVERY
from experiments.xrlflow import games, methods
from gopt.systems import xrlflow

MODELS = (
    *("BERT", "ViT", "DALL-E", "T-T", "Inception-v3", "SqueezeNet", "ResNeXt-50"),
    *(f"{name}, matrices alone" for name in ("BERT", "ViT", "DALL-E", "T-T")),
)


@dataclass(frozen=True)
class Settings(methods.Settings):
    """Settings of the comparison.

    Attributes:
      models: models to rewrite.
      baselines: searches.
      players: agents, and episodes without learning.
      weights: initial weights of the agent: "shipped", "random", or a file.
      seeds: runs of each player.
      folder: folder of figures, tables, agents and times.
    """

    models: tuple[str, ...] = choice(EVERY, MODELS)
    baselines: tuple[str, ...] = choice(methods.BASELINES)
    players: tuple[str, ...] = choice(methods.PLAYERS)
    weights: str = "shipped"
    seeds: int = at_least(1, 3)
    folder: Path = Path("runs/xrlflow")


def run(name: str, seed: int, settings: Settings) -> dict[str, Any]:
    """Return the results of all methods on a model."""
    played, clocks = games.game(name, EVERY[name]()), games.clocks(settings.folder)
    searched = {each: methods.search(each, played, clocks) for each in settings.baselines}
    params, own = methods.begin(settings.weights, dataclasses.replace(settings, seed=seed))
    found = {each: methods.player(each, played, clocks, params, own) for each in settings.players}
    if seed == settings.seed and "X-RLflow" in found:
        saved, trained = settings.folder / "agents" / f"{name}.npz", found["X-RLflow"].params
        xrlflow.save(saved, trained, own.agent, origin=store.origin(settings))
    rows = methods.finished(played, found | searched, clocks, own)
    return {"model": name, "seed": seed, "found": rows}


def over_seeds(rows: Sequence[dict[str, Any]], name: str, key: str) -> str:
    """Return the median of a ratio over seeds, and its range; with one seed, its interval.

    Args:
      rows: rows of one model.
      name: name of a program.
      key: "ratio", or "of TASO".
    """
    found = [row["found"][name] for row in rows]
    compared = [*found, *(row["found"]["TASO"] for row in rows if key == "of TASO")]
    if not all(one["equal"] for one in compared):
        return "wrong values"
    ratios = [one[key] for one in found]
    if len(ratios) == 1:
        return tables.interval(ratios[0])
    middle = [ratio[0] for ratio in ratios]
    return tables.interval((float(np.median(middle)), min(middle), max(middle)))


def show(rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print the tables, and save them.

    Programs of searches are equal for all seeds. Players share the times of measured programs, so
    that later players need less time.
    """

    def learning(row: dict[str, Any]) -> str:
        return f"{sum(past.get('learning s', 0.0) for past in row['history']):.1f}"

    models: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        models.setdefault(row["model"], []).append(row)
    repeats, seeds = settings.repeats, settings.seeds
    spread = f"95 % of {repeats} rounds" if seeds < 2 else f"median, least to most of {seeds} seeds"
    names = ("as read", *settings.players, *settings.baselines)
    of_taso = [name for name in names if name != "TASO"] if "TASO" in names else []
    for whose, key, columns, file in (
        ("that before", "ratio", names, "models.md"),
        ("that of TASO's program", "of TASO", of_taso, "taso.md"),
    ):
        if columns:
            cells = [
                (model, *(over_seeds(own, name, key) for name in columns))
                for model, own in models.items()
            ]
            title = f"Process time as a share of {whose} ({spread})"
            tables.show(title, ("model", *columns), cells, settings.folder / file)
    tables.show_rows(
        "What each has found: the sum of its ops as a share of that as read, and times of before",
        [
            {"model": row["model"], "seed": row["seed"], "by": name, **one}
            for row in rows
            for name, one in row["found"].items()
        ],
        (
            *((key, key) for key in ("model", "seed", "by")),
            ("sum of ops", "{cost:.4f}"),
            ("process", "{ratio[0]:.3f}"),
            ("wall", "{wall ratio[0]:.3f}"),
            ("differs", "{difference:.0e}"),
            ("s", "{s:.1f}"),
            ("of which learning", learning),
            ("rewrites", lambda row: len(row["rules"])),
            ("rounds", lambda row: len(row["history"]) or ""),
            ("measured", lambda row: len(row["measured"]) or ""),
        ),
        settings.folder / "searches.md",
    )


def main(settings: Settings) -> None:
    """Run all methods on all models, print the tables and save them."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    makes = {
        f"{name}, seed {seed}": partial(run, name, seed, settings)
        for name, seed in product(settings.models, seeds)
    }
    found = store.collect(settings, "xrlflow.json", makes, "models", "seeds", "seed")
    show(found, settings)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
