"""Compare memory predicted by gopt with memory planned by XLA, for many orders of kernels.

    python -m experiments.prediction

Each model is compiled in orders between a good heuristic one and random ones. For each order,
memory without arguments is predicted twice. One prediction uses equations, each with tensors of its
own. The other uses kernels, with XLA's shared buffers and addresses.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments import wired
from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare, to_bytes
from gopt.cost.schedule.xla_memory import beside
from gopt.graph.graph import Graph
from gopt.graph.padding import pad
from gopt.graph.tracing import TracedGraph, from_program
from gopt.heuristics import keys_from_items, keys_in_order
from gopt.heuristics.schedule.orders.memory_orders import lowest_order
from gopt.measure.timing import memory
from gopt.plots.units import format_bytes
from gopt.program.program import Program, trace_program
from gopt.scheduling.candidate import CompiledKernels, kernels_of, modelled, replay
from gopt.workloads.cases import Case, forward, step
from gopt.workloads.recommendation.towers import towers
from gopt.xla import Group, kernel_graph
from gopt.xla.ordered import jit_ordered

# Small, because each is compiled once for every order. `apply` measures other wirings.
MODELS: dict[str, Callable[[], Case]] = {
    "wired, plain, 3000": partial(wired.plain, 3000),
    "wired, plain, 3001": partial(wired.plain, 3001),
    "wired, convolutional, 3000": partial(wired.convolutional, 3000),
    "wired, convolutional, 3001": partial(wired.convolutional, 3001),
    "randwire forward": partial(forward, "randwire"),
    "nasnet_a forward": partial(forward, "nasnet_a", cells=1),
    "amoebanet forward": partial(forward, "amoebanet", cells=1),
    "dlrm forward": partial(forward, "dlrm"),
    "towers forward": towers,
    "unet step": partial(step, "unet", size=188),
    "bert step": partial(step, "bert", layers=1, batch=8),
}

# Share of the least measured; covers unplanned memory, such as tables of barriers.
RESOLUTION = 0.005


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: models from `MODELS`.
      orders: orders of each model, at least 2.
      seed: seed of the orders.
      folder: folder of the run.
    """

    models: tuple[str, ...] = choice(MODELS)
    orders: int = at_least(2, 16)
    seed: int = 0
    folder: Path = Path("runs/prediction")


class Order(NamedTuple):
    """Bytes that one order of kernels needs, without arguments.

    Attributes:
      share: share of chance in the order: 0 is the best heuristic order, 1 a random order.
      measured: bytes that XLA plans.
      equations: bytes predicted from equations.
      kernels: bytes predicted from kernels.
    """

    share: float
    measured: int
    equations: int
    kernels: int


class Row(NamedTuple):
    """A model in several orders.

    Attributes:
      name: name of the model.
      equations: number of equations.
      kernels: number of kernels.
      orders: bytes of each order.
    """

    name: str
    equations: int
    kernels: int
    orders: tuple[Order, ...]


def measure(name: str, case: Case, settings: Settings) -> Row:
    """Return measured and predicted memory of a model in several orders."""
    traced = trace_program(case.fn, *case.args, donate_argnums=case.donated)
    kernels = kernels_of(traced, merged=True)
    part_of = dict(zip(map(id, kernels.program.equations), kernels.groups, strict=True))
    graph = kernel_graph(kernels.program, kernels.workspace, {})
    orders = []
    for share, other in drawn(kernels, graph, settings.orders, settings.seed):
        compiled = jit_ordered(other).lower(*case.args).compile()
        expanded = _expanded(kernels.source, [part_of[id(kernel)] for kernel in other.equations])
        orders.append(
            Order(
                share=share,
                measured=memory(compiled).without_arguments,
                equations=peak_beside_inputs(from_program(expanded).graph),
                kernels=beside(other, kernels.workspace),
            )
        )
    return Row(name, len(traced.equations), len(kernels.program.equations), tuple(orders))


def drawn(
    kernels: CompiledKernels, graph: TracedGraph, count: int, seed: int
) -> Iterator[tuple[float, Program]]:
    """Yield orders of a graph's program, from the best heuristic one to a random one.

    The priority of an op is a mixture of its heuristic priority and a random number. The share of
    the random number grows.
    """
    problem, rng = prepare(pad(graph.graph), unit_rate_devices(1)), np.random.default_rng(seed)
    ops = int(problem.num_ops)
    inputs = np.flatnonzero(problem.is_input[:ops]).tolist()
    good = keys_from_items(problem, [0] * ops, [*inputs, *lowest_order(problem)])
    for share in np.linspace(0, 1, count).tolist():
        turns = (1 - share) * good.priority + share * rng.random(len(good.priority))
        turns[inputs] = 0  # inputs come first
        keys = good._replace(priority=np.float32(turns))
        yield share, modelled(kernels, graph, problem, keys).order


def peak_beside_inputs(graph: Graph) -> int:
    """Return the peak memory in bytes when ops run in listed order, without all inputs."""
    problem = prepare(pad(graph), unit_rate_devices(1))
    tensors, schedule = int(problem.num_tensors), replay(problem, keys_in_order(problem))
    is_given = np.asarray(problem.is_input)[np.asarray(problem.producer)[:tensors]]
    inputs = np.asarray(problem.size, np.int64)[:tensors][is_given].sum()
    return int(to_bytes(problem, schedule.peak.max() - inputs))


def _expanded(program: Program, parts: Sequence[Group]) -> Program:
    """Return a program in the order of its groups; a shared equation runs with its first group."""
    order = dict.fromkeys(index for part in parts for index in part)
    return replace(program, equations=tuple(program.equations[index] for index in order))


def agreement(row: Row, field: str) -> tuple[float, float]:
    """Return the rank correlation of predicted and measured bytes, and the error, in %.

    The correlation is Spearman's; NaN if all orders need the same memory. Differences below
    `RESOLUTION` count as ties. The error is the median of absolute values.
    """
    measured = np.array([order.measured for order in row.orders], np.float64)
    predicted = np.array([getattr(order, field) for order in row.orders], np.float64)
    error = 100 * float(np.median(np.abs(predicted / measured - 1)))
    ranked = [np.round(values / (RESOLUTION * measured.min())) for values in (predicted, measured)]  # type: ignore[call-overload]
    if any(np.ptp(values) == 0 for values in ranked):
        return float("nan"), error
    return float(stats.spearmanr(*ranked).statistic), error


def run(name: str, settings: Settings) -> dict[str, Any]:
    """Return measured and predicted memory of a model in several orders, as JSON values."""
    row = measure(name, MODELS[name](), settings)
    return {**row._asdict(), "orders": [order._asdict() for order in row.orders]}


def main(settings: Settings) -> None:
    """Measure all models, print the table and save it."""
    made = {name: partial(run, name, settings) for name in settings.models}
    found = [
        Row(**row | {"orders": tuple(Order(**order) for order in row["orders"])})
        for row in store.collect(settings, "prediction.json", made, "models")
    ]
    columns = (
        *("model", "equations", "kernels", "least measured", "most, %"),
        *("rank correlation, equations", "error, %"),
        *("rank correlation, kernels", "error, %"),
    )
    tables.show(
        f"Memory beside arguments in {settings.orders} orders, predicted and measured",
        columns,
        [_cells(row) for row in found],
        settings.folder / "table.md",
    )


def _cells(row: Row) -> tuple[Any, ...]:
    measured = [order.measured for order in row.orders]
    cells = []
    for field in ("equations", "kernels"):
        correlation, error = agreement(row, field)
        cells += ["" if np.isnan(correlation) else f"{correlation:.2f}", f"{error:.1f}"]
    most = f"{100 * (max(measured) / min(measured) - 1):+.0f}"
    return row.name, row.equations, row.kernels, format_bytes(min(measured)), most, *cells


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1)
