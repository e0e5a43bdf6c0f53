"""Compare memory and time of models through XLA, in XLA's own orders and in gopt's.

    python -m experiments.apply

Memory is planned by XLA: outputs and temporaries, without outputs that reuse donated arguments.
Time is CPU time of all cores, the least of several interleaved runs. Randomly wired networks are
also compared with the least memory that any order needs (see `experiments.wired`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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

# Seeds of the wirings that are measured. No choice was made with them.
FIRST_SEEDS = {"plain": 1000, "convolutional": 2000}


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: models from `experiments.harness.cases.MODELS`.
      wirings: additional randomly wired networks of each kind.
      evaluations: budget of each search.
      confirm: orders that are compiled for each model.
      repeats: times that each program is timed; 0 to skip timing.
      seed: seed of the searches.
      folder: folder of the run.
    """

    models: tuple[str, ...] = choice(MODELS)
    wirings: int = at_least(0, 20)
    evaluations: int = at_least(1, 20_000)
    confirm: int = at_least(0, 4)
    repeats: int = at_least(0, 5)
    seed: int = 0
    folder: Path = Path("runs/apply")


class Measured(NamedTuple):
    """Memory without arguments in bytes, and CPU time in s, of one model.

    Attributes:
      name: name of the model.
      equations: number of equations.
      kernels: number of kernels.
      arguments: bytes of the arguments.
      default: memory of XLA's program.
      memory_scheduler: memory with XLA's memory scheduler.
      program_order: memory with kernels in program order, behind barriers.
      found: memory of gopt's best order.
      predicted: predicted memory of that order.
      chosen: name of the best order, XLA's included; it is timed.
      default_seconds: CPU time of XLA's program.
      found_seconds: CPU time of the chosen program.
      difference: difference of the values of the two programs that are timed, see `Ran`.
      group: group of randomly wired networks whose mean is reported.
      optimum: least memory that any order needs, where it is known.
    """

    name: str
    equations: int
    kernels: int
    arguments: int
    default: int
    memory_scheduler: int
    program_order: int
    found: int
    predicted: int
    chosen: str
    default_seconds: float
    found_seconds: float
    difference: float
    group: str = ""
    optimum: int | None = None


def measure(name: str, case: Case, settings: Settings) -> Measured:
    """Return memory and time of XLA's program and of the program that gopt chooses."""
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
    ours = [c for c in result.candidates if c.decision.options is None and not is_nested(c)]
    best = min(ours, key=lambda candidate: needs[candidate.name].beside)
    ran = run(result, case, settings.repeats)
    return Measured(
        name=name,
        equations=len(result.program.equations),
        kernels=sum(index >= 0 for index in result.before.decision.traced.equations),
        arguments=own.arguments,
        default=own.beside,
        memory_scheduler=needs.get("XLA, memory scheduler", own).beside,
        program_order=needs["program order"].beside,
        found=needs[best.name].beside,
        predicted=best.decision.peak[0] - own.arguments,
        chosen=result.after.name,
        default_seconds=ran.own,
        found_seconds=ran.chosen,
        difference=ran.difference,
    )


def measure_model(name: str, settings: Settings) -> dict[str, Any]:
    """Return memory and time of the programs of a model, as JSON values."""
    return measure(name, MODELS[name](), settings)._asdict()


def is_nested(candidate: gopt.Candidate) -> bool:
    """Return whether a candidate is the chosen one as it is inside other functions."""
    return candidate.name.endswith(", nested")


def measure_wired(kind: str, seed: int, settings: Settings) -> dict[str, Any]:
    """Return memory and time of the programs of a randomly wired network, and its optimum."""
    case = wired.KINDS[kind](seed)
    row = measure(f"{kind} {seed}", case, settings)
    return row._replace(group=f"wired, {kind}", optimum=wired.optimum(seed, case))._asdict()


class Ran(NamedTuple):
    """Times of XLA's own program and the chosen one, on the same random arguments.

    Attributes:
      own: CPU time of XLA's own program, s.
      chosen: CPU time of the chosen program, s.
      difference: largest difference of values, as a share of the largest value of the same array.
    """

    own: float
    chosen: float
    difference: float


def run(result: gopt.Scheduling, case: Case, repeats: int) -> Ran:
    """Return the times of both programs, and the difference of their values."""
    if not repeats:
        return Ran(float("nan"), float("nan"), float("nan"))
    args = random_arguments(case.args)

    def fresh() -> tuple[Any, ...]:
        """Return arguments whose donated ones may be consumed."""
        return tuple(
            jax.tree.map(jnp.copy, arg) if k in case.donated else arg for k, arg in enumerate(args)
        )

    functions = {"own": result.before.executable.function, "chosen": result.apply()}
    values = [function(*fresh()) for function in functions.values()]
    apart = largest_difference(*values)
    del values
    found = seconds(functions, fresh, repeats=repeats)
    return Ran(found["own"], found["chosen"], apart)


def main(settings: Settings) -> None:
    """Measure all models, print the table and save it."""
    rows = {
        f"{kind} {first + k}": partial(measure_wired, kind, first + k, settings)
        for kind, first in FIRST_SEEDS.items()
        for k in range(settings.wirings)
    }
    rows |= {name: partial(measure_model, name, settings) for name in settings.models}
    found = store.collect(settings, "apply.json", rows, "models", "wirings")
    report([Measured(**row) for row in found], settings.folder)


def report(found: Sequence[Measured], folder: Path) -> None:
    """Print the table, and save it and the figure."""
    groups: dict[str, list[Measured]] = {}
    for row in found:
        if row.group:
            groups.setdefault(row.group, []).append(row)
    rows = {f"{len(rows)} {name}": _mean(rows) for name, rows in groups.items()}
    rows |= {row.name: row for row in found if not row.group}
    columns = (
        *("model", "equations", "kernels", "arguments", "XLA", "XLA's memory scheduler, %"),
        *("program order, %", "gopt, %", "predicted, %", "over the optimum, %", "chosen"),
        *("XLA, time", "its time, %", "values differ by"),
    )
    cells = [_row(name, row) for name, row in rows.items()]
    tables.show("Memory beside arguments, through XLA", columns, cells, folder / "table.md")
    if rows:
        save_figure(folder / "apply.png", draw(rows))


def draw(rows: Mapping[str, Measured]) -> "Figure":
    """Return a figure of the memory with XLA's other scheduler and gopt, in % of XLA's default."""
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


def _row(name: str, row: Measured) -> tuple[Any, ...]:
    return (
        name,
        row.equations,
        row.kernels,
        format_bytes(row.arguments),
        format_bytes(row.default),
        *(_percent(getattr(row, field), row.default) for field in _COMPARED),
        _percent(row.found, row.optimum or 0),
        row.chosen,
        "" if np.isnan(row.default_seconds) else format_seconds(row.default_seconds),
        _percent(row.found_seconds, row.default_seconds),
        "" if np.isnan(row.difference) else f"{row.difference:.0e}",
    )


def _mean(rows: Sequence[Measured]) -> Measured:
    """Return geometric means over randomly wired networks; the largest of the differences."""

    def mean(field: str) -> float:
        return float(np.exp(np.mean(np.log([getattr(row, field) for row in rows]))))

    own = sum(row.chosen.startswith("XLA") for row in rows)
    means: dict[str, Any] = {}
    for field in Measured._fields:
        if field.endswith("_seconds"):
            means[field] = mean(field)
        elif field == "difference":
            means[field] = max(row.difference for row in rows)
        elif field not in ("name", "chosen", "group"):
            means[field] = round(mean(field))
    return rows[0]._replace(chosen=f"gopt {len(rows) - own}, XLA {own}", **means)


_COMPARED = ("memory_scheduler", "program_order", "found", "predicted")


def _percent(value: float, reference: float) -> str:
    return f"{100 * (value / reference - 1):+.1f}" if reference > 0 and value >= 0 else ""


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1)
