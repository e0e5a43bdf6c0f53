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
import tyro
from rich.progress import track

import gopt
from experiments import common
from experiments.cases import Case, check_names, forward, step
from gopt.measure.equality import largest_difference, random_arguments
from gopt.plots.units import format_bytes
from gopt.scheduling.stages import Stage

MACHINE, DEVICES = "4xh100", 4

MODELS: dict[str, Callable[[], Case]] = {
    "randwire forward": partial(forward, "randwire"),
    "nasnet_a forward": partial(forward, "nasnet_a", cells=1),
    "inception_v3 forward": partial(forward, "inception_v3"),
    "dlrm forward": partial(forward, "dlrm"),
    "bert step": partial(step, "bert", layers=1),
}


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      models: of `MODELS`.
      evaluations: of each search.
      seed: of the searches.
      folder: where the run is saved.
    """

    models: tuple[str, ...] = tuple(MODELS)
    evaluations: int = 2000
    seed: int = 0
    folder: Path = Path("runs/placement")


def measure(name: str, case: Case, settings: Settings) -> dict[str, Any]:
    """Returns what a model needs on each device, and how far its values are from XLA's."""
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
        "kernels": len(result.plan.groups),
        "stages": stages,
        "transfers": len(staged.actions) - stages,
        "alone": result.before.peak[0],  # on one device, by the model of schedules
        "schedule": result.after.peak,
        "predicted": staged.predicted,
        "planned": staged.memory,
        "difference": largest_difference(values, expected),
    }


def main(settings: Settings) -> None:
    """Measures all models, prints the table and saves it."""
    check_names("models", settings.models, MODELS)
    found = [measure(name, MODELS[name](), settings) for name in track(settings.models, "models")]
    common.save_settings(settings.folder, settings)
    common.save_json(settings.folder / "placement.json", found)
    columns = (
        *("model", "kernels", "stages", "transfers", "one device"),
        *(f"device {k}, predicted, off by %" for k in range(DEVICES)),
        "values differ by",
    )
    title = f"Memory of {DEVICES} devices, arguments included"
    common.show(title, columns, [_row(row) for row in found], settings.folder / "table.md")


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    devices = [
        f"{format_bytes(predicted)}, {100 * (planned / predicted - 1):+.1f}" if predicted else ""
        for predicted, planned in zip(row["predicted"], row["planned"], strict=True)
    ]
    counts = (row[field] for field in ("name", "kernels", "stages", "transfers"))
    return *counts, format_bytes(row["alone"]), *devices, f"{row['difference']:.0e}"


if __name__ == "__main__":
    common.start(DEVICES)
    main(tyro.cli(Settings, description=__doc__))
