"""What cost models say of models, and what these take, measured as whole programs through XLA.

Ops are measured with their weights as cold as a model's are, and, as in TASO, in the cache.

    python -m experiments.xrlflow.discrepancy

What was measured in the folder before is not measured again. Needs the extras `rewriting` and
`xrlflow`.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import tyro

from experiments import common
from experiments.cases import check_names
from experiments.rewrite.models import EVERY
from experiments.xrlflow import games
from experiments.xrlflow.__main__ import MODELS
from gopt.rewriting import measured
from gopt.rewriting.cost.pricing import TermCosts

CACHED = "summed ops, cached"


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      models: of `experiments.rewrite.models.EVERY`.
      folder: where the table and times are kept.
    """

    models: tuple[str, ...] = MODELS
    folder: Path = Path("runs/xrlflow")

    def __post_init__(self) -> None:
        check_names("models", self.models, EVERY)


def told(name: str, clocks: games.Clocks) -> dict[str, float]:
    """Returns what a model takes, as it is read, in s, and its weights in B.

    That is by each reward, and by measured ops whose weights are in the cache.
    """
    played = games.game(name, EVERY[name]())
    seconds = {by: clocks.seconds(played, by)(played.roots) for by in games.REWARDS}
    cached = TermCosts(played.terms, measured(clocks.ops, between=0))
    seconds[CACHED] = cached.program(played.roots)
    jax.clear_caches()  # programs of all models at once are more than a process may map
    weights = jax.tree.leaves(played.case.args[0])
    return {**seconds, "weights": sum(x.size * x.dtype.itemsize for x in weights)}


def main(settings: Settings) -> None:
    """Measures all models, prints the table and saves it."""
    clocks = games.clocks(settings.folder)
    rows = {name: told(name, clocks) for name in settings.models}
    clocks.programs.close()
    common.save_json(settings.folder / "discrepancy.json", rows)
    common.show(
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
    given = tyro.cli(Settings, description=__doc__)
    common.start()
    common.keep_memory()
    main(given)
