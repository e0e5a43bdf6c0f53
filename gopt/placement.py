"""A placement becomes a program: stages on several devices, and what is sent between them.

What runs on a device one after another, with nothing sent to it or from it meanwhile, is one stage:
a jitted function of its own, inside which XLA fuses and keeps the order. A stage holds what it
reads until it ends, even what nobody reads later; where that would take more memory than the
schedule has on the device at its peak, the stage is cut in two.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Var
from jax.sharding import SingleDeviceSharding

from gopt.apply import COMPILER_OPTIONS, ordered
from gopt.measure import memory
from gopt.program import Atom, Program, run_equation, shape_of, variables
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


class _Open:
    """The stage of a device that kernels are added to."""

    def __init__(self) -> None:
        self.ops: list[int] = []
        self.made: list[int] = []
        self.inner = 0.0  # bytes of what it has made and is still read
        self.unread = 0.0  # bytes of what it was the last to read, held until it ends


class _Cutter:
    def __init__(
        self,
        traced: Traced,
        device: Sequence[int],
        transfers: Sequence[Transfer],
        peak: Sequence[int],
    ):
        self.kernels = Kernels(traced)
        self.device, self.transfers, self.peak = device, transfers, peak
        self.open = [_Open() for _ in peak]
        self.held = [0.0] * len(peak)  # bytes between stages
        self.left = Counter[tuple[int, int]]()  # readers to come of a tensor on a device
        for op, reads in enumerate(self.kernels.reads):
            self.left.update((tensor, device[op]) for tensor in reads)
        for sent in transfers:
            tensor = self.kernels.first[sent.op] + sent.output
            self.left[tensor, device[sent.op]] += 1
        for op in range(self.kernels.num_sources):
            self.held[device[op]] += self.kernels.size[op]

    def actions(self) -> Iterator[Stage | Send]:
        waiting = list(reversed(self.transfers))
        for op in range(self.kernels.num_sources, len(self.kernels.reads)):
            while waiting and waiting[-1].before <= op:
                yield from self.send(waiting.pop())
            yield from self.add(op)
        while waiting:
            yield from self.send(waiting.pop())
        for on in range(len(self.open)):
            yield from self.close(on)

    def send(self, sent: Transfer) -> Iterator[Stage | Send]:
        tensor, source = self.kernels.first[sent.op] + sent.output, self.device[sent.op]
        yield from self.close(source)
        yield from self.close(sent.device)
        self.held[sent.device] += self.kernels.size[tensor]
        self.left[tensor, source] -= 1
        if self.is_dead(tensor, source):
            self.held[source] -= self.kernels.size[tensor]
        yield Send(tensor, source, sent.device)

    def add(self, op: int) -> Iterator[Stage | Send]:
        """Adds a kernel to the stage of its device, or to a new one."""
        on, kernels = self.device[op], self.kernels
        makes = range(kernels.first[op], kernels.first[op + 1])
        made = sum(kernels.size[tensor] for tensor in makes)
        needed = self.held[on] + self.open[on].inner + made + kernels.workspace[op]
        if needed > self.peak[on]:
            yield from self.close(on)
        stage = self.open[on]
        stage.ops.append(op)
        stage.made += makes
        stage.inner += made
        for tensor in kernels.reads[op]:
            self.left[tensor, on] -= 1
        for tensor in {*kernels.reads[op], *makes}:
            if self.is_dead(tensor, on) and tensor in stage.made:
                stage.inner -= kernels.size[tensor]
            elif self.is_dead(tensor, on):
                stage.unread += kernels.size[tensor]

    def close(self, on: int) -> Iterator[Stage | Send]:
        """Ends the stage of a device."""
        stage = self.open[on]
        if stage.ops:
            makes = [tensor for tensor in stage.made if not self.is_dead(tensor, on)]
            reads = {tensor for op in stage.ops for tensor in self.kernels.reads[op]}
            inputs = sorted(reads - set(stage.made))
            program = self.kernels.program_of(stage.ops, inputs, makes)
            self.held[on] += stage.inner - stage.unread
            self.open[on] = _Open()
            yield Stage(on, tuple(inputs), tuple(makes), program)

    def is_dead(self, tensor: int, on: int) -> bool:
        return not self.left[tensor, on] and not self.kernels.stays(tensor, on, self.device)


class Kernels:
    """A graph of kernels as lists, and the programs of some of them.

    Attributes:
      num_sources: how many of the ops are arguments and captured arrays; they come first.
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
        self.size: list[float] = np.asarray(graph.size)[:tensors].tolist()
        self.workspace: list[float] = np.asarray(graph.workspace)[:ops].tolist()
        self.pinned: list[bool] = np.asarray(graph.pinned)[:tensors].tolist()
        self.reads: list[list[int]] = [[] for _ in range(ops)]
        uses = int(graph.num_uses)
        for tensor, reader in zip(graph.tensor[:uses], graph.consumer[:uses], strict=True):
            self.reads[int(reader)].append(int(tensor))
        equations = traced.program.equations
        made = [[v] for v in (*self._program.inputs, *self._program.constants)]
        made += [list(equations[index].outvars) for index in traced.equations if index >= 0]
        self.made: list[Var] = [v for outs in made for v in outs]
        self._equation = [equations[index] if index >= 0 else None for index in traced.equations]
        ops_ = set(traced.equations)
        self._view = {
            v: equation
            for index, equation in enumerate(equations)
            if index not in ops_
            for v in equation.outvars
        }

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


@dataclass(frozen=True, eq=False)
class Staged:
    """A function in stages on several devices; call it like the function.

    It is driven from the host, which waits for nothing: devices run at once where the data allows
    it. It cannot be jitted or differentiated, so place the gradient, not the function that it is
    of. What is donated is deleted after its last reader.

    Attributes:
      traced: the kernels.
      device: of each op. `[N]`
      actions: what happens, in order.
      devices: of JAX, one for each of the schedule. `[D]`
    """

    traced: Traced
    device: tuple[int, ...]
    actions: tuple[Stage | Send, ...]
    devices: tuple[jax.Device, ...]
    _compiled: list[Any] = field(init=False, repr=False)
    _dead: list[list[tuple[int, int]]] = field(init=False, repr=False)
    _kernels: Kernels = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kernels = Kernels(self.traced)
        object.__setattr__(self, "_kernels", kernels)
        object.__setattr__(self, "_compiled", [self._compile(action) for action in self.actions])
        object.__setattr__(self, "_dead", _dead(self.actions, kernels, self.device))

    def _compile(self, action: Stage | Send) -> jax.stages.Compiled | None:
        if isinstance(action, Send):
            return None
        on = SingleDeviceSharding(self.devices[action.device])
        shapes = [
            jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=on)
            for s in map(shape_of, action.program.inputs)
        ]
        options = COMPILER_OPTIONS.get(self.devices[action.device].platform)
        function = jax.jit(ordered(action.program), compiler_options=options, out_shardings=on)
        return function.lower(*shapes).compile()

    def place(self, *args: Any) -> tuple[Any, ...]:
        """Returns the arguments, each array on the device where the schedule has it.

        A call does that with what is elsewhere, but then the caller's array takes memory, too.
        """
        leaves, tree = jax.tree.flatten(args)
        placed = [
            jax.device_put(leaf, self.devices[on])
            for leaf, on in zip(leaves, self.device, strict=False)
        ]
        return jax.tree.unflatten(tree, placed)

    def __call__(self, *args: Any) -> Any:
        """Returns the value of the function, each array on the device that makes it.

        Raises:
          ValueError: the arguments differ from the traced ones in structure, shape or dtype.
        """
        program = self.traced.program
        given = dict(enumerate((*program.check_arguments(args), *program.values)))
        # Where one device stands for two, an array may be on both at once.
        consumes = len(set(self.devices)) == len(self.devices)
        held: dict[tuple[int, int], Any] = {}
        for source, value in given.items():  # its number is that of its op and of its tensor
            on = self.device[source]
            held[source, on] = jax.device_put(value, self.devices[on])
        for action, compiled, dead in zip(self.actions, self._compiled, self._dead, strict=True):
            if isinstance(action, Send):
                value = held[action.tensor, action.source]
                held[action.tensor, action.device] = jax.device_put(
                    value, self.devices[action.device]
                )
            else:
                on = action.device
                made = compiled(*[held[tensor, on] for tensor in action.reads])
                held |= zip([(tensor, on) for tensor in action.makes], made, strict=True)
            for tensor, on in dead:
                value = held.pop((tensor, on))
                if tensor in given and on == self.device[tensor] and consumes:
                    value.delete()  # a donated argument, which the caller may still name
        values = {self._kernels.made[tensor]: value for (tensor, _), value in held.items()}
        results = [self._read(atom, values) for atom in program.outputs]
        return jax.tree.unflatten(program.out_tree, results)

    def _read(self, atom: Atom, values: dict[Var, Any]) -> Any:
        if not isinstance(atom, Var):
            return atom.val
        for view in self._kernels.views([atom]):
            results = run_equation(view, [self._read(operand, values) for operand in view.invars])
            values |= zip(view.outvars, results, strict=True)
        return values[atom]

    def memory(self) -> tuple[int, ...]:
        """Returns the bytes that each device needs at its peak.

        That is what it holds between stages, arguments included, and what XLA plans for a stage.
        """
        kernels = self._kernels
        used, peak = [0] * len(self.devices), [0] * len(self.devices)
        for op in range(kernels.num_sources):
            used[self.device[op]] += int(kernels.size[op])
        for action, compiled, dead in zip(self.actions, self._compiled, self._dead, strict=True):
            on = action.device
            makes = [action.tensor] if isinstance(action, Send) else action.makes
            made = sum(int(kernels.size[tensor]) for tensor in makes)
            needed = made if isinstance(action, Send) else memory(compiled).beside
            peak[on] = max(peak[on], used[on] + needed)
            used[on] += made
            for tensor, place in dead:
                used[place] -= int(kernels.size[tensor])
        return tuple(map(max, peak, used))


def _dead(
    actions: Sequence[Stage | Send], kernels: Kernels, device: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """Returns what nobody reads after each action: tensors and where they are."""
    last: dict[tuple[int, int], int] = {}
    for index, action in enumerate(actions):
        if isinstance(action, Send):
            last[action.tensor, action.source] = index
        else:
            last |= dict.fromkeys(((tensor, action.device) for tensor in action.reads), index)
    result: list[list[tuple[int, int]]] = [[] for _ in actions]
    for (tensor, on), index in last.items():
        if not kernels.stays(tensor, on, device):
            result[index].append((tensor, on))
    return result
