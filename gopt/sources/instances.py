"""Convert scheduling instances and profiled networks, as parsed from JSON, to graphs."""

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from gopt.cost import hardware as machines
from gopt.cost.hardware import Hardware
from gopt.graph.graph import Graph, Op, Output, from_ops, topological_order

_MAX_PROCESSORS = 1024  # a machine has a link between each two


class Instance(NamedTuple):
    """A benchmark instance. Ops are in topological order; tasks need not be. `N` ops.

    Attributes:
      graph: computation graph.
      hardware: machine.
      seconds: float64 `[N]`; time of each op, s.
      task: int32 `[N]`; task of each op.
    """

    graph: Graph
    hardware: Hardware
    seconds: np.ndarray
    task: np.ndarray


def makespan_instance(instance: Mapping[str, Any], processors: int) -> Instance:
    """Return an instance of P | prec, c_ij | Cmax on identical processors.

    Each edge is a tensor of as many bytes as its cost in s. The machine has latency 0, bandwidth
    1 byte/s, and links without contention.

    Args:
      instance: "tasks", a time per task in s; "edges", `[u, v]` or `[u, v, cost]` with a whole
        number of seconds.
      processors: number of processors.

    Raises:
      ValueError: a key is missing, a value is invalid, or the edges form a cycle. The message
        names the key and the index.
    """
    is_whole = isinstance(processors, Integral) and not isinstance(processors, bool)
    if not is_whole or not 1 <= processors <= _MAX_PROCESSORS:
        shown = repr(processors)[:40]
        raise ValueError(f"processors is {shown}: expected a whole number in 1..{_MAX_PROCESSORS}")
    tasks = _numbers(instance, "tasks")
    edges = _edges(instance, len(tasks))
    outputs: list[list[Output]] = [[] for _ in tasks]
    inputs: list[list[tuple[int, int]]] = [[] for _ in tasks]
    for index, (u, v, cost) in enumerate(edges):
        if not cost.is_integer():
            raise ValueError(f"edges[{index}] costs {cost}: expected a whole number")
        inputs[v].append((u, len(outputs[u])))
        outputs[u].append(Output(size=cost))
    graph, task = _graph(inputs, outputs)
    return Instance(graph, machines.ideal(processors), np.asarray(tasks)[task], task)


def peak_memory_instance(instance: Mapping[str, Any]) -> Instance:
    """Return a one-device instance in which each step holds its inputs and its output.

    Sources are ordinary ops, sinks are pinned, and each step takes 1 s.

    Args:
      instance: "sizes", the bytes each task makes; "edges", `[u, v]` pairs.

    Raises:
      ValueError: a key is missing, a value is invalid, or the edges form a cycle. The message
        names the key and the index.
    """
    graph, task = _memory_graph(instance)
    return Instance(graph, machines.ideal(1), np.ones(len(task)), task)


def recompute_instance(instance: Mapping[str, Any]) -> Instance:
    """Return a one-device instance whose tasks may run again, to fit into the device's memory.

    Memory is as in `peak_memory_instance`.

    Args:
      instance: "sizes", the bytes each task makes; "times", the time of a run of each task in s;
        "edges", `[u, v]` pairs; "budget", the memory of the device in bytes.

    Raises:
      ValueError: as in `peak_memory_instance`; or the budget holds nothing.
    """
    graph, task = _memory_graph(instance)
    times = _numbers(instance, "times")
    if len(times) != len(task):
        raise ValueError(f"times has {len(times)} entries: expected {len(task)}")
    budget = _number(instance.get("budget"), "budget")
    if not budget:
        raise ValueError("budget is 0: expected a positive number of bytes")
    hardware = machines.ideal(1)._replace(capacity=np.array([budget]))
    return Instance(graph, hardware, np.asarray(times)[task], task)


def _memory_graph(instance: Mapping[str, Any]) -> tuple[Graph, np.ndarray]:
    """Return the graph of tasks with sizes, and the task of each op."""
    sizes = _numbers(instance, "sizes")
    for index, size in enumerate(sizes):
        if not size.is_integer():
            raise ValueError(f"sizes[{index}] is {size}: expected whole bytes")
    edges = _edges(instance, len(sizes))
    sinks = set(range(len(sizes))) - {u for u, _, _ in edges}
    outputs = [[Output(size=size, pinned=u in sinks)] for u, size in enumerate(sizes)]
    inputs: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for u, v, _ in edges:
        inputs[v].append((u, 0))
    return _graph(inputs, outputs)


class Profiled(NamedTuple):
    """A training step of a profiled network. Ops are in topological order; layers need not be.

    Attributes:
      graph: computation graph of `N` ops.
      names: name per op, `[N]`, such as `jvp(network)/layer/forward`.
      seconds: float64 `[N]`; profiled time of each op, s.
    """

    graph: Graph
    names: tuple[str, ...]
    seconds: np.ndarray


def profiled_step(network: Mapping[str, Any]) -> Profiled:
    """Return a training step of a network with profiled layers.

    A layer is a forward and a backward op. The backward op reads the layer's activation and, from
    each consumer of the layer, a gradient of the same size. Both ops read the layer's parameters,
    an input, if it has any. Parameter gradients are pinned. Other ops are of kind "unknown".

    The profile omits loss, optimizer, in-place layers, and the layers that keep their inputs. So
    peak memory means little.

    Args:
      network: "nodes", each a layer with "forward_ms", "backward_ms", "activation_bytes" (its
        output) and "parameter_bytes"; "edges", `[u, v]` pairs.

    Raises:
      ValueError: a key is missing, a value is invalid, or the edges form a cycle. The message
        names the key and the index.
    """
    nodes = _rows(network, "nodes", "layers")
    for k, node in enumerate(nodes):
        if not isinstance(node, Mapping):
            raise ValueError(f"nodes[{k}] is {node!r}: expected a layer, by names of its figures")
    fields = ("forward_ms", "backward_ms", "activation_bytes", "parameter_bytes")
    each = {key: [node.get(key, math.nan) for node in nodes] for key in fields}
    forward, backward, made, held = (_numbers(each, key) for key in fields)
    for key, sizes in (("activation_bytes", made), ("parameter_bytes", held)):
        for k, size in enumerate(sizes):
            if not size.is_integer():
                raise ValueError(f"{key}[{k}] is {size}: expected whole bytes")
    readers: list[list[int]] = [[] for _ in nodes]
    for u, v, _ in _edges(network, len(nodes)):
        readers[u].append(v)
    count = len(nodes)
    weights = [k for k, size in enumerate(held) if size]
    weight = {k: 2 * count + place for place, k in enumerate(weights)}

    inputs: list[list[tuple[int, int]]] = [[] for _ in range(2 * count + len(weights))]
    outputs: list[list[Output]] = [[Output(size=size)] for size in made]
    outputs += [[Output(size=held[k], pinned=True)] if k in weight else [] for k in range(count)]
    outputs += [[Output(size=held[k])] for k in weights]
    for u, every in enumerate(readers):
        inputs[count + u].append((u, 0))
        for v in every:
            inputs[v].append((u, 0))
            inputs[count + u].append((count + v, len(outputs[count + v])))
            outputs[count + v].append(Output(size=made[u]))
        if u in weight:
            inputs[u].append((weight[u], 0))
            inputs[count + u].append((weight[u], 0))
    graph, task = _graph(inputs, outputs, ["unknown"] * 2 * count + ["input"] * len(weights))
    names = [
        *(f"jvp(network)/{k}/forward" for k in range(count)),
        *(f"transpose(jvp(network))/{k}/backward" for k in range(count)),
        *(f"{k}/parameters" for k in weights),
    ]
    seconds = np.array([*forward, *backward, *[0.0] * len(weights)]) / 1000
    return Profiled(graph, tuple(names[k] for k in task), seconds[task])


def _graph(
    inputs: Sequence[Sequence[tuple[int, int]]],
    outputs: Sequence[Sequence[Output]],
    kinds: Sequence[str] = (),
) -> tuple[Graph, np.ndarray]:
    kinds = kinds or ["unknown"] * len(inputs)
    ops = [
        Op(kind, tuple(reads), tuple(makes))
        for kind, reads, makes in zip(kinds, inputs, outputs, strict=True)
    ]
    try:
        task = topological_order(ops)
    except ValueError as error:
        raise ValueError(f"edges form a cycle: {error}") from error
    return from_ops(ops), np.asarray(task, np.int32)


def _rows(instance: Mapping[str, Any], key: str, what: str) -> list[Any]:
    """Return a list of an instance."""
    if not isinstance(instance, Mapping):
        raise ValueError(f"instance has type {type(instance).__name__}: expected lists by name")
    if key not in instance:
        raise ValueError(f"instance has no {key!r}: expected {what}")
    rows = instance[key]
    if not isinstance(rows, list | tuple | np.ndarray):
        raise ValueError(f"{key} has type {type(rows).__name__}: expected {what}")
    return list(rows)


def _number(value: Any, where: str) -> float:
    if isinstance(value, Real) and not isinstance(value, bool | np.bool):
        try:
            number = float(value)
        except OverflowError:  # an integer above all floats
            number = math.inf
        if math.isfinite(number) and number >= 0:
            return number
    shown = str(value) if isinstance(value, int | float) and abs(value) < 1e99 else repr(value)[:40]
    raise ValueError(f"{where} is {shown}: expected a finite number, not negative")


def _numbers(instance: Mapping[str, Any], key: str) -> list[float]:
    rows = _rows(instance, key, "a number for each task")
    values = [_number(value, f"{key}[{index}]") for index, value in enumerate(rows)]
    if not values:
        raise ValueError(f"{key} is empty: expected at least one task")
    return values


def _edges(instance: Mapping[str, Any], count: int) -> list[tuple[int, int, float]]:
    edges = []
    for index, edge in enumerate(_rows(instance, "edges", "[u, v] or [u, v, cost] rows")):
        is_row = isinstance(edge, list | tuple | np.ndarray) and len(edge) in (2, 3)
        if not is_row or not all(_is_task(u, count) for u in edge[:2]):
            raise ValueError(
                f"edges[{index}] is {edge!r}: expected [u, v] or [u, v, cost], tasks in "
                f"0..{count - 1}"
            )
        cost = _number(edge[2], f"edges[{index}][2]") if len(edge) == 3 else 0.0
        edges.append((int(edge[0]), int(edge[1]), cost))
    return edges


def _is_task(value: Any, count: int) -> bool:
    is_whole = isinstance(value, Integral) and not isinstance(value, bool | np.bool)
    return is_whole and 0 <= int(value) < count
