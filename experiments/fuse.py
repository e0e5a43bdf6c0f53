"""What `gopt.fuse` makes of blocks of models, against XLA's own fusion on this CPU.

    python -m experiments.fuse

Each block is traced, its equations are simplified, its kernels timed and configurations searched,
and whole programs run in turns with XLA's own: of the block, and of the simplified equations. The
median of the ratios in each turn is given with its 95 % interval, as is that of the program that
the first half of the turns says is fastest, in the other half alone. Programs whose kernels are
kept apart are compared with the faster of XLA's two programs of the same equations, too, in the
same way.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.progress import track

import gopt
from experiments import common
from experiments.cases import check_names
from experiments.fused_time import BLOCKS, TOLERANCE
from gopt.fusion.comparison import FusedProgram
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import median_ratio


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      blocks: of `experiments.fused_time.BLOCKS`.
      evaluations: how many configurations the search may try.
      repeats: turns in which whole programs are timed.
      cores: that the process may use.
      seed: of the search.
      folder: where figures, tables and times of kernels are saved.
    """

    blocks: tuple[str, ...] = ("vit step", "mlp_mixer step", "bert step", "t5 step", "mamba step")
    evaluations: int = 200
    repeats: int = 60
    cores: int = 1
    seed: int = 0
    folder: Path = Path("runs/fuse")

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise ValueError(f"cores is {self.cores}: expected 1 at least")


def measure(name: str, settings: Settings) -> tuple[list[dict[str, Any]], gopt.Fusing]:
    """Returns what each program of a block takes, and all that was found.

    Raises:
      RuntimeError: a program has other values than the block.
    """
    case = BLOCKS[name]()
    args = random_arguments(case.args)
    fusing = gopt.fuse(
        case.fn,
        *args,
        evaluations=settings.evaluations,
        repeats=settings.repeats,
        seed=settings.seed,
        times=settings.folder / f"{name.replace(' ', '_')}.sqlite",
    )
    values = fusing.before.function(*args)
    rows = []
    for candidate in fusing.candidates:
        difference = largest_difference(candidate.function(*args), values)
        if difference > TOLERANCE:
            raise RuntimeError(f"{name}, {candidate.name}: values differ by {difference:.0e}")
        rows.append(
            {
                "block": name,
                "program": candidate.name,
                "kernels": candidate.kernels,
                "predicted": candidate.predicted,
                "seconds": candidate.times.process,
                "wall": candidate.times.wall,
                "ratio": fusing.ratio(candidate),
                "wall ratio": fusing.ratio(candidate, clock="wall"),
                "same ratio": None
                if candidate.kernels is None
                else _of_same_equations(fusing, candidate),
                "difference": difference,
                "chosen": candidate is fusing.after,
            }
        )
    return rows, fusing


def _of_same_equations(fusing: gopt.Fusing, candidate: FusedProgram) -> tuple[float, float, float]:
    """Returns the time of a candidate as a share of that of XLA's programs of the same equations.

    The first half of the turns says which of these is the faster, the other half is compared.
    """
    simplified = [c for c in fusing.candidates if c.name.startswith("XLA, simplified")]
    same = simplified or [c for c in fusing.candidates if c.kernels is None]
    half = max(len(candidate.times.process) // 2, 1)
    fastest = min(same, key=lambda c: np.median(c.times.process[:half]))
    return median_ratio(candidate.times.process[-half:], fastest.times.process[-half:])


def main(settings: Settings) -> None:
    """Measures all blocks, prints the table and saves it."""
    check_names("blocks", settings.blocks, BLOCKS)
    found: list[dict[str, Any]] = []
    chosen = []
    for name in track(settings.blocks, "blocks"):
        rows, fusing = measure(name, settings)
        found += rows
        half = slice(-(settings.repeats // 2), None)
        chosen.append((name, fusing.after.name, common.interval(fusing.ratio(fusing.after, half))))
        common.save_json(settings.folder / "fuse.json", found)
    common.save_settings(settings.folder, settings)
    common.show(
        f"Process time of programs, {settings.repeats} turns",
        (
            "block",
            "program",
            "kernels",
            "their sum, ms",
            "least, ms",
            "of XLA (95 %)",
            "wall, of XLA",
            "of XLA on the same equations",
        ),
        [
            (
                row["block"],
                row["program"],
                "" if row["kernels"] is None else row["kernels"],
                "" if row["predicted"] is None else f"{1e3 * row['predicted']:.3f}",
                f"{1e3 * row['seconds'].min():.3f}",
                common.interval(row["ratio"]),
                common.interval(row["wall ratio"]),
                "" if row["same ratio"] is None else common.interval(row["same ratio"]),
            )
            for row in found
        ],
        settings.folder / "programs.md",
    )
    common.show(
        "What the first half of the turns chose, in the other half",
        ("block", "program", "of XLA (95 %)"),
        chosen,
        settings.folder / "chosen.md",
    )


if __name__ == "__main__":
    given = tyro.cli(Settings, description=__doc__)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    common.start(given.cores)
    common.keep_memory()
    main(given)
