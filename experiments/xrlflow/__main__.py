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

Resumes where it was interrupted: completed models and seeds are kept, and training continues from
its checkpoints. The agents of the first seed are saved, for `experiments.xrlflow.shapes`. Needs the
extras `rewriting` and `xrlflow`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from experiments.harness import command_line, store
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.models import EVERY
from experiments.xrlflow import games, methods, report
from gopt.systems import xrlflow

MODELS = (
    *("BERT", "ViT", "DALL-E", "T-T", "Inception-v3", "SqueezeNet", "ResNeXt-50"),
    *(f"{name}, matrices alone" for name in ("BERT", "ViT", "DALL-E", "T-T")),
)
# Format of rows. Since 2, ops are measured with weights as cold as the model's, and the program of
# an agent's likeliest rewrites is a finalist.
_VERSION = 2


@dataclass(frozen=True)
class Settings(methods.Settings):
    """Settings of the comparison.

    Attributes:
      models: models to rewrite.
      baselines: searches.
      players: agents, and episodes without learning.
      weights: initial weights of the agent: "shipped", "random", or a file.
      seeds: runs of each player.
      folder: folder of figures, tables, checkpoints and times.
    """

    models: tuple[str, ...] = choice(EVERY, MODELS)
    baselines: tuple[str, ...] = choice(methods.BASELINES)
    players: tuple[str, ...] = choice(methods.PLAYERS)
    weights: str = "shipped"
    seeds: int = at_least(1, 3)
    folder: Path = Path("runs/xrlflow")


def run(name: str, seeds: Sequence[int], settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield the results of all methods on a model, by seed; deterministic searches run once."""
    played, clocks = games.game(name, EVERY[name]()), games.clocks(settings.folder)
    searched = {each: methods.search(each, played, clocks) for each in settings.baselines}
    for seed in seeds:
        params, agent = methods.begin(settings.weights, settings.agent, seed)
        folder = settings.folder / "play" / f"seed_{seed}"
        play = settings.play(params, agent, folder, seed=seed)
        found = {each: methods.player(each, played, clocks, play) for each in settings.players}
        if seed == settings.seed and "X-RLflow" in found:
            saved, trained = settings.folder / "agents" / f"{name}.npz", found["X-RLflow"].params
            xrlflow.save(saved, trained, agent, origin=store.origin(settings))
        found |= searched
        clocks.programs.close()
        came = methods.finished(played, found, clocks, repeats=settings.repeats, seed=seed)
        yield {"model": name, "seed": seed, "found": came}
        jax.clear_caches()  # the programs of all models exceed the memory maps of a process


def main(settings: Settings) -> None:
    """Run all methods on all models, print the tables and save them."""
    played = {name: methods.PLAYERS[name]._asdict() for name in settings.players}
    about = store.described(settings, "models", "seeds", "seed")
    about |= {"version": _VERSION, "played": played}
    rows, kept = list[dict[str, Any]](), store.Store(settings.folder / "rows", about)
    store.save_settings(settings.folder, settings)
    for name in settings.models:
        seeds = range(settings.seed, settings.seed + settings.seeds)
        missing = [seed for seed in seeds if kept.find(f"{name}, seed {seed}") is None]
        for row in run(name, missing, settings) if missing else ():
            kept.keep(f"{name}, seed {row['seed']}", row)
        told = [row for seed in seeds if (row := kept.find(f"{name}, seed {seed}"))]
        report.draw(told, settings.players, settings.folder / "curves" / f"{name}.png")
        rows += told
        store.save_json(settings.folder / "xrlflow.json", rows)
    report.show(rows, settings.baselines, settings.players, settings.repeats, settings.folder)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
