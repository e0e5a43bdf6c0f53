"""Compare blocks of models in the kernels of `gopt.fuse` with XLA's programs on this CPU.

    python -m experiments.fuse

Each block is traced and simplified, its kernels are timed and configurations searched. Whole
programs run interleaved with XLA's programs of the block and of the simplified equations. Tables
give median ratios of rounds with 95 % intervals. The program that is fastest in even rounds is
judged in odd rounds. Programs with separate kernels are also compared with the faster of XLA's two
programs of the same equations.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gopt
from experiments.fused_time import BLOCKS, TOLERANCE
from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.tables import given, milliseconds, ratio
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import median_ratio

MEASURED = ("vit step", "mlp_mixer step", "bert step", "t5 step", "mamba step")


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      blocks: of `experiments.fused_time.BLOCKS`.
      evaluations: how many configurations the search may try.
      repeats: rounds in which whole programs are timed.
      seed: of the search.
      folder: where figures, tables and times of kernels are saved.
    """

    blocks: tuple[str, ...] = choice(BLOCKS, MEASURED)
    evaluations: int = 200
    repeats: int = at_least(1, 60)
    seed: int = 0
    folder: Path = Path("runs/fuse")


def measure(name: str, settings: Settings) -> list[dict[str, Any]]:
    """Return what each program of a block takes.

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
    runs = {c.name: c.executable.function for c in fusing.candidates if c.executable}
    times = {c.name: c.times for c in fusing.candidates if c.times}
    values = runs["XLA"](*args)
    rows = []
    for candidate in fusing.candidates:
        if candidate.name.endswith(", nested"):
            continue  # timed in rounds of its own
        difference = largest_difference(runs[candidate.name](*args), values)
        if difference > TOLERANCE:
            raise RuntimeError(f"{name}, {candidate.name}: values differ by {difference:.0e}")
        rows.append(
            {
                "block": name,
                "program": candidate.name,
                "kernels": candidate.decision.kernels,
                "predicted": candidate.predicted,
                "seconds": times[candidate.name].process,
                "wall": times[candidate.name].wall,
                "ratio": candidate.ratio(),
                "wall ratio": candidate.ratio("wall"),
                "same ratio": None
                if candidate.decision.kernels is None
                else _of_same_equations(fusing, candidate),
                "difference": difference,
                "chosen": candidate is fusing.after,
                "odd rounds": median_ratio(
                    times[candidate.name].process[1::2], times["XLA"].process[1::2]
                ),
            }
        )
    return rows


def _of_same_equations(
    fusing: gopt.Result, candidate: gopt.Candidate
) -> tuple[float, float, float]:
    """Return the ratio of a candidate's time to XLA's on the same equations, with its interval.

    Even rounds choose the faster of XLA's programs; odd rounds are compared.
    """
    process = {c.name: c.times.process for c in fusing.candidates if c.times}
    simplified = [c for c in fusing.candidates if c.name.startswith("XLA, simplified")]
    same = simplified or [c for c in fusing.candidates if c.decision.kernels is None]
    fastest = min((process[c.name] for c in same), key=lambda rounds: np.median(rounds[::2]))
    return median_ratio(process[candidate.name][1::2], fastest[1::2])


def main(settings: Settings) -> None:
    """Measure all blocks, print the table and save it."""
    rows = {name: partial(measure, name, settings) for name in settings.blocks}
    found = store.collect(settings, "fuse.json", rows, "blocks")
    tables.show_rows(
        f"Process time of programs, {settings.repeats} rounds",
        found,
        (
            ("block", "block"),
            ("program", "program"),
            ("kernels", given("kernels", lambda row: row["kernels"])),
            ("their sum, ms", given("predicted", milliseconds("predicted"))),
            ("least, ms", milliseconds("seconds")),
            ("of XLA (95 %)", ratio("ratio")),
            ("wall, of XLA", ratio("wall ratio")),
            ("of XLA on the same equations", given("same ratio", ratio("same ratio"))),
        ),
        settings.folder / "programs.md",
    )
    tables.show_rows(
        "The program chosen on even rounds, in odd rounds",
        [row for row in found if row["chosen"]],
        (("block", "block"), ("program", "program"), ("of XLA (95 %)", ratio("odd rounds"))),
        settings.folder / "chosen.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1, keeps_memory=True, cores=1)
