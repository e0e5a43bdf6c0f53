"""Stages: what the devices of a placement do, one thing after another.

What runs on a device one after another, with nothing sent to it or from it meanwhile, is one stage:
a jitted function of its own, inside which XLA fuses and keeps the order. A stage holds what it
reads until it ends, even what nobody reads later; where that would take more memory than the
schedule has on the device at its peak, the stage is cut in two.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Var

from gopt.program import Atom, Program, variables
from gopt.sources.jaxpr import Traced


class Transfer(NamedTuple):
    """A tensor that goes to another device: output number `output` of op number `op`."""

    before: int  # op that runs next, wherever
    op: int
    output: int
    device: int  # where it goes


class Stage(NamedTuple):
    """Kernels that run as one function."""

    device: int
    reads: tuple[int, ...]  # tensors
    makes: tuple[int, ...]  # tensors that are read later or returned
    program: Program  # a function of the tensors that it reads to those that it makes


class Send(NamedTuple):
    """A tensor that is sent."""

    tensor: int
    source: int
    device: int


def stages(
    traced: Traced, device: Sequence[int], transfers: Sequence[Transfer], peak: Sequence[int]
) -> list[Stage | Send]:
    """Returns what happens on the devices, in order.

    Args:
      traced: kernels in the order in which they run, see `gopt.kernels.buffers.unshared_graph`.
      device: of each op. `[N]`
      transfers: in the order in which they happen.
      peak: bytes that each device may hold, where smaller stages can help it. `[D]`
    """
    return list(_Cutter(traced, device, transfers, peak).actions())


class Tensors:
    """The graph of a program of kernels as lists, and the programs of some of its ops.

    Attributes:
      num_sources: how many ops are arguments and captured arrays. They come first, with a tensor
        each, so that the number of one is that of the other.
      sources: those of them that are read or stay.
      reads: of each op, tensors.
      first: of each op, its first tensor; then the number of tensors.
      size: of each tensor, bytes.
      workspace: of each op, bytes.
      pinned: of each tensor, whether it stays where it is made.
      made: of each tensor, the variable.
    """

    def __init__(self, traced: Traced):
        graph, self._program = traced.graph, traced.program
        ops, tensors = int(graph.num_ops), int(graph.num_tensors)
        self.num_sources = sum(index < 0 for index in traced.equations)
        self.producer: list[int] = np.asarray(graph.producer)[:tensors].tolist()
        self.first: list[int] = np.searchsorted(self.producer, range(ops + 1)).tolist()
        self.size: list[int] = np.asarray(graph.size)[:tensors].astype(int).tolist()
        self.workspace: list[int] = np.asarray(graph.workspace)[:ops].astype(int).tolist()
        self.pinned: list[bool] = np.asarray(graph.pinned)[:tensors].tolist()
        self.reads: list[list[int]] = [[] for _ in range(ops)]
        uses = int(graph.num_uses)
        for tensor, reader in zip(graph.tensor[:uses], graph.consumer[:uses], strict=True):
            self.reads[int(reader)].append(int(tensor))
        read = {tensor for reads in self.reads for tensor in reads}
        self.sources = [k for k in range(self.num_sources) if k in read or self.pinned[k]]
        equations = traced.program.equations
        made = [[v] for v in (*self._program.inputs, *self._program.constants)]
        made += [list(equations[index].outvars) for index in traced.equations if index >= 0]
        self.made: list[Var] = [v for outs in made for v in outs]
        self._equation = [equations[index] if index >= 0 else None for index in traced.equations]
        views = set(range(len(equations))) - set(traced.equations)
        self._view = {v: equations[index] for index in views for v in equations[index].outvars}

    def stays(self, tensor: int, on: int, device: Sequence[int]) -> bool:
        """Returns whether a tensor stays on a device to the end."""
        return self.pinned[tensor] and on == device[self.producer[tensor]]

    def program_of(self, ops: Sequence[int], reads: Sequence[int], makes: Sequence[int]) -> Program:
        """Returns the program of some ops, with the views that they read."""
        equations: dict[int, JaxprEqn] = {}
        for op in ops:
            equation = self._equation[op]
            assert equation is not None  # arguments are no kernels
            for needed in (*self.views(equation.invars), equation):
                equations.setdefault(id(needed), needed)
        inputs = tuple(self.made[tensor] for tensor in reads)
        return Program(
            equations=tuple(equations.values()),
            inputs=inputs,
            outputs=tuple(self.made[tensor] for tensor in makes),
            constants=(),
            values=(),
            donated=(False,) * len(inputs),
            in_tree=jax.tree.structure(tuple(inputs)),
            out_tree=jax.tree.structure(list(makes)),
        )

    def views(self, atoms: Sequence[Atom]) -> Iterator[JaxprEqn]:
        """Yields the views that variables are made of, the first ones first."""
        for v in variables(atoms):
            if v in self._view:
                yield from self.views(self._view[v].invars)
                yield self._view[v]


class _Open:
    """The stage of a device that kernels are added to."""

    def __init__(self) -> None:
        self.ops: list[int] = []
        self.made: dict[int, None] = {}  # tensors, in order
        self.inner = 0  # bytes of what it has made and is still read
        self.unread = 0  # bytes of what it was the last to read, held until it ends


class _Cutter:
    """Follows the schedule, and what each device holds."""

    def __init__(
        self,
        traced: Traced,
        device: Sequence[int],
        transfers: Sequence[Transfer],
        peak: Sequence[int],
    ):
        self.tensors = Tensors(traced)
        self.device, self.transfers, self.peak = device, transfers, peak
        self.open = [_Open() for _ in peak]
        self.held = [0] * len(peak)  # bytes between stages
        self.left = Counter[tuple[int, int]]()  # readers to come of a tensor on a device
        for op, reads in enumerate(self.tensors.reads):
            self.left.update((tensor, device[op]) for tensor in reads)
        for sent in transfers:
            tensor = self.tensors.first[sent.op] + sent.output
            self.left[tensor, device[sent.op]] += 1
        for source in self.tensors.sources:
            self.held[device[source]] += self.tensors.size[source]

    def actions(self) -> Iterator[Stage | Send]:
        """Yields what happens, in order."""
        waiting = list(reversed(self.transfers))
        for op in range(self.tensors.num_sources, len(self.tensors.reads)):
            while waiting and waiting[-1].before <= op:
                yield from self.send(waiting.pop())
            yield from self.add(op)
        while waiting:
            yield from self.send(waiting.pop())
        for on in range(len(self.open)):
            yield from self.close(on)

    def send(self, sent: Transfer) -> Iterator[Stage | Send]:
        """Sends a tensor, after what both devices have done so far."""
        tensor, source = self.tensors.first[sent.op] + sent.output, self.device[sent.op]
        yield from self.close(source)
        yield from self.close(sent.device)
        self.held[sent.device] += self.tensors.size[tensor]
        self.left[tensor, source] -= 1
        if self.is_dead(tensor, source):
            self.held[source] -= self.tensors.size[tensor]
        yield Send(tensor, source, sent.device)

    def add(self, op: int) -> Iterator[Stage | Send]:
        """Adds a kernel to the stage of its device, or to a new one."""
        on, tensors = self.device[op], self.tensors
        makes = range(tensors.first[op], tensors.first[op + 1])
        made = sum(tensors.size[tensor] for tensor in makes)
        needed = self.held[on] + self.open[on].inner + made + tensors.workspace[op]
        if needed > self.peak[on]:
            yield from self.close(on)
        stage = self.open[on]
        stage.ops.append(op)
        stage.made |= dict.fromkeys(makes)
        stage.inner += made
        for tensor in tensors.reads[op]:
            self.left[tensor, on] -= 1
        for tensor in {*tensors.reads[op], *makes}:
            if self.is_dead(tensor, on) and tensor in stage.made:
                stage.inner -= tensors.size[tensor]
            elif self.is_dead(tensor, on):
                stage.unread += tensors.size[tensor]

    def close(self, on: int) -> Iterator[Stage | Send]:
        """Ends the stage of a device."""
        stage = self.open[on]
        if stage.ops:
            makes = [tensor for tensor in stage.made if not self.is_dead(tensor, on)]
            reads = {tensor for op in stage.ops for tensor in self.tensors.reads[op]}
            inputs = sorted(reads - stage.made.keys())
            program = self.tensors.program_of(stage.ops, inputs, makes)
            self.held[on] += stage.inner - stage.unread
            self.open[on] = _Open()
            yield Stage(on, tuple(inputs), tuple(makes), program)

    def is_dead(self, tensor: int, on: int) -> bool:
        """Returns whether nobody will read a tensor on a device, nor return it."""
        return not self.left[tensor, on] and not self.tensors.stays(tensor, on, self.device)
