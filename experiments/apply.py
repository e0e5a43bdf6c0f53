"""Memory and time of models through XLA, in its own orders and in those that gopt finds.

    python -m experiments.apply

Memory is what XLA plans beside the arguments: outputs and temporaries, less what is written over
donated arguments. Time is process time of all cores, the least of several runs in turn. Randomly
wired networks are also compared with the least that any order needs (see `experiments.wired`).
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
      repeats: how often each program is timed; 0 for not at all.
      seed: of the searches.
      folder: where the run is saved.
    """

    models: tuple[str, ...] = choice(MODELS)
    wirings: int = at_least(0, 20)
    evaluations: int = at_least(1, 20_000)
    confirm: int = at_least(0, 4)
    repeats: int = at_least(0, 5)
    seed: int = 0
    folder: Path = Path("runs/apply")


class Measured(NamedTuple):
    """Memory beside the arguments, in bytes, and process time, in s."""

    name: str
    equations: int
    kernels: int
    arguments: int
    default: int
    memory_scheduler: int
    program_order: int  # of the kernels, behind barriers
    found: int  # by the best of all orders of gopt
    predicted: int  # for that order
    chosen: str  # the best of all, XLA's included: what is timed
    default_seconds: float
    found_seconds: float
    difference: float  # of the values of the two that are timed, see `Ran`
    group: str = ""  # whose mean is reported, of randomly wired networks
    optimum: int | None = None  # the least that any order needs, where that is known


def measure(name: str, case: Case, settings: Settings) -> Measured:
    """Return what XLA's program and the one that gopt chooses need."""
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
    best = min(ours, key=lambda candidate: needs[candidate.name].without_arguments)
    ran = run(result, case, settings.repeats)
    return Measured(
        name=name,
        equations=len(result.program.equations),
        kernels=sum(index >= 0 for index in result.before.decision.traced.equations),
        arguments=own.arguments,
        default=own.without_arguments,
        memory_scheduler=needs.get("XLA, memory scheduler", own).without_arguments,
        program_order=needs["program order"].without_arguments,
        found=needs[best.name].without_arguments,
        predicted=best.decision.peak[0] - own.arguments,
        chosen=result.after.name,
        default_seconds=ran.own,
        found_seconds=ran.chosen,
        difference=ran.difference,
    )


def measure_model(name: str, settings: Settings) -> dict[str, Any]:
    """Return what the programs of a model need, as JSON values."""
    return measure(name, MODELS[name](), settings)._asdict()


def is_nested(candidate: gopt.Candidate) -> bool:
    """Return whether a candidate is the chosen one as it is inside other functions."""
    return candidate.name.endswith(", nested")


def measure_wired(kind: str, seed: int, settings: Settings) -> dict[str, Any]:
    """Return what the programs of a randomly wired network need, and its optimum."""
    case = wired.KINDS[kind](seed)
    row = measure(f"{kind} {seed}", case, settings)
    return row._replace(group=f"wired, {kind}", optimum=wired.optimum(seed, case))._asdict()


class Ran(NamedTuple):
    """XLA's own program and the chosen one, on the same random arguments."""

    own: float  # s
    chosen: float  # s
    difference: float  # of the values, the largest, as a share of the largest of the same array


def run(result: gopt.Result, case: Case, repeats: int) -> Ran:
    """Return how long both programs take, and how far their values are apart."""
    if not repeats:
        return Ran(float("nan"), float("nan"), float("nan"))
    args = random_arguments(case.args)

    def fresh() -> tuple[Any, ...]:
        """Return arguments of which those that are donated may be consumed."""
        return tuple(
            jax.tree.map(jnp.copy, arg) if k in case.donated else arg for k, arg in enumerate(args)
        )

    assert result.before.executable is not None  # it was compiled for this device
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
    """Return the geometric means of randomly wired networks; of differences the largest."""

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
