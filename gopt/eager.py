"""Runs a schedule op by op with JAX, and counts the bytes of the arrays that it keeps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Var

from gopt.cost.execution import Schedule
from gopt.problem import Problem
from gopt.program import Atom, run_equation
from gopt.sources.jaxpr import Traced


class Execution(NamedTuple):
    """What a schedule returned, and the bytes of the arrays that it kept meanwhile."""

    value: Any  # of the function; each array on the device where the schedule leaves it
    usage: np.ndarray  # int64 [K], on the device of the k-th item while it runs
    peak: tuple[int, ...]  # for each device


def execute(
    traced: Traced,
    problem: Problem,
    schedule: Schedule,
    *args: Any,
    devices: Sequence[jax.Device] | None = None,
) -> Execution:
    """Returns the value of a traced function, its ops run in the order and on the devices planned.

    Every op is a call of its own: nothing is fused, and each array is dropped after its last
    reader, as the cost model has it (see `gopt.cost.memory`). So the bytes that are counted are
    those of the model, but for what an op needs only while it runs, and for rounding; that ops
    find what they read, and that arrays are as large as modelled, is what a run shows. A device may
    hold more: pure views, which are made where they are read, the arguments, which the caller
    still has, and what the allocator adds.

    Args:
      traced: the function as a graph.
      problem: the graph on a machine.
      schedule: of the problem.
      *args: as the function was traced with.
      devices: for each device of the machine one to run on, by default the first ones of JAX. One
        may stand for several.

    Raises:
      ValueError: the arguments differ from the traced ones in structure, shape or dtype, or there
        are not enough devices.
    """
    devices = jax.devices() if devices is None else devices
    if len(devices) < problem.num_devices:
        raise ValueError(
            f"devices are {len(devices)}: expected {problem.num_devices}; one may be named twice"
        )
    program = traced.program
    run = _Run(traced, problem, schedule, devices)
    for op, value in enumerate([*program.check_arguments(args), *program.values]):
        run.hold(run.first_tensor[op], run.device[op], value)
    peak = list(run.used)
    usage = []
    for item in schedule.order[: int(schedule.num_items)].tolist():
        on = run.send(item) if item >= problem.shape.ops else run.run(item)
        usage.append(run.used[on])
        peak[on] = max(peak[on], run.used[on])
        run.release(item)
    results = [run.read(atom, None) for atom in program.outputs]
    value = jax.tree.unflatten(program.out_tree, results)
    return Execution(value, np.array(usage, np.int64), tuple(peak))


class _Run:
    """The arrays that are held, by tensor and device, and how often each is still read."""

    def __init__(
        self,
        traced: Traced,
        problem: Problem,
        schedule: Schedule,
        devices: Sequence[jax.Device],
    ):
        self.problem, self.devices = problem, devices
        self.used = [0] * problem.num_devices
        self.device: list[int] = schedule.device.tolist()
        self.first_tensor: list[int] = np.asarray(problem.first_tensor).tolist()
        self.equations = [
            traced.program.equations[index] if index >= 0 else None for index in traced.equations
        ]
        ops = set(traced.equations)
        self._views = {
            v: (eqn, k)
            for index, eqn in enumerate(traced.program.equations)
            if index not in ops
            for k, v in enumerate(eqn.outvars)
        }
        sources = (*traced.program.inputs, *traced.program.constants)
        made = [
            (eqn.outvars if eqn is not None else sources[op : op + 1])
            for op, eqn in enumerate(self.equations)
        ]
        self._tensor = {
            v: self.first_tensor[op] + k for op, outs in enumerate(made) for k, v in enumerate(outs)
        }
        self._held: dict[tuple[int, int], jax.Array] = {}
        self._left: dict[tuple[int, int], int] = {}
        uses = int(problem.num_uses)
        for tensor, reader in zip(problem.tensor[:uses], problem.consumer[:uses], strict=True):
            self._expect(int(tensor), self.device[int(reader)])
        for item in schedule.order[: int(schedule.num_items)].tolist():
            if item >= problem.shape.ops:
                tensor, _ = self._transfer(item)
                self._expect(tensor, self._home(tensor))

    def hold(self, tensor: int, on: int, value: Any) -> None:
        """Puts an array on a device and counts it."""
        array = jax.device_put(value, self.devices[on])
        self._held[tensor, on] = array
        self.used[on] += array.nbytes

    def send(self, item: int) -> int:
        """Carries out a transfer; returns where it goes."""
        tensor, to = self._transfer(item)
        self.hold(tensor, to, self._held[tensor, self._home(tensor)])
        return to

    def run(self, op: int) -> int:
        """Carries out an op, inputs excepted; returns where it runs."""
        on, eqn = self.device[op], self.equations[op]
        if eqn is not None:
            for k, value in enumerate(self._evaluate(eqn, on)):
                self.hold(self.first_tensor[op] + k, on, value)
        return on

    def release(self, item: int) -> None:
        """Drops what an item was the last to read, and what nobody reads."""
        if item >= self.problem.shape.ops:
            tensor, _ = self._transfer(item)
            self._was_read(tensor, self._home(tensor))
            return
        on, first = self.device[item], np.asarray(self.problem.first_read)
        for tensor in self.problem.read[first[item] : first[item + 1]].tolist():
            self._was_read(tensor, on)
        for tensor in range(self.first_tensor[item], self.first_tensor[item + 1]):
            self._drop_if_dead(tensor, on)

    def read(self, atom: Atom, on: int | None) -> Any:
        """Returns the value of a variable or literal on a device; without one, where it is."""
        if not isinstance(atom, Var):
            return atom.val
        if atom in self._tensor:
            tensor = self._tensor[atom]
            return self._held[tensor, self._home(tensor) if on is None else on]
        eqn, output = self._views[atom]
        return self._evaluate(eqn, on)[output]

    def _evaluate(self, eqn: JaxprEqn, on: int | None) -> list[Any]:
        with jax.default_device(None if on is None else self.devices[on]):
            return run_equation(eqn, [self.read(atom, on) for atom in eqn.invars])

    def _home(self, tensor: int) -> int:
        return self.device[int(self.problem.producer[tensor])]

    def _transfer(self, item: int) -> tuple[int, int]:
        return divmod(item - self.problem.shape.ops, self.problem.num_devices)

    def _expect(self, tensor: int, on: int) -> None:
        self._left[tensor, on] = self._left.get((tensor, on), 0) + 1

    def _was_read(self, tensor: int, on: int) -> None:
        self._left[tensor, on] -= 1
        self._drop_if_dead(tensor, on)

    def _drop_if_dead(self, tensor: int, on: int) -> None:
        stays = bool(self.problem.pinned[tensor]) and on == self._home(tensor)
        if not self._left.get((tensor, on)) and not stays:
            self.used[on] -= self._held.pop((tensor, on)).nbytes
