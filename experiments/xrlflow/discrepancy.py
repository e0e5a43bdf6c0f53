"""Compare costs of models by cost models with whole programs measured through XLA.

Ops are measured with their weights as cold as in a model, and, as in TASO, in a warm cache.

    python -m experiments.xrlflow.discrepancy

Measurements that are already in the folder are reused. Needs the extras `rewriting` and `xrlflow`.
"""

from dataclasses import dataclass
from pathlib import Path

import jax

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import choice
from experiments.rewrite.models import EVERY
from experiments.xrlflow import games
from experiments.xrlflow.__main__ import MODELS
from gopt.rewriting import measured
from gopt.rewriting.cost.pricing import TermCosts

CACHED = "summed ops, cached"


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: models from `experiments.rewrite.models.EVERY`.
      folder: folder of the table and times.
    """

    models: tuple[str, ...] = choice(EVERY, MODELS)
    folder: Path = Path("runs/xrlflow")


def told(name: str, clocks: games.Clocks) -> dict[str, float]:
    """Return the times of a model as read, s, and the bytes of its weights.

    Times are by each reward, and by measured ops with weights in a warm cache.
    """
    played = games.game(name, EVERY[name]())
    seconds = {by: clocks.seconds(played, by)(played.roots) for by in games.REWARDS}
    cached = TermCosts(played.terms, measured(clocks.ops, between=0))
    seconds[CACHED] = cached.program(played.roots)
    jax.clear_caches()  # the programs of all models exceed the memory maps of a process
    weights = jax.tree.leaves(played.case.args[0])
    return {**seconds, "weights": sum(x.size * x.dtype.itemsize for x in weights)}


def main(settings: Settings) -> None:
    """Measure all models, print the table and save it."""
    clocks = games.clocks(settings.folder)
    rows = {name: told(name, clocks) for name in settings.models}
    clocks.programs.close()
    store.save_json(settings.folder / "discrepancy.json", rows)
    tables.show(
        "What models take, and what cost models say: ms, and MiB of weights",
        ("model", *games.REWARDS, CACHED, "weights"),
        [
            (
                *(name, *(f"{1e3 * row[by]:.3g}" for by in (*games.REWARDS, CACHED))),
                f"{row['weights'] / 2**20:.0f}",
            )
            for name, row in rows.items()
        ],
        settings.folder / "discrepancy.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
