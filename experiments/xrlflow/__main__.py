"""X-RLflow against TASO, Tensat, PET, and random episodes, by whole programs measured through XLA.

    python -m experiments.xrlflow
    python -m experiments.xrlflow --models SqueezeNet --measurements 50

Each model is rewritten by all. Searches cost programs by their ops, measured one by one; the agent,
and episodes that learn nothing, measure whole programs now and then, as many of them each; half of
the episodes go on from the fastest program that is known, but those of "random". Of the three
fastest of each the one that is so again is taken. What comes out is measured in the end, all
programs of a model in turns. Agents start as the one that ships, from random weights, or from a
file of `experiments.xrlflow.pretraining` (`--weights`).

Resumes where it was interrupted. Needs the extras `rewriting` and `xrlflow`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from experiments import common
from experiments.cases import check_names
from experiments.rewrite.models import EVERY
from experiments.xrlflow import games, methods
from gopt.plots.style import COLOURS, legend, new_figure
from gopt.systems import xrlflow

MODELS = (
    *("BERT", "ViT", "DALL-E", "T-T", "Inception-v3", "SqueezeNet", "ResNeXt-50"),
    *(f"{name}, matrices alone" for name in ("BERT", "ViT", "DALL-E", "T-T")),
)


@dataclass(frozen=True)
class Settings:
    """What is compared.

    Attributes:
      models: of `experiments.rewrite.models.EVERY`.
      baselines: of `experiments.xrlflow.methods.BASELINES`.
      players: of `experiments.xrlflow.methods.PLAYERS`.
      reward: of episodes, of `experiments.xrlflow.games.REWARDS`.
      measurements: whole programs that each player measures of each model.
      updates: rounds of episodes, at most.
      repeats: turns in which programs are timed in the end.
      weights: of the agent to begin with: "shipped", "random", or a file.
      seed: of everything random.
      folder: where figures, tables, checkpoints and times are kept.
      agent: its settings, where it begins with random weights; and those of episodes and training.
    """

    models: tuple[str, ...] = MODELS
    baselines: tuple[str, ...] = tuple(methods.BASELINES)
    players: tuple[str, ...] = tuple(methods.PLAYERS)
    reward: str = "end to end"
    measurements: int = 100
    updates: int = 40
    repeats: int = 12
    weights: str = "shipped"
    seed: int = 0
    folder: Path = Path("runs/xrlflow")
    agent: xrlflow.Settings = field(
        default_factory=lambda: xrlflow.Settings(episodes=2, learning_rate=1e-3, unit=1.0)
    )

    def __post_init__(self) -> None:
        check_names("models", self.models, EVERY)
        check_names("baselines", self.baselines, methods.BASELINES)
        check_names("players", self.players, methods.PLAYERS)
        check_names("reward", [self.reward], games.REWARDS)


def run(name: str, settings: Settings) -> dict[str, Any]:
    """Returns what all make of a model."""
    played, clocks = games.game(name, EVERY[name]()), games.clocks(settings.folder)
    found = {each: methods.search(each, played, clocks) for each in settings.baselines}
    params, agent = methods.begin(settings.weights, settings.agent, settings.seed)
    play = methods.Play(
        params,
        agent,
        settings.reward,
        settings.measurements,
        settings.updates,
        settings.repeats,
        settings.seed,
        settings.folder / "play",
    )
    for each in settings.players:
        found[each] = methods.player(each, played, clocks, play)
        if methods.PLAYERS[each][0] == "learning":
            saved = settings.folder / "agents" / f"{name}.npz"
            xrlflow.save_agent(saved, found[each].params, agent, origin=common.origin(settings))
    clocks.programs.close()
    rows = methods.finished(played, found, clocks, repeats=settings.repeats, seed=settings.seed)
    return {"model": name, "found": rows}


def show(rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the tables, and saves them."""
    by = ("as read", *settings.players, *settings.baselines)
    common.show(
        f"Process time as a share of that before (95 % of {settings.repeats} turns, one seed)",
        ("model", *by),
        [(row["model"], *(methods.ratio(row["found"][name]) for name in by)) for row in rows],
        settings.folder / "models.md",
    )
    common.show(
        "Each search",
        (
            "model",
            "search",
            "cost",
            "process",
            "wall",
            "of TASO's",
            "differs",
            "s",
            "rules",
            "rounds",
        ),
        [
            (
                row["model"],
                name,
                f"{one['cost']:.4f}",
                *(f"{one[ratio][0]:.3f}" for ratio in ("ratio", "wall ratio")),
                common.interval(one["of TASO"]) if "of TASO" in one else "",
                f"{one['difference']:.0e}",
                f"{one['s']:.1f}",
                len(one["rules"]),
                len(one["history"]) or "",
            )
            for row in rows
            for name, one in row["found"].items()
        ],
        settings.folder / "searches.md",
    )


def draw(row: dict[str, Any], path: Path) -> None:
    """Draws how fast the fastest program is, by how many were measured, for each player."""
    figure, (axes,) = new_figure([2.4])
    players = [(name, one["measured"]) for name, one in row["found"].items() if one["measured"]]
    for k, (name, measured) in enumerate(players):
        best, width = np.minimum.accumulate(measured), 2.6 - 0.5 * k  # all are seen where they meet
        count = np.arange(1, len(best) + 1)
        axes.step(count, best, where="post", label=name, color=COLOURS[k], linewidth=width)
    axes.set_xlabel(f"programs measured, {row['model']}")
    axes.set_ylabel("time of the fastest, as read = 1")
    legend(axes, columns=2)
    common.save_figure(path, figure)


def main(settings: Settings) -> None:
    """Runs all on all models, prints the tables and saves them."""
    common.save_settings(settings.folder, settings)
    rows = list[dict[str, Any]]()
    for name in settings.models:
        rows.append(run(name, settings))
        common.save_json(settings.folder / "xrlflow.json", rows)
        draw(rows[-1], settings.folder / "curves" / f"{name}.png")
        jax.clear_caches()  # programs of all models at once are more than a process may map
    show(rows, settings)


if __name__ == "__main__":
    given = tyro.cli(Settings, description=__doc__)
    common.start()
    common.keep_memory()
    main(given)
