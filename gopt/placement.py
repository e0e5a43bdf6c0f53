"""A placement becomes a program: stages on several devices, and what is sent between them."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Var
from jax.sharding import SingleDeviceSharding

from gopt.apply import COMPILER_OPTIONS, ordered
from gopt.measure import memory
from gopt.program import Atom, run_equation, shape_of
from gopt.sources.jaxpr import Traced
from gopt.stages import Send, Stage, Tensors


class Staged:
    """A function in stages on several devices; call it like the function.

    It is driven from the host, which waits for nothing: devices run at once where the data allows
    it. It cannot be jitted or differentiated, so place the gradient, not the function that it is
    of. What is donated is deleted after its last reader.

    Attributes:
      traced: the kernels, in the order in which they run.
      device: of each op. `[N]`
      actions: what happens, in order.
      devices: of JAX, one for each of the schedule. `[D]`
    """

    def __init__(
        self,
        traced: Traced,
        device: Sequence[int],
        actions: Sequence[Stage | Send],
        devices: Sequence[jax.Device],
    ):
        self.traced, self.device = traced, tuple(device)
        self.actions, self.devices = tuple(actions), tuple(devices)
        self._tensors = Tensors(traced)
        self._compiled: list[Any] = [self._compile(action) for action in self.actions]
        self._dead = _dead(self.actions, self._tensors, self.device)

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
        given = (*program.check_arguments(args), *program.values)
        held: dict[tuple[int, int], Any] = {}
        for source in self._tensors.sources:
            on = self.device[source]
            held[source, on] = jax.device_put(given[source], self.devices[on])
        for action, compiled, dead in zip(self.actions, self._compiled, self._dead, strict=True):
            on = action.device
            # No other name than that in `held` keeps an array.
            if isinstance(action, Send):
                held[action.tensor, on] = jax.device_put(
                    held[action.tensor, action.source], self.devices[on]
                )
            else:
                places = [(tensor, on) for tensor in action.makes]
                reads = (held[tensor, on] for tensor in action.reads)
                held |= zip(places, compiled(*reads), strict=True)
            for tensor, where in dead:
                self._drop(tensor, where, held)
        values = {self._tensors.made[tensor]: value for (tensor, _), value in held.items()}
        results = [self._read(atom, values) for atom in program.outputs]
        return jax.tree.unflatten(program.out_tree, results)

    def _drop(self, tensor: int, on: int, held: dict[tuple[int, int], Any]) -> None:
        """Lets a tensor go. The caller may still name a donated argument, so that is deleted."""
        array = held.pop((tensor, on))
        # Where one device stands for two, the array may be on both.
        alone = len(set(self.devices)) == len(self.devices)
        if alone and tensor < self._tensors.num_sources and on == self.device[tensor]:
            array.delete()

    def _read(self, atom: Atom, values: dict[Var, Any]) -> Any:
        if not isinstance(atom, Var):
            return atom.val
        for view in self._tensors.views([atom]):
            results = run_equation(view, [self._read(operand, values) for operand in view.invars])
            values |= zip(view.outvars, results, strict=True)
        return values[atom]

    def memory(self) -> tuple[int, ...]:
        """Returns the bytes that each device needs at its peak.

        That is what it holds between stages, arguments included, and what XLA plans for a stage.
        """
        tensors = self._tensors
        used, peak = [0] * len(self.devices), [0] * len(self.devices)
        for source in tensors.sources:
            used[self.device[source]] += tensors.size[source]
        for action, compiled, dead in zip(self.actions, self._compiled, self._dead, strict=True):
            on = action.device
            makes = [action.tensor] if isinstance(action, Send) else action.makes
            made = sum(tensors.size[tensor] for tensor in makes)
            needed = made if isinstance(action, Send) else memory(compiled).beside
            peak[on] = max(peak[on], used[on] + needed)
            used[on] += made
            for tensor, place in dead:
                used[place] -= tensors.size[tensor]
        return tuple(map(max, peak, used))


def _dead(
    actions: Sequence[Stage | Send], tensors: Tensors, device: Sequence[int]
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
        if not tensors.stays(tensor, on, device):
            result[index].append((tensor, on))
    return result
