"""Training steps within budgets of memory, beside XLA, `jax.checkpoint` and published rules.

    python -m experiments.memory
    python -m experiments.memory --table solvers --seconds 60
    python -m experiments.memory --table agreement
    python -m experiments.memory --table batches --steps transformer-4 bert resnet
    python -m experiments.memory --table pytorch

Each step is planned for several shares of the bytes that XLA needs beside the arguments. Tables
give bytes by XLA's own account, flop by XLA's count, and measured times in interleaved rounds. The
table of solvers has times by the model; the table of agreement has bytes by the model and by XLA.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.plots import save_figure
from experiments.harness.tables import given, ratio
from experiments.memory import agreement, batches, fronts, pytorch, solvers
from experiments.memory.cases import STEPS, batch_of
from experiments.memory.measuring import BUDGETS, measure
from gopt.plots.units import format_bytes


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      table: table to make: of budgets, of solvers, of the agreement of the model with XLA, or of
        the largest batches within fixed bytes, or of PyTorch's own budget, with the extra `torch`.
      steps: training steps, see `experiments.memory.cases`.
      budgets: shares of XLA's bytes without arguments.
      evaluations: budget of each search.
      repeats: rounds of timing; 0 times nothing.
      seed: random seed of the searches.
      seconds: time of each solver for a budget, s; more if gopt's search takes more.
      target: machine to compile for, such as "tpu v5e:2x2" with the extra `tpu`; then nothing runs.
      folder: folder of folders, one for each table.
    """

    table: str = choice(("budgets", "solvers", "agreement", "batches", "pytorch"), "budgets")
    steps: tuple[str, ...] = choice(STEPS, STEPS)
    budgets: tuple[float, ...] = BUDGETS
    evaluations: int = at_least(1, 20_000)
    repeats: int = at_least(0, 12)
    seed: int = 0
    seconds: float = at_least(1, 60.0)
    target: str | None = None
    folder: Path = Path("runs/memory")


def main(settings: Settings) -> None:
    """Measure all steps, print the tables and save them."""
    make = {
        "budgets": _budgets,
        "solvers": _solvers,
        "agreement": _agreement,
        "batches": _batches,
        "pytorch": _pytorch,
    }[settings.table]
    make(replace(settings, folder=settings.folder / settings.table))


def _budgets(settings: Settings) -> None:
    options = settings.budgets, settings.evaluations, settings.repeats, settings.seed
    found = _rows(settings, partial(measure, target=settings.target), *options)
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
    tables.show_rows(
        "Training steps in short: bytes without arguments of the better of XLA's programs, and of "
        "the smallest programs as shares of it (less is better); budgets that gopt kept, of those "
        "that a lower bound allows (more is better); policies beaten by 20 % of bytes with at "
        "most 3 % more flop, of those that no other policy beats (more is better); process and "
        "wall time within half and a quarter of the bytes as shares of XLA's default, median of "
        f"{settings.repeats} rounds (95 %; less is better)",
        fronts.summary(found),
        (
            ("step", "step"),
            ("XLA", "bytes"),
            ("smallest policy", "{policy:.2f}"),
            ("smallest of gopt", "{gopt:.2f}"),
            ("budgets kept", "kept"),
            ("policies beaten", "beaten"),
            *(
                (f"{clock} time at {100 * budget:.0f} %", given(key, ratio(key)))
                for key, (clock, budget) in fronts.TIMES.items()
            ),
        ),
        settings.folder / "summary.md",
    )
    for step in settings.steps if settings.repeats and settings.target is None else ():
        save_figure(settings.folder / f"{step}.png", fronts.picture(found, step))


def _solvers(settings: Settings) -> None:
    if settings.target is not None:
        raise command_line.UsageError("--target is for the other tables: nothing is compiled here")
    options = settings.budgets, settings.evaluations, settings.seconds, settings.seed
    names = ("gopt", *solvers.SOLVERS)
    tables.show_rows(
        "Training steps: time by the model as a share of no recomputation, without results that "
        "take an operand's place (less is better; one search; empty: nothing found that fits); "
        f"each solver had all cores for {settings.seconds:g} s and a budget, or as long as gopt, "
        "besides making its model; the lower bound is the larger of CP-SAT's and gopt's",
        _rows(settings, solvers.compare, *options),
        (
            ("step", "step"),
            ("ops", "{ops}"),
            ("budget, %", lambda row: f"{100 * row['budget']:.0f}"),
            *((name, given(name, partial(_cell, name))) for name in names),
            ("bound", "{bound:.3f}"),
            ("gopt, s", "{gopt s:.1f}"),
        ),
        settings.folder / "solvers.md",
    )


def _cell(name: str, row: dict[str, Any]) -> str:
    return f"{row[name]:.3f}"


def _agreement(settings: Settings) -> None:
    compare = partial(agreement.compare, target=settings.target)
    tables.show_rows(
        f"Training steps: bytes of {agreement.PLANS} plans by the model and by XLA, for budgets "
        "from 40 to 60 % of XLA's bytes: rank correlation (more is better), and error as a share "
        "of XLA's bytes (less is better)",
        _rows(settings, compare, settings.evaluations, settings.seed),
        (
            ("step", "step"),
            ("rank correlation", "{correlation:.3f}"),
            ("median error, %", lambda row: f"{100 * row['error']:.2f}"),
            ("largest error, %", lambda row: f"{100 * row['largest error']:.2f}"),
        ),
        settings.folder / "agreement.md",
    )


def _batches(settings: Settings) -> None:
    steps = tuple(step for step in settings.steps if batch_of(step) is not None)
    find = partial(batches.largest, target=settings.target)
    tables.show_rows(
        "Training steps: the largest batch, of some multiples of the step's own, that fits into "
        "the bytes that the better of XLA's programs needs for the step's own batch, arguments "
        "included (more is better), and flop for each example (less is better)",
        _rows(replace(settings, steps=steps), find, settings.evaluations, settings.seed),
        (
            ("step", "step"),
            ("bytes", lambda row: format_bytes(row["bytes"])),
            *((way, given(way, partial(_batch, way))) for way in ("XLA", "policies", "gopt")),
        ),
        settings.folder / "batches.md",
    )


def _batch(way: str, row: dict[str, Any]) -> str:
    return f"{row[way]} ({row[f'{way} flop'] / 1e9:.2f} G)"


def _pytorch(settings: Settings) -> None:
    steps = tuple(step for step in settings.steps if step in pytorch.TRANSFORMERS)
    found = _rows(replace(settings, steps=steps), pytorch.compare, settings.budgets)
    base = {row["step"]: row for row in found if row["budget"] == 1}
    tables.show_rows(
        "Transformers in PyTorch within budgets of activation memory: bytes that are saved for the "
        "backward pass, and flop of products as a share of PyTorch's default (less is better)",
        found,
        (
            ("step", "step"),
            ("budget, %", lambda row: f"{100 * row['budget']:.0f}"),
            ("saved", lambda row: format_bytes(row["saved"])),
            ("flop", lambda row: f"{row['flop'] / base[row['step']]['flop']:.3f}"),
        ),
        settings.folder / "pytorch.md",
    )


def _rows(settings: Settings, make: Callable[..., Any], *options: Any) -> list[dict[str, Any]]:
    rows = {name: partial(make, name, *options) for name in settings.steps}
    return store.collect(settings, f"{settings.table}.json", rows, "steps")


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1, keeps_memory=True, heaps=1)
