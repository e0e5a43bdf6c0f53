"""Read TensorFlow `CostGraphDef` text as computation graphs with measured times.

This is the format of the public synthetic set of REGAL (Paliwal et al., ICLR 2020), and of the
cost graphs that TensorFlow 1 writes. Fields are read as in `cost_graph.proto`, and as
`CostModel::AddToCostGraphDef` fills them:

- The text is a `CostGraphDef`, or a `RunMetadata` with one as its `cost_graph`.
- `compute_cost` is in microseconds, the unit of TensorFlow's cost model. The format has no flop
  counts; pass the times to `gopt.cost.schedule.problem.prepare(..., seconds=...)`.
- TensorFlow writes -1 for a size or time that it never measured, because the op did not run. It
  counts 0.
- Ids are unique in a partition, the ops of one device. A partition begins at a second `_SOURCE`, or
  where the first id comes again under another name. Partitions are not connected: the text does
  not say which op receives the tensor that another one sends.
- An output is a tensor of `size` bytes. An alias holds no memory: its consumers also read the
  tensor at the end of the chain of aliases. proto3 text omits zeros. So if any output states
  `alias_input_port` (TensorFlow states -1 for "no alias"), a missing one means port 0; if none
  does, nothing is an alias.
- `temporary_memory_size` is the workspace. `persistent_memory_size` is a pinned tensor without
  consumers. `is_final` pins the outputs. Other memory fields and `device` are ignored.
- A control input is a use of a tensor of 0 bytes.
- The format has no op types. An op is an "input" if its name ends in `_SOURCE`, `_Arg`, `_arg_...`
  or `Placeholder...`. It must also cost no time, read nothing, and wait for nothing but `_SOURCE`.
  All other ops are "unknown".
"""

import graphlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gopt.graph.graph import Graph, Op, Output, from_ops, topological_order
from gopt.sources import text_format
from gopt.sources.text_format import INT32, Kind, Record

_INPUT = re.compile(r"(.*/)?(_SOURCE|_Arg|_arg_.*|Placeholder(WithDefault)?)(_\d+)*")
_DTYPES = {
    **{"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16", "DT_BOOL": "bool"},
    **{f"DT_INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"DT_UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{"DT_BFLOAT16": "bfloat16", "DT_COMPLEX64": "complex64"},
}


_SIZE, _PORT = range(-1, 2**63), range(2**31)  # a size of -1 was never measured
_SHAPE = {"dim": [{"size": _SIZE, "name": Kind.STRING}], "unknown_rank": Kind.BOOL}
_OUTPUT = {
    **{"size": _SIZE, "alias_input_port": range(-(2**63), 2**63)},
    **{"shape": _SHAPE, "dtype": Kind.ENUM},
}
_NODE = {
    **{"name": Kind.STRING, "device": Kind.STRING, "id": INT32, "output_info": [_OUTPUT]},
    "input_info": [{"preceding_node": INT32, "preceding_port": _PORT}],
    **{"control_input": [INT32], "is_final": Kind.BOOL, "inaccurate": Kind.BOOL},
    **dict.fromkeys(("temporary_memory_size", "persistent_memory_size", "compute_cost"), _SIZE),
    **dict.fromkeys(("host_temp_memory_size", "device_temp_memory_size"), _SIZE),
    **dict.fromkeys(("device_persistent_memory_size", "compute_time", "memory_time"), _SIZE),
}
_COST_GRAPH = {"node": [_NODE], "cost": [{"cost": Kind.FLOAT, "dimension": Kind.STRING}]}
_RUN_METADATA = {"cost_graph": [_COST_GRAPH]} | dict.fromkeys(
    ("step_stats", "partition_graphs", "function_graphs", "session_metadata"), Kind.ANY
)


class CostGraph(NamedTuple):
    """A graph and the time of each op. `N` ops.

    Attributes:
      graph: computation graph.
      seconds: float64 `[N]`; time of each op, s.
    """

    graph: Graph
    seconds: np.ndarray


Ref = tuple[int, int]  # (index of the node, index of its output)


@dataclass
class _Node:
    """A node of the text.

    Attributes:
      record: values of its fields.
      name: name of the node.
      outputs: values of its outputs.
      inputs: outputs of other nodes that it reads.
      controls: indices of nodes that must run first.
    """

    record: Record
    name: str
    outputs: list[Record]
    inputs: list[Ref]
    controls: list[int]

    def error(self, what: str) -> ValueError:
        return ValueError(f"line {self.record.line}: node {self.name!r}: {what}")

    def size(self, field: str) -> int:
        """Return a number of bytes or µs, 0 if it was never measured."""
        return max(self.record.values.get(field, 0), 0)


def load(path: str | os.PathLike[str]) -> CostGraph:
    """Return the graph and op times of a file of `CostGraphDef` text, see `parse`.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: as in `parse`, or the file is not UTF-8.
    """
    content = Path(path).read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = content[error.start : error.end]
        raise ValueError(f"line {line}: {wrong!r}: expected text in UTF-8") from None
    return parse(text)


def parse(text: str) -> CostGraph:
    """Return the graph and op times of `CostGraphDef` text.

    Raises:
      ValueError: the text is truncated or malformed, an id occurs twice in a partition, a number is
        negative, or the nodes form a cycle. Or an input names a missing node or port. The message
        names the line and, if there is one, the node.
    """
    nodes = _nodes(text)
    _check_cycles(nodes)
    inputs = {index for index, node in enumerate(nodes) if _is_input(node, nodes)}
    ends = _ends(nodes)
    # Inputs are available before anything runs, so no op waits for one.
    controls = [
        [c for c in node.controls if c not in inputs and index not in inputs]
        for index, node in enumerate(nodes)
    ]
    final = [
        (index, port)
        for index, node in enumerate(nodes)
        if node.record.values.get("is_final", False)
        for port in range(len(node.outputs))
    ]
    pinned = {*final, *(ends[output] for output in final)}
    awaited = {c for before in controls for c in before}

    ops = []
    for index, node in enumerate(nodes):
        outputs = [
            _output(node, port, alias=ref != ends[ref], pinned=ref in pinned)
            for port in range(len(node.outputs))
            for ref in [(index, port)]
        ]
        if index in awaited:
            outputs.append(Output(0))
        if persistent := node.size("persistent_memory_size"):
            outputs.append(Output(persistent, pinned=True))
        waits = ((c, len(nodes[c].outputs)) for c in controls[index])
        ops.append(
            Op(
                kind="input" if index in inputs else "unknown",
                inputs=(*_reads(node, ends), *waits),
                outputs=tuple(outputs),
                workspace=node.size("temporary_memory_size"),
            )
        )
    costs = np.array([node.size("compute_cost") for node in nodes], np.float64)
    return CostGraph(from_ops(ops), costs[topological_order(ops)] * 1e-6)


def _nodes(text: str) -> list[_Node]:
    message = text_format.parse(text)
    if "cost_graph" in message.fields:
        graphs = text_format.read(message, _RUN_METADATA).values["cost_graph"]
    else:
        graphs = [text_format.read(message, _COST_GRAPH)]
    nodes: list[_Node] = []
    for graph in graphs:
        for partition in _partitions(graph.values["node"]):
            _resolve(partition, len(nodes))
            nodes += partition.values()
    if not nodes:
        raise ValueError("the text has no field `node`: expected CostGraphDef text")
    for node in nodes:
        for source, port in node.inputs:
            if port >= len(nodes[source].outputs):
                raise nodes[source].error(
                    f"there is no output_info for port {port}, which {node.name!r} reads"
                )
    return nodes


def _partitions(records: list[Record]) -> list[dict[int, _Node]]:
    """Return the nodes of each partition by id."""
    partitions: list[dict[int, _Node]] = []
    names: set[str] = set()
    for record in records:
        id, name = record.values.get("id", 0), record.values.get("name", "")
        node = _Node(record, name, record.values["output_info"], [], [])
        restarts = not partitions or (name == "_SOURCE" and name in names)
        if restarts or (id == next(iter(partitions[-1])) and name not in names):
            partitions.append({})
            names = set()
        if id in partitions[-1]:
            other = partitions[-1][id]
            raise node.error(f"id {id} is taken by {other.name!r}, line {other.record.line}")
        partitions[-1][id] = node
        names.add(name)
    return partitions


def _resolve(partition: dict[int, _Node], first: int) -> None:
    """Fill in the inputs of the nodes of a partition, whose indices begin at `first`."""
    index = {id: k for k, id in enumerate(partition, first)}
    for node in partition.values():
        reads = [read.values for read in node.record.values["input_info"]]
        sources = [read.get("preceding_node", 0) for read in reads]
        for source in (*sources, *node.record.values["control_input"]):
            if source not in index:
                raise node.error(f"it reads from node {source}: there is no node with that id")
        ports = (read.get("preceding_port", 0) for read in reads)
        node.inputs = [*zip((index[source] for source in sources), ports, strict=True)]
        node.controls = [index[source] for source in node.record.values["control_input"]]


def _check_cycles(nodes: list[_Node]) -> None:
    before = {k: {*node.controls, *(s for s, _ in node.inputs)} for k, node in enumerate(nodes)}
    try:
        graphlib.TopologicalSorter(before).prepare()
    except graphlib.CycleError as error:
        cycle = " → ".join(repr(nodes[index].name) for index in error.args[1][:5])
        raise nodes[error.args[1][0]].error(f"it is on a cycle: {cycle}") from None


def _is_input(node: _Node, nodes: list[_Node]) -> bool:
    named = _INPUT.fullmatch(node.name) is not None
    first = all(nodes[c].name == "_SOURCE" for c in node.controls)
    return named and first and not node.inputs and node.size("compute_cost") == 0


def _ends(nodes: list[_Node]) -> dict[Ref, Ref]:
    """Return the tensor at the end of the aliases of each output, or else itself."""
    stated = any("alias_input_port" in o.values for node in nodes for o in node.outputs)
    aliases: dict[Ref, Ref] = {}
    for index, node in enumerate(nodes):
        for port, output in enumerate(node.outputs):
            alias = output.values.get("alias_input_port", 0) if stated else -1
            if alias >= len(node.inputs) and alias > 0:
                raise node.error(f"output_info {port} is an alias of input {alias}: there is none")
            if 0 <= alias < len(node.inputs):
                aliases[index, port] = node.inputs[alias]
    ends: dict[Ref, Ref] = {}
    for index, node in enumerate(nodes):
        for port in range(len(node.outputs)):
            chain: list[Ref] = []
            ref = (index, port)
            while ref not in ends and ref in aliases:  # nodes form no cycle, so chains end
                chain.append(ref)
                ref = aliases[ref]
            ends |= dict.fromkeys((*chain, ref), ends.get(ref, ref))
    return ends


def _reads(node: _Node, ends: dict[Ref, Ref]) -> Iterator[Ref]:
    for read in node.inputs:
        yield read
        if ends[read] != read:
            yield ends[read]


def _output(node: _Node, port: int, *, alias: bool, pinned: bool) -> Output:
    values = node.outputs[port].values
    shape = values["shape"].values if "shape" in values else {"dim": []}
    dims = [dim.values.get("size", 0) for dim in shape["dim"]]
    size, dtype = values.get("size", 0), values.get("dtype", "").removesuffix("_REF")
    return Output(
        size=0 if alias else max(size, 0),
        shape=tuple(dims) if min(dims, default=0) >= 0 else (),
        dtype=_DTYPES.get(dtype, "unknown"),
        pinned=pinned,
    )
