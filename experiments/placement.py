"""Models in stages on four devices: values, and the memory of each device, predicted and planned.

    python -m experiments.placement

Kernels are placed for the shortest makespan on four H100. The devices that run them are virtual
ones of a CPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import gopt
from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from gopt.measure.equality import largest_difference, random_arguments
from gopt.plots.units import format_bytes
from gopt.scheduling.stages import Stage
from gopt.workloads.cases import Case, forward, step

MACHINE, DEVICES = "4xh100", 4

MODELS: dict[str, Callable[[], Case]] = {
    "randwire forward": partial(forward, "randwire"),
    "nasnet_a forward": partial(forward, "nasnet_a", cells=1),
    "inception_v3 forward": partial(forward, "inception_v3"),
    "dlrm forward": partial(forward, "dlrm"),
    "bert step": partial(step, "bert", layers=1),
}


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: of `MODELS`.
      evaluations: of each search.
      seed: of the searches.
      folder: where the run is saved.
    """

    models: tuple[str, ...] = choice(MODELS)
    evaluations: int = at_least(1, 2000)
    seed: int = 0
    folder: Path = Path("runs/placement")


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Return what a model needs on each device, and how far its values are from XLA's."""
    case = MODELS[name]()
    result = gopt.schedule(
        case.fn,
        *case.args,
        hardware=MACHINE,
        objective="makespan",
        evaluations=settings.evaluations,
        seed=settings.seed,
        donate_argnums=case.donated,
    )
    staged = result.apply()
    stages = sum(isinstance(action.what, Stage) for action in staged.actions)
    args = random_arguments(case.args)
    expected = jax.jit(case.fn)(*args)
    values = staged(*staged.place(*jax.tree.map(jnp.copy, args)))
    return {
        "name": name,
        "kernels": len(result.after.decision.kernels.groups),
        "stages": stages,
        "transfers": len(staged.actions) - stages,
        "alone": result.before.decision.peak[0],  # on one device, by the model of schedules
        "schedule": result.after.decision.peak,
        "predicted": staged.predicted,
        "planned": staged.memory,
        "difference": largest_difference(values, expected),
    }


def main(settings: Settings) -> None:
    """Measure all models, print the table and save it."""
    rows = {name: partial(measure, name, settings) for name in settings.models}
    found = store.collect(settings, "placement.json", rows, "models")
    columns = (
        *("model", "kernels", "stages", "transfers", "one device"),
        *(f"device {k}, predicted, off by %" for k in range(DEVICES)),
        "values differ by",
    )
    title = f"Memory of {DEVICES} devices, arguments included"
    tables.show(title, columns, [_row(row) for row in found], settings.folder / "table.md")


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    devices = [
        f"{format_bytes(predicted)}, {100 * (planned / predicted - 1):+.1f}" if predicted else ""
        for predicted, planned in zip(row["predicted"], row["planned"], strict=True)
    ]
    counts = (row[field] for field in ("name", "kernels", "stages", "transfers"))
    return *counts, format_bytes(row["alone"]), *devices, f"{row['difference']:.0e}"


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=DEVICES)
