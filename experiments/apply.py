"""What orders found by gopt do for real: memory and time of models, XLA's default against gopt.

    python -m experiments.apply

Memory is what XLA plans beside the arguments: outputs and temporaries, less what is written over
donated arguments. Time is process time of all cores, the least of several runs in turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.progress import track

from experiments import common
from gopt.measure import seconds
from gopt.ordering import Ordering, least_memory
from gopt.sources.synthetic import small_world
from gopt.units import format_bytes, format_seconds
from gopt.workloads import WORKLOADS

NODES, NEIGHBOURS, REWIRING = 32, 4, 0.75
FIRST_SEED = 1000  # of the wirings that are measured; none is used to choose anything

# Inference of single images or short texts, and training steps of small batches.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "nasnet_a forward": ("forward", {}),
    "amoebanet forward": ("forward", {}),
    "inception_v3 forward": ("forward", {}),
    "unet forward": ("forward", {}),
    "densenet forward": ("forward", {}),
    "randwire forward": ("forward", {}),
    "switch forward": ("forward", {}),
    "dlrm forward": ("forward", {}),
    "bert forward": ("forward", {"layers": 6}),
    "unet step": ("train_step", {"size": 284}),
    "nasnet_a step": ("train_step", {"size": 96, "cells": 2}),
    "bert step": ("train_step", {"layers": 2}),
    "gpt2 step": ("train_step", {"layers": 2, "length": 128}),
}


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      models: of `MODELS`.
      wirings: how many randomly wired networks, besides.
      evaluations: of each search.
      confirm: orders that are compiled for each model.
      repeats: how often each program is timed; 0 for not at all.
      seed: of the searches.
      folder: where the run is saved.
    """

    models: tuple[str, ...] = tuple(MODELS)
    wirings: int = 20
    evaluations: int = 5000
    confirm: int = 3
    repeats: int = 5
    seed: int = 0
    folder: Path = Path("runs/apply")


class Case(NamedTuple):
    """A function with its arguments as shapes."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def wired(seed: int) -> Case:
    """Returns a randomly wired network: nodes of `relu(sum of inputs) @ w`, all of one size."""
    edges = small_world(np.random.default_rng(seed), NODES, NEIGHBOURS, REWIRING).tolist()
    read = [[u for u, v in edges if v == node] for node in range(NODES)]
    ends = sorted(set(range(NODES)) - {u for u, _ in edges})

    def network(x: jax.Array, weights: Sequence[jax.Array]) -> list[jax.Array]:
        made: list[jax.Array] = []
        for node, w in enumerate(weights):
            inputs = [made[u] for u in read[node]] or [x]
            made.append(jax.nn.relu(sum(inputs[1:], inputs[0])) @ w)
        return [made[node] for node in ends]

    rows = jax.ShapeDtypeStruct((256, 64), jnp.float32)
    return Case(network, (rows, [jax.ShapeDtypeStruct((64, 64), jnp.float32)] * NODES))


def model(name: str) -> Case:
    """Returns one of `MODELS`."""
    mode, sizes = MODELS[name]
    workload = WORKLOADS[name.split()[0]](**sizes)
    if mode == "forward":
        return Case(*workload.forward())
    return Case(*workload.train_step(), (0, 1))


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


def measure(name: str, case: Case, settings: Settings) -> Measured:
    """Returns what XLA's program and the one that gopt chooses need."""
    result = least_memory(
        case.fn,
        *case.args,
        donate_argnums=case.donated,
        evaluations=settings.evaluations,
        confirm=settings.confirm,
        seed=settings.seed,
    )
    needs = {candidate.name: candidate.memory.beside for candidate in result.candidates}
    ours = [candidate for candidate in result.candidates if candidate.predicted is not None]
    best = min(ours, key=lambda candidate: candidate.memory.beside)
    times = _times(result, case, settings.repeats)
    return Measured(
        name=name,
        equations=result.num_equations,
        kernels=result.num_kernels,
        arguments=result.before.memory.arguments,
        default=result.before.memory.beside,
        memory_scheduler=needs.get("XLA, memory scheduler", needs["XLA"]),
        program_order=needs["program order"],
        found=best.memory.beside,
        predicted=best.predicted or 0,
        chosen=result.after.name,
        default_seconds=times[0],
        found_seconds=times[1],
    )


def _times(result: Ordering, case: Case, repeats: int) -> tuple[float, float]:
    """Returns the seconds of XLA's own program and of the chosen one, on random arguments."""
    if not repeats:
        return float("nan"), float("nan")
    rng = np.random.default_rng(0)

    def draw(shape: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(shape.dtype, jnp.floating):
            return jnp.asarray(rng.uniform(0.1, 0.2, shape.shape), shape.dtype)
        return jnp.zeros(shape.shape, shape.dtype)

    args = jax.tree.map(draw, case.args)

    def fresh() -> tuple[Any, ...]:
        """Returns arguments of which those that are donated may be consumed."""
        return tuple(
            jax.tree.map(jnp.copy, arg) if k in case.donated else arg for k, arg in enumerate(args)
        )

    functions = {"own": result.before.function, "chosen": result.after.function}
    found = seconds(functions, fresh, repeats=repeats)
    return found["own"], found["chosen"]


def main(settings: Settings) -> None:
    """Measures all models, prints the table and saves it."""
    unknown = sorted(set(settings.models) - set(MODELS))
    if unknown:
        raise ValueError(f"models has {unknown[0]!r}: expected some of {', '.join(MODELS)}")
    wirings = [f"wired {FIRST_SEED + k}" for k in range(settings.wirings)]
    found = []
    for name in track([*wirings, *settings.models], "measuring"):
        case = wired(int(name.split()[1])) if name in wirings else model(name)
        found.append(measure(name, case, settings))
    common.save_settings(settings.folder, settings)
    common.save_json(settings.folder / "apply.json", [row._asdict() for row in found])
    columns = (
        *("model", "equations", "kernels", "arguments", "XLA", "XLA's memory scheduler, %"),
        *("program order, %", "gopt, %", "predicted, %", "chosen", "XLA, time", "its time, %"),
    )
    rows = [_row(row) for row in found if row.name not in wirings]
    if wirings:
        rows.insert(0, _mean([row for row in found if row.name in wirings]))
    common.show("Memory beside arguments, through XLA", columns, rows, settings.folder / "table.md")


def _row(row: Measured) -> tuple[Any, ...]:
    return (
        row.name,
        row.equations,
        row.kernels,
        format_bytes(row.arguments),
        format_bytes(row.default),
        *(_percent(getattr(row, name), row.default) for name in _COMPARED),
        row.chosen,
        "" if np.isnan(row.default_seconds) else format_seconds(row.default_seconds),
        _percent(row.found_seconds, row.default_seconds),
    )


def _mean(rows: Sequence[Measured]) -> tuple[Any, ...]:
    """Returns the row of the randomly wired networks: geometric means."""

    def mean(name: str) -> float:
        values = [getattr(row, name) for row in rows]
        return float(np.exp(np.mean(np.log(values))))

    own = sum(row.chosen.startswith("XLA") for row in rows)
    time = mean("default_seconds")
    return (
        f"{len(rows)} wired networks",
        f"{mean('equations'):.0f}",
        f"{mean('kernels'):.0f}",
        format_bytes(round(mean("arguments"))),
        format_bytes(round(mean("default"))),
        *(_percent(mean(name), mean("default")) for name in _COMPARED),
        f"gopt {len(rows) - own}, XLA {own}",
        "" if np.isnan(time) else format_seconds(time),
        _percent(mean("found_seconds"), time),
    )


_COMPARED = ("memory_scheduler", "program_order", "found", "predicted")


def _percent(value: float, reference: float) -> str:
    return f"{100 * (value / reference - 1):+.1f}" if reference > 0 and value >= 0 else ""


if __name__ == "__main__":
    common.start(1)
    main(tyro.cli(Settings, description=__doc__))
