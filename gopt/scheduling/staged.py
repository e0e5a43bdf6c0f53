"""A placement becomes a program: stages on several devices, and what is sent between them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Var
from jax.sharding import SingleDeviceSharding

from gopt.cost.schedule.xla_memory import beside
from gopt.graph.op_costs import PACKED_BITS
from gopt.graph.tracing import TracedGraph
from gopt.measure.timing import memory
from gopt.program.arguments import is_traced
from gopt.program.equations import aval_of, shape_of
from gopt.program.program import Program
from gopt.scheduling.stages import (
    Ledger,
    Place,
    Send,
    Stage,
    Tensors,
    Transfer,
    check_transfers,
    segments,
)
from gopt.xla.ordered import jit_ordered

_SLACK = 1e-3  # of the peak: tables of the tensors of a stage, which no model knows


class Action(NamedTuple):
    """A stage with its compiled function, or a transfer, and what nobody reads afterwards."""

    what: Stage | Send
    call: Any  # `None` for a transfer
    dead: list[Place]


class Staged:
    """A function in stages on several devices; call it like the function.

    It is driven from the host, which waits for nothing: devices run at once where the data allows
    it. It cannot be jitted or differentiated, so place the gradient, not the function that it is
    of. Where each device is one of its own, a donated argument is deleted after its last reader,
    or as soon as it is copied to where it is planned. No result shares its buffer with another one,
    nor with an argument that is not donated: these are copied at the end.

    A stage holds what it reads until it ends, and what it makes from its start. Where that takes
    more than the schedule has on the device at its peak, the stage is halved.

    Attributes:
      actions: what happens, in order.
      devices: of JAX, one for each of the schedule. `[D]`
      memory: bytes that each device needs at its peak: what it holds between stages, arguments and
        captured arrays included, and what XLA plans for a stage. `[D]`
      predicted: the same with what the model of `gopt.xla` says of a stage. `[D]`
    """

    def __init__(
        self,
        traced: TracedGraph,
        workspace: Mapping[Var, float],
        device: Sequence[int],
        transfers: Sequence[Transfer],
        peak: Sequence[int],
        devices: Sequence[jax.Device],
    ):
        """Compiles all stages.

        Args:
          traced: kernels in the order in which they run, see `gopt.xla.buffers`.
          workspace: bytes that kernels need only while they run, by the first result.
          device: of each op. `[N]`
          transfers: in the order in which they happen.
          peak: bytes that each device may hold, where shorter stages can help it. `[D]`
          devices: of JAX. `[D]`

        Raises:
          ValueError: the transfers do not fit, see `gopt.scheduling.stages.check_transfers`.
        """
        self.devices = tuple(devices)
        self._program, self._tensors, self._device = traced.program, Tensors(traced), tuple(device)
        check_transfers(self._tensors, device, transfers)
        ledger = Ledger(self._tensors, device, transfers, len(devices))
        most, predicted = list(ledger.used), list(ledger.used)
        self.actions: list[Action] = []
        for segment in segments(self._tensors, device, transfers):
            if isinstance(segment, Send):
                dead, on = ledger.send(segment), segment.device
                self.actions.append(Action(segment, None, dead))
                most[on] = max(most[on], ledger.used[on])
                predicted[on] = max(predicted[on], ledger.used[on])
                continue
            for stage, compiled, call in self._stages(segment, ledger, peak):
                on = stage.device
                model = beside(self._tensors.program_of(stage), workspace)
                most[on] = max(most[on], ledger.used[on] + memory(compiled).without_arguments)
                predicted[on] = max(predicted[on], ledger.used[on] + model)
                self.actions.append(Action(stage, call, ledger.run(stage)))
        self.memory, self.predicted = tuple(most), tuple(predicted)
        inputs = len(self._program.inputs)
        self._constants = [
            jax.device_put(jnp.copy(value), self.devices[on])  # whose it is may change or delete it
            for value, on in zip(self._program.values, device[inputs:], strict=False)
        ]

    def _stages(
        self, ops: Sequence[int], ledger: Ledger, peak: Sequence[int]
    ) -> Iterator[tuple[Stage, jax.stages.Compiled, Callable[..., Any]]]:
        """Yield ops of one device as stages that keep to the peak, compiled, and to be called."""
        stage = ledger.stage(ops)
        program = self._tensors.program_of(stage)
        device = self.devices[stage.device]
        function = jit_ordered(program, device)
        compiled = function.lower(*_on(program, device)).compile()
        bound = (1 + _SLACK) * peak[stage.device]
        if len(ops) > 1 and ledger.used[stage.device] + memory(compiled).without_arguments > bound:
            half = len(ops) // 2
            yield from self._stages(ops[:half], ledger, peak)
            # By now the caller has entered what came before.
            yield from self._stages(ops[half:], ledger, peak)
        else:
            yield stage, compiled, function if _has_sub_bytes(program) else compiled

    def place(self, *args: Any) -> tuple[Any, ...]:
        """Return the arguments, each array on the device where the schedule has it.

        A call does that with what is elsewhere, but then the caller's array takes memory, too.

        Raises:
          ValueError: the arguments differ from the traced ones in structure, shape or dtype.
        """
        leaves = self._program.check_arguments(args)
        on = [self.devices[k] for k in self._device[: len(leaves)]]
        placed = [jax.device_put(leaf, device) for leaf, device in zip(leaves, on, strict=True)]
        return jax.tree.unflatten(self._program.in_tree, placed)

    def __call__(self, *args: Any) -> Any:
        """Return the value of the function, each array on the device that makes it.

        Raises:
          ValueError: the call is traced; an argument differs from the traced one in structure,
            shape or dtype, or one that is donated is passed twice or was deleted.
        """
        _refuse_tracers(args)
        # No other name than that in `held` keeps an array.
        held = self._take(args)
        for what, call, dead in self.actions:
            on = what.device
            if isinstance(what, Send):
                held[what.tensor, on] = jax.device_put(
                    held[what.tensor, what.source], self.devices[on]
                )
            else:
                places = [(tensor, on) for tensor in what.makes]
                reads = (held[tensor, on] for tensor in what.reads)
                held |= zip(places, call(*reads), strict=True)
            for place in dead:
                self._drop(place, held)
        values = {self._tensors.made[tensor]: value for (tensor, _), value in held.items()}
        inputs = zip(self._program.inputs, self._program.donated, strict=True)
        kept = {v for v, donated in inputs if not donated}.union(self._program.constants)
        results = []
        for atom in self._program.outputs:
            if isinstance(atom, Var):
                results.append(jnp.copy(values[atom]) if atom in kept else values[atom])
                kept.add(atom)
            else:
                array = jnp.asarray(atom.val, aval_of(atom).dtype)
                results.append(jax.device_put(array, self.devices[0]))
        return self._program.result(results)

    def _take(self, args: tuple[Any, ...]) -> dict[Place, Any]:
        """Return the arguments and captured arrays that are needed, where they are needed."""
        leaves, donated = self._program.check_arguments(args), self._program.donated
        passed = Counter(map(id, leaves))
        for k, leaf in enumerate(leaves):
            if donated[k] and isinstance(leaf, jax.Array):
                if leaf.is_deleted():
                    raise ValueError(f"array {k} of the arguments was donated before")
                if passed[id(leaf)] > 1:
                    raise ValueError(f"array {k} of the arguments is donated and passed twice")
        placed = jax.tree.leaves(self.place(*args))
        for leaf, there, is_donated in zip(leaves, placed, donated, strict=True):
            elsewhere = isinstance(leaf, jax.Array) and leaf.devices() != there.devices()
            if is_donated and elsewhere:
                leaf.delete()
        given = (*placed, *self._constants)
        return {(k, self._device[k]): given[k] for k in self._tensors.sources}

    def _drop(self, place: Place, held: dict[Place, Any]) -> None:
        """Lets a tensor go. The caller may still name a donated argument, so that is deleted."""
        (tensor, on), array = place, held.pop(place)
        # Where one device stands for two, the array may be on both.
        alone = len(set(self.devices)) == len(self.devices)
        if alone and tensor < self._tensors.num_sources and on == self._device[tensor]:
            array.delete()


def _refuse_tracers(args: tuple[Any, ...]) -> None:
    """Raise ValueError if the call is traced."""
    if not is_traced(args):
        return
    leaves = jax.tree.leaves_with_path(args)
    paths = [path for path, leaf in leaves if isinstance(leaf, jax.core.Tracer)]
    name = f"args{jax.tree_util.keystr(paths[0])} is a tracer" if paths else "the call is traced"
    raise ValueError(
        f"{name}: a function in stages on several devices is driven from the host, and runs inside "
        "no other function; schedule the outer function instead"
    )


def _has_sub_bytes(program: Program) -> bool:
    """Return whether an input has less than 8 bits per element.

    JAX 0.10 loses the layout of such an array on its way to another device, and then a function
    that was compiled ahead refuses it, but a jitted one does not.
    """
    return any(aval_of(v).dtype.name in PACKED_BITS for v in program.inputs)


def _on(program: Program, device: jax.Device) -> list[jax.ShapeDtypeStruct]:
    """Return the inputs of a program as shapes on a device."""
    sharding = SingleDeviceSharding(device)
    shapes = map(shape_of, program.inputs)
    return [jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding) for s in shapes]
