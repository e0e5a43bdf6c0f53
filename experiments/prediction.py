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
from typing import Any

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


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Return the bytes that several orders of a model need, without arguments.

    "measured" are planned by XLA, "equations" and "kernels" predicted. "share" is the share of
    chance in each order: 0 is the best heuristic order, 1 a random one.
    """
    case = MODELS[name]()
    traced = trace_program(case.fn, *case.args, donate_argnums=case.donated)
    kernels = kernels_of(traced, merged=True)
    part_of = dict(zip(map(id, kernels.program.equations), kernels.groups, strict=True))
    graph = kernel_graph(kernels.program, kernels.workspace, {})
    rows = []
    for share, order in drawn(kernels, graph, settings.orders, settings.seed):
        compiled = jit_ordered(order).lower(*case.args).compile()
        expanded = _expanded(kernels.source, [part_of[id(kernel)] for kernel in order.equations])
        rows.append(
            {
                "share": share,
                "measured": memory(compiled).without_arguments,
                "equations": peak_beside_inputs(from_program(expanded).graph),
                "kernels": beside(order, kernels.workspace),
            }
        )
    return {"name": name} | {key: [row[key] for row in rows] for key in rows[0]}


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


def agreement(measured: Any, predicted: Any) -> tuple[float, float]:
    """Return the rank correlation of measured and predicted bytes, and the error, in %.

    The correlation is Spearman's; NaN if all orders need the same memory. Differences below
    `RESOLUTION` count as ties. The error is the median of absolute values.
    """
    values = np.array([measured, predicted], np.float64)
    error = 100 * float(np.median(np.abs(values[1] / values[0] - 1)))
    ranked = np.round(values / (RESOLUTION * values[0].min()))
    if (np.ptp(ranked, axis=1) == 0).any():
        return float("nan"), error
    return float(stats.spearmanr(*ranked).statistic), error


def main(settings: Settings) -> None:
    """Measure all models, print the table and save it."""
    made = {name: partial(measure, name, settings) for name in settings.models}
    found = store.collect(settings, "prediction.json", made, "models")
    for row in found:
        for by in ("equations", "kernels"):
            row[f"ranks of {by}"], row[f"error of {by}"] = agreement(row["measured"], row[by])
    tables.show_rows(
        f"Memory beside arguments in {settings.orders} orders, predicted and measured",
        found,
        (
            ("model", "name"),
            ("least measured", lambda row: format_bytes(min(row["measured"]))),
            (
                "most, %",
                lambda row: f"{100 * (max(row['measured']) / min(row['measured']) - 1):+.0f}",
            ),
            ("rank correlation, equations", "{ranks of equations:.2f}"),
            ("error, %", "{error of equations:.1f}"),
            ("rank correlation, kernels", "{ranks of kernels:.2f}"),
            ("error, %", "{error of kernels:.1f}"),
        ),
        settings.folder / "table.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1)
