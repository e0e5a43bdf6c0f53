"""Read TensorFlow `CostGraphDef` text as computation graphs with measured times.

This is the format of the public synthetic set of REGAL (Paliwal et al., ICLR 2020), and of the
cost graphs that TensorFlow 1 writes. Fields are read as in `cost_graph.proto`, and as
`CostModel::AddToCostGraphDef` fills them:

- `compute_cost` is in microseconds, the unit of TensorFlow's cost model. The format has no flop
  counts; pass the times to `gopt.cost.schedule.problem.prepare(..., seconds=...)`.
- An output is a tensor of `size` bytes. An alias holds no memory: its consumers also read the
  aliased tensor. proto3 text omits zeros. So if any output states `alias_input_port` (TensorFlow
  states -1 for "no alias"), a missing one means port 0; if none does, nothing is an alias.
- `temporary_memory_size` is the workspace. `persistent_memory_size` is a pinned tensor without
  consumers. `is_final` pins the outputs. Other memory fields and `device` are ignored.
- A control input is a use of a tensor of 0 bytes.
- The format has no op types. An op is an "input" if its name ends in `_SOURCE`, `_Arg`, `_arg_...`
  or `Placeholder...`. It must also cost no time, read nothing, and wait for nothing but `_SOURCE`.
  All other ops are "unknown".
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gopt.graph.graph import Graph, Op, Output, from_ops, topological_order
from gopt.sources import text_format
from gopt.sources.text_format import Message

_INPUT = re.compile(r"(.*/)?(_SOURCE|_Arg|_arg_.*|Placeholder(WithDefault)?)(_\d+)*")
_DTYPES = {
    **{"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16", "DT_BOOL": "bool"},
    **{f"DT_INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"DT_UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{"DT_BFLOAT16": "bfloat16", "DT_COMPLEX64": "complex64"},
}


class CostGraph(NamedTuple):
    """A graph and the time of each op. `N` ops.

    Attributes:
      graph: computation graph.
      seconds: float64 `[N]`; time of each op, s.
    """

    graph: Graph
    seconds: np.ndarray


Ref = tuple[int, int]  # (id of the node, index of its output)


@dataclass(frozen=True)
class _Node:
    """A node of the text.

    Attributes:
      message: message that describes the node.
      name: name of the node.
      inputs: outputs of other nodes that it reads.
      outputs: messages of its outputs.
      controls: ids of nodes that must run first.
      cost: compute time, µs.
    """

    message: Message
    name: str
    inputs: list[Ref]
    outputs: list[Message]
    controls: list[int]
    cost: int

    def error(self, what: str) -> ValueError:
        return ValueError(f"line {self.message.line}: node {self.name!r}: {what}")

    def count(self, field: str) -> int:
        value = self.message.integer(field, 0)
        if value < 0:
            raise self.error(f"{field} is {value}: expected a number that is not negative")
        return value


def load(path: str | os.PathLike[str]) -> CostGraph:
    """Return the graph and op times of a file of `CostGraphDef` text, see `parse`."""
    return parse(Path(path).read_text())


def parse(text: str) -> CostGraph:
    """Return the graph and op times of `CostGraphDef` text.

    Raises:
      ValueError: the text is truncated or malformed, an id occurs twice, a number is negative, or
        the nodes form a cycle. Or an input names a missing node or port, or a tensor of unknown
        size. The message names the line and, if there is one, the node.
    """
    nodes = _nodes(text_format.parse(text))
    number = {id: index for index, id in enumerate(nodes)}
    inputs = {id for id, node in nodes.items() if _is_input(node, nodes)}
    aliases = _aliases(nodes)
    # Inputs are available before anything runs, so no op waits for one.
    controls = {
        id: [c for c in node.controls if c not in inputs and id not in inputs]
        for id, node in nodes.items()
    }
    reads = {id: [*_reads(node, nodes, aliases)] for id, node in nodes.items()}
    final = [
        (id, port)
        for id, node in nodes.items()
        if node.message.string("is_final", "") in ("true", "True", "t", "1")
        for port in range(len(node.outputs))
    ]
    pinned = {ref for output in final for ref in _held(output, aliases)}
    awaited = {c for before in controls.values() for c in before}

    ops = []
    for id, node in nodes.items():
        outputs = [
            _output(node, port, alias=(id, port) in aliases, pinned=(id, port) in pinned)
            for port in range(len(node.outputs))
        ]
        if id in awaited:
            outputs.append(Output(0))
        if persistent := node.count("persistent_memory_size"):
            outputs.append(Output(persistent, pinned=True))
        waits = [(number[c], len(nodes[c].outputs)) for c in controls[id]]
        ops.append(
            Op(
                kind="input" if id in inputs else "unknown",
                inputs=(*((number[i], port) for i, port in reads[id]), *waits),
                outputs=tuple(outputs),
                workspace=node.count("temporary_memory_size"),
            )
        )
    costs = np.array([node.cost for node in nodes.values()], np.float64)
    return CostGraph(from_ops(ops), costs[topological_order(ops)] * 1e-6)


def _nodes(graph: Message) -> dict[int, _Node]:
    nodes: dict[int, _Node] = {}
    for message in graph.messages("node"):
        node = _Node(
            message=message,
            name=message.string("name", ""),
            inputs=[
                (read.integer("preceding_node", 0), read.integer("preceding_port", 0))
                for read in message.messages("input_info")
            ],
            outputs=message.messages("output_info"),
            controls=message.integers("control_input"),
            cost=message.integer("compute_cost", 0),
        )
        id = message.integer("id", 0)
        if id in nodes:
            other = nodes[id]
            raise node.error(f"id {id} is taken by {other.name!r}, line {other.message.line}")
        node.count("compute_cost")
        nodes[id] = node
    if not nodes:
        raise ValueError("the text has no field `node`: expected CostGraphDef text")
    for node in nodes.values():
        for source in [*(source for source, _ in node.inputs), *node.controls]:
            if source not in nodes:
                raise node.error(f"it reads from node {source}: there is no node with that id")
    return nodes


def _is_input(node: _Node, nodes: dict[int, _Node]) -> bool:
    named = _INPUT.fullmatch(node.name) is not None
    first = all(nodes[c].name == "_SOURCE" for c in node.controls)
    return named and first and not node.inputs and node.cost == 0


def _aliases(nodes: dict[int, _Node]) -> dict[Ref, Ref]:
    """Return the aliased tensor of each output that is an alias."""
    stated = any("alias_input_port" in o.fields for node in nodes.values() for o in node.outputs)
    aliases = {}
    for id, node in nodes.items():
        for port, output in enumerate(node.outputs):
            alias = output.integer("alias_input_port", 0) if stated else -1
            if alias >= len(node.inputs) and alias > 0:
                raise node.error(f"output_info {port} is an alias of input {alias}: there is none")
            if 0 <= alias < len(node.inputs):
                aliases[id, port] = node.inputs[alias]
    return aliases


def _held(ref: Ref, aliases: dict[Ref, Ref]) -> list[Ref]:
    """Return an output, the output it is an alias of, and so on."""
    chain = [ref]
    while chain[-1] in aliases and aliases[chain[-1]] not in chain:
        chain.append(aliases[chain[-1]])
    return chain


def _reads(node: _Node, nodes: dict[int, _Node], aliases: dict[Ref, Ref]) -> Iterator[Ref]:
    for read in node.inputs:
        for source, port in _held(read, aliases):
            outputs = nodes[source].outputs
            if not 0 <= port < len(outputs):
                raise nodes[source].error(
                    f"there is no output_info for port {port}, which {node.name!r} reads"
                )
            if outputs[port].integer("size", 0) < 0 and (source, port) not in aliases:
                raise nodes[source].error(
                    f"the size of port {port}, which {node.name!r} reads, is not known"
                )
            yield source, port


def _output(node: _Node, port: int, *, alias: bool, pinned: bool) -> Output:
    info = node.outputs[port]
    dims = [d.integer("size", 0) for s in info.messages("shape") for d in s.messages("dim")]
    dtype = info.string("dtype", "").removesuffix("_REF")
    return Output(
        size=0 if alias else max(info.integer("size", 0), 0),  # -1: never measured, never read
        shape=tuple(dims) if min(dims, default=0) >= 0 else (),
        dtype=_DTYPES.get(dtype, "unknown"),
        pinned=pinned,
    )
