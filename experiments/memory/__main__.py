"""Training steps within budgets of memory, beside XLA, `jax.checkpoint` and published rules.

    python -m experiments.memory

Each step is planned for several shares of the bytes that XLA needs beside the arguments. Tables
give bytes by XLA's own account, flop by XLA's count, and measured times in interleaved rounds.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.tables import given, ratio
from experiments.memory.cases import STEPS
from experiments.memory.measuring import BUDGETS, measure
from gopt.plots.units import format_bytes


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      steps: training steps, see `experiments.memory.cases`.
      budgets: shares of XLA's bytes without arguments.
      evaluations: budget of each search.
      repeats: rounds of timing; 0 times nothing.
      seed: random seed of the searches.
      target: machine to compile for, such as "tpu v5e:2x2" with the extra `tpu`; then nothing runs.
      folder: folder of rows and tables.
    """

    steps: tuple[str, ...] = choice(STEPS, STEPS)
    budgets: tuple[float, ...] = BUDGETS
    evaluations: int = at_least(1, 20_000)
    repeats: int = at_least(0, 12)
    seed: int = 0
    target: str | None = None
    folder: Path = Path("runs/memory")


def main(settings: Settings) -> None:
    """Measure all steps, print the tables and save them."""
    options = settings.budgets, settings.evaluations, settings.repeats, settings.seed
    rows = {
        name: partial(measure, name, *options, target=settings.target) for name in settings.steps
    }
    found: list[dict[str, Any]] = store.collect(settings, "memory.json", rows, "steps")
    tables.show_rows(
        "Training steps: bytes without arguments as XLA plans them, flop, and time as a share of "
        f"XLA's program, median of {settings.repeats} rounds (95 %); less is better",
        found,
        (
            ("step", "step"),
            ("program", "method"),
            ("budget", given("limit", lambda row: format_bytes(row["limit"]))),
            ("needs", lambda row: format_bytes(row["bytes"])),
            ("flop, G", lambda row: f"{row['flop'] / 1e9:.1f}"),
            ("process time", given("process ratio", ratio("process ratio"))),
            ("wall time", given("wall ratio", ratio("wall ratio"))),
            ("search, s", lambda row: f"{row['search s']:.1f}"),
        ),
        settings.folder / "memory.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1, keeps_memory=True)
