"""Memory and time of models through XLA, in its own orders and in those that gopt finds.

    python -m experiments.apply

Memory is what XLA plans beside the arguments: outputs and temporaries, less what is written over
donated arguments. Time is process time of all cores, the least of several runs in turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import gopt
from experiments import wired
from experiments.harness import command_line, store, tables
from experiments.harness.cases import MODELS
from experiments.harness.command_line import at_least, choice
from experiments.harness.plots import save_figure
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import seconds
from gopt.plots import style
from gopt.plots.units import format_bytes, format_seconds
from gopt.workloads.cases import Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Seeds of the wirings that are measured; none is used to choose anything.
FIRST_SEEDS = {"plain": 1000, "convolutional": 2000}


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: of `experiments.harness.cases.MODELS`.
      wirings: how many randomly wired networks of each kind, besides.
      evaluations: of each search.
      confirm: orders that are compiled for each model.
      repeats: how often each program is timed.
      seed: of the searches.
      folder: where the run is saved.
    """

    models: tuple[str, ...] = choice(MODELS)
    wirings: int = at_least(0, 20)
    evaluations: int = at_least(1, 20_000)
    confirm: int = at_least(0, 4)
    repeats: int = at_least(1, 5)
    seed: int = 0
    folder: Path = Path("runs/apply")


class Measured(NamedTuple):
    """Memory without arguments, in bytes, and process time, in s, of the programs of a model."""

    name: str
    group: str  # kind of a randomly wired network; means of a group are reported
    default: float
    memory_scheduler: float
    found: float  # the best of gopt's orders
    predicted: float  # prediction for that order
    chosen: str  # the best of all, XLA's included; it is timed
    default_seconds: float
    found_seconds: float
    difference: float  # largest difference of the values, see `largest_difference`


def measure(name: str, make: Callable[[], Case], group: str, settings: Settings) -> dict[str, Any]:
    """Return the row of a model as JSON values."""
    case = make()
    result = gopt.schedule(
        case.fn,
        *case.args,
        donate_argnums=case.donated,
        evaluations=settings.evaluations,
        confirm=settings.confirm,
        seed=settings.seed,
    )
    needs = {c.name: c.memory for c in result.candidates if c.memory is not None}
    own = needs["XLA"]
    # The chosen one is also a candidate as it is inside other functions, ", nested".
    ours = [
        c
        for c in result.candidates
        if c.decision.options is None and not c.name.endswith(", nested")
    ]
    best = min(ours, key=lambda candidate: needs[candidate.name].without_arguments)
    return Measured(
        name=name,
        group=group,
        default=own.without_arguments,
        memory_scheduler=needs.get("XLA, memory scheduler", own).without_arguments,
        found=needs[best.name].without_arguments,
        predicted=best.decision.peak[0] - own.arguments,
        chosen=result.after.name,
        **run(result, case, settings.repeats),
    )._asdict()


def run(result: gopt.Result, case: Case, repeats: int) -> dict[str, float]:
    """Return the times of XLA's program and the chosen one, and the difference of their values."""
    args = random_arguments(case.args)

    def fresh() -> tuple[Any, ...]:
        """Return arguments, with copies of those that are donated."""
        return tuple(
            jax.tree.map(jnp.copy, arg) if k in case.donated else arg for k, arg in enumerate(args)
        )

    assert result.before.executable is not None  # it was compiled for this device
    functions = {"default": result.before.executable.function, "found": result.apply()}
    difference = largest_difference(*(function(*fresh()) for function in functions.values()))
    times = seconds(functions, fresh, repeats=repeats)
    return {f"{name}_seconds": s for name, s in times.items()} | {"difference": difference}


def main(settings: Settings) -> None:
    """Measure all models, print the table and save it."""
    networks: dict[str, tuple[Callable[[], Case], str]] = {
        f"{kind} {first + k}": (partial(wired.KINDS[kind], first + k), f"wired, {kind}")
        for kind, first in FIRST_SEEDS.items()
        for k in range(settings.wirings)
    }
    networks |= {name: (MODELS[name], "") for name in settings.models}
    rows = {name: partial(measure, name, *how, settings) for name, how in networks.items()}
    found = store.collect(settings, "apply.json", rows, "models", "wirings")
    report([Measured(**row) for row in found], settings.folder)


def report(found: Sequence[Measured], folder: Path) -> None:
    """Print the table, and save it and the figure."""
    groups: dict[str, list[Measured]] = {}
    for row in found:
        groups.setdefault(row.group or row.name, []).append(row)
    rows = {
        f"{len(rows)} {name}" if rows[0].group else name: _mean(rows) if rows[0].group else rows[0]
        for name, rows in groups.items()
    }
    tables.show_rows(
        "Memory beside arguments, through XLA",
        [row._asdict() | {"name": name} for name, row in rows.items()],
        (
            ("model", "name"),
            ("XLA", lambda row: format_bytes(row["default"])),
            ("XLA's memory scheduler, %", _percent("memory_scheduler")),
            ("gopt, %", _percent("found")),
            ("predicted, %", _percent("predicted")),
            ("chosen", "chosen"),
            ("XLA, CPU time", lambda row: format_seconds(row["default_seconds"])),
            ("its CPU time, %", _percent("found_seconds", "default_seconds")),
            ("values differ by", "{difference:.0e}"),
        ),
        folder / "table.md",
    )
    if rows:
        save_figure(folder / "apply.png", draw(rows))


def draw(rows: Mapping[str, Measured]) -> "Figure":
    """Return what XLA's other scheduler and gopt need of each model, in % of XLA's default."""
    figure, (axes,) = style.new_figure([0.8 + 0.17 * len(rows)])
    heights = np.arange(len(rows))
    drawn = (
        ("memory_scheduler", "XLA's memory scheduler", "s", 3.5, "full", style.COLOURS[1]),
        ("predicted", "gopt, predicted", "o", 5.5, "none", style.COLOURS[6]),
        ("found", "gopt", "o", 3.0, "full", style.COLOURS[0]),
    )
    for field, label, marker, size, fill, colour in drawn:
        shares = [100 * getattr(row, field) / row.default for row in rows.values()]
        look: dict[str, Any] = {"markersize": size, "fillstyle": fill, "markeredgewidth": 0.7}
        axes.plot(shares, heights, marker, color=colour, label=label, **look)
    axes.axvline(100, color="0.4", linewidth=0.8, linestyle="--", label="XLA's default", zorder=0)
    axes.set_yticks(heights, list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(linewidth=0.3, alpha=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("memory, % of XLA's default")
    style.legend_across(figure)
    return figure


def _mean(rows: Sequence[Measured]) -> Measured:
    """Return the geometric means of randomly wired networks; of differences the largest."""
    own = sum(row.chosen.startswith("XLA") for row in rows)
    mean = {
        field: stats.gmean([getattr(row, field) for row in rows])
        for field in Measured._fields
        if field not in ("name", "group", "chosen", "difference")
    }
    return rows[0]._replace(
        chosen=f"gopt {len(rows) - own}, XLA {own}",
        difference=max(row.difference for row in rows),
        **mean,
    )


def _percent(field: str, base: str = "default") -> Callable[[Any], str]:
    """Return a function that makes a cell of a difference in %."""
    return lambda row: f"{100 * (row[field] / row[base] - 1):+.1f}"


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1)
