"""Stages: what the devices of a placement do, one thing after another.

What runs on a device one after another, with nothing sent to it or from it meanwhile, can be one
stage: a function of its own, inside which XLA fuses and keeps the order.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Var

from gopt.graph.tracing import TracedGraph
from gopt.program.equations import Atom, aval_of, variables
from gopt.program.program import Program

Place = tuple[int, int]  # a tensor, and the device on which it is


class Transfer(NamedTuple):
    """A tensor that goes to another device: output number `output` of op number `op`."""

    before: int  # op that runs next, wherever
    op: int
    output: int
    device: int  # where it goes


class Stage(NamedTuple):
    """Kernels that run as one function."""

    device: int
    ops: tuple[int, ...]
    reads: tuple[int, ...]  # tensors
    makes: tuple[int, ...]  # tensors that are read later or returned


class Send(NamedTuple):
    """A tensor that is sent."""

    tensor: int
    source: int
    device: int


class Tensors:
    """The graph of a program of kernels as lists, and the programs of some of its ops.

    Attributes:
      num_sources: number of ops that are arguments and captured arrays. They come first, with one
        tensor each, so op and tensor have the same number.
      sources: the sources that are read or stay.
      first: first tensor of each op; then the number of tensors.
      reads: tensors that each op reads.
      made: variable of each tensor.
      producer: op that produces each tensor.
      size: bytes of each tensor.
      pinned: whether each tensor stays where it is made.
    """

    def __init__(self, traced: TracedGraph):
        graph, program = traced.graph, traced.program
        ops, tensors = int(graph.num_ops), int(graph.num_tensors)
        self.num_sources = sum(index < 0 for index in traced.equations)
        self.producer: list[int] = np.asarray(graph.producer)[:tensors].tolist()
        self.first: list[int] = np.searchsorted(self.producer, range(ops + 1)).tolist()
        self.size: list[int] = np.asarray(graph.size)[:tensors].astype(int).tolist()
        self.pinned: list[bool] = np.asarray(graph.pinned)[:tensors].tolist()
        self.reads: list[list[int]] = [[] for _ in range(ops)]
        uses = int(graph.num_uses)
        for tensor, reader in zip(graph.tensor[:uses], graph.consumer[:uses], strict=True):
            self.reads[int(reader)].append(int(tensor))
        read = {tensor for reads in self.reads for tensor in reads}
        self.sources = [k for k in range(self.num_sources) if k in read or self.pinned[k]]
        self._kernels = [program.equations[index] for index in traced.equations if index >= 0]
        self.made: list[Var] = [*program.inputs, *program.constants]
        self.made += [v for kernel in self._kernels for v in kernel.outvars]
        views = set(range(len(program.equations))) - set(traced.equations)
        self._view = {v: program.equations[k] for k in views for v in program.equations[k].outvars}

    def program_of(self, stage: Stage) -> Program:
        """Return a stage as a program, with the views that it reads."""
        equations: dict[int, JaxprEqn] = {}
        for op in stage.ops:
            kernel = self._kernels[op - self.num_sources]
            for needed in (*self._views(kernel.invars), kernel):
                equations.setdefault(id(needed), needed)
        inputs = tuple(self.made[tensor] for tensor in stage.reads)
        return Program(
            equations=tuple(equations.values()),
            inputs=inputs,
            outputs=tuple(self.made[tensor] for tensor in stage.makes),
            constants=(),
            values=(),
            donated=(False,) * len(inputs),
            weak=tuple(aval_of(self.made[tensor]).weak_type for tensor in stage.makes),
            in_tree=jax.tree.structure(tuple(inputs)),
            out_tree=jax.tree.structure(list(stage.makes)),
        )

    def _views(self, atoms: Sequence[Atom]) -> Iterator[JaxprEqn]:
        """Yield the views that variables are made of, the first ones first."""
        for v in variables(atoms):
            if v in self._view:
                yield from self._views(self._view[v].invars)
                yield self._view[v]


def check_transfers(tensors: Tensors, device: Sequence[int], transfers: Sequence[Transfer]) -> None:
    """Checks that every op finds what it reads on its device.

    Raises:
      ValueError: a transfer is of no tensor, too early, out of order, or not needed, or an op reads
        what is not there; the message names it.
    """
    there: dict[Place, int] = {}  # the op before which a tensor comes to a device
    latest = 0
    for k, sent in enumerate(transfers):
        op, before = sent.op, sent.before
        if not 0 <= op < len(tensors.reads) or not op < before <= len(tensors.reads):
            raise ValueError(f"transfers[{k}] is {tuple(sent)}: expected one of an op that has run")
        tensor = tensors.first[op] + sent.output
        if not tensors.first[op] <= tensor < tensors.first[op + 1]:
            raise ValueError(f"transfers[{k}] is {tuple(sent)}: op {op} has no such output")
        if before < latest or sent.device == device[op] or (tensor, sent.device) in there:
            raise ValueError(f"transfers[{k}] is {tuple(sent)}: out of order, or not needed")
        there[tensor, sent.device] = latest = before
    for op, reads in enumerate(tensors.reads):
        for tensor in reads:
            home = device[tensors.producer[tensor]]
            if device[op] != home and there.get((tensor, device[op]), op + 1) > op:
                raise ValueError(f"op {op} reads tensor {tensor}, which is not on its device")


def segments(
    tensors: Tensors, device: Sequence[int], transfers: Sequence[Transfer]
) -> Iterator[Send | tuple[int, ...]]:
    """Yield what is sent, and the ops that run on one device with nothing sent there between.

    Args:
      tensors: of kernels in the order in which they run.
      device: of each op. `[N]`
      transfers: in the order in which they happen.
    """
    waiting = list(reversed(transfers))
    running: dict[int, list[int]] = {}

    def end(on: int) -> Iterator[tuple[int, ...]]:
        if on in running:
            yield tuple(running.pop(on))

    def send_before(op: int) -> Iterator[Send | tuple[int, ...]]:
        while waiting and waiting[-1].before <= op:
            sent = waiting.pop()
            source = device[sent.op]
            yield from end(source)
            yield from end(sent.device)
            yield Send(tensors.first[sent.op] + sent.output, source, sent.device)

    count = len(tensors.reads)
    for op in range(tensors.num_sources, count):
        yield from send_before(op)
        running.setdefault(device[op], []).append(op)
    yield from send_before(count)
    for on in sorted(running):
        yield from end(on)


class Ledger:
    """Bytes that each device holds while stages run and tensors are sent.

    Attributes:
      used: bytes that each device holds. `[D]`
    """

    def __init__(
        self,
        tensors: Tensors,
        device: Sequence[int],
        transfers: Sequence[Transfer],
        num_devices: int,
    ):
        self._tensors, self._device = tensors, device
        self.used = [0] * num_devices
        for source in tensors.sources:
            self.used[device[source]] += tensors.size[source]
        self._left = Counter[Place]()  # readers to come
        for op, reads in enumerate(tensors.reads):
            self._left.update((tensor, device[op]) for tensor in reads)
        for sent in transfers:
            self._left[tensors.first[sent.op] + sent.output, device[sent.op]] += 1

    def stage(self, ops: Sequence[int]) -> Stage:
        """Return ops that run next, on one device, as a stage."""
        on, first = self._device[ops[0]], self._tensors.first
        made = [tensor for op in ops for tensor in range(first[op], first[op + 1])]
        reads = Counter(tensor for op in ops for tensor in self._tensors.reads[op])
        return Stage(
            device=on,
            ops=tuple(ops),
            reads=tuple(sorted(reads.keys() - set(made))),
            makes=tuple(t for t in made if self._left[t, on] > reads[t] or self._stays(t, on)),
        )

    def run(self, stage: Stage) -> list[Place]:
        """Runs a stage; returns what nobody reads any more."""
        for op in stage.ops:
            self._left.subtract((tensor, stage.device) for tensor in self._tensors.reads[op])
        self.used[stage.device] += sum(self._tensors.size[tensor] for tensor in stage.makes)
        return self._dead((tensor, stage.device) for tensor in stage.reads)

    def send(self, send: Send) -> list[Place]:
        """Sends a tensor; returns what nobody reads any more."""
        self._left[send.tensor, send.source] -= 1
        self.used[send.device] += self._tensors.size[send.tensor]
        return self._dead([(send.tensor, send.source)])

    def _dead(self, places: Iterator[Place] | Sequence[Place]) -> list[Place]:
        dead = [place for place in places if not self._left[place] and not self._stays(*place)]
        for tensor, on in dead:
            self.used[on] -= self._tensors.size[tensor]
        return dead

    def _stays(self, tensor: int, on: int) -> bool:
        home = self._device[self._tensors.producer[tensor]]
        return self._tensors.pinned[tensor] and on == home
