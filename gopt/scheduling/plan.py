"""Plans: decisions on the kernels of a function, kept in a file and carried out again."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import jax

from gopt.host.files import read_fields, read_value
from gopt.program.effects import DropEffects, drop
from gopt.program.hashing import check_fingerprint, fingerprint
from gopt.program.program import Program, trace_program, unroll
from gopt.scheduling.candidate import KernelSchedule
from gopt.scheduling.staged import Staged
from gopt.scheduling.stages import Transfer
from gopt.xla import Group, group, merge_duplicates
from gopt.xla.applied import apply_executable, executable, jit_donating, own_executable
from gopt.xla.buffers import unshared_graph
from gopt.xla.grouping import check_groups
from gopt.xla.ordered import COMPILER_OPTIONS, check_options, check_order, jit_ordered, ordered
from gopt.xla.recomputed import in_free_order, repeated

_INDEX = range(2**31)
_KINDS = {
    **{"fingerprint": str, "platform": str, "max_trips": _INDEX, "merged": bool},
    **{"groups": [[_INDEX]], "runs": [_INDEX], "workspace": [float], "device": [_INDEX]},
    **{"transfers": [[_INDEX]], "peak": [range(2**63)], "options": (None, dict)},
    **{"is_free": bool},
}


@dataclass(frozen=True, repr=False)
class SchedulePlan:
    """A schedule of a function: its kernels in order, and the devices that they run on.

    Attributes:
      fingerprint: digest of the program, see `fingerprint`.
      platform: backend of the kernels, such as "cpu".
      max_trips: every `scan` of at most so many iterations is unrolled.
      merged: whether equations that compute the same are merged first.
      groups: equations of each kernel, in the order of first runs. `[K]`
      runs: kernel of each run, in order; kernels may run more than once.
      workspace: bytes that each kernel needs only while it runs. `[K]`
      device: device of each op: arguments, captured arrays, kernels that are not views. `[N]`
      transfers: transfers between devices, in order.
      peak: bytes that each device holds by the model. `[D]`
      options: compiler options, if XLA's own program needs least; `None` for a plan of gopt.
      is_free: whether XLA orders kernels, and second runs alone wait.
    """

    fingerprint: str
    platform: str
    max_trips: int
    merged: bool
    groups: tuple[Group, ...]
    runs: tuple[int, ...]
    workspace: tuple[float, ...]
    device: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    peak: tuple[int, ...]
    options: dict[str, Any] | None = None
    is_free: bool = False

    def __repr__(self) -> str:
        return (
            f"<SchedulePlan of {len(self.groups)} kernels on {len(self.peak)} {self.platform} "
            f"devices, program {self.fingerprint}>"
        )

    def row(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return dataclasses.asdict(self)

    def apply(
        self,
        fn: Callable[..., Any],
        *args: Any,
        donate_argnums: int | Sequence[int] = (),
        devices: Sequence[jax.Device] | None = None,
        nested: bool = False,
        drop_effects: DropEffects = None,
    ) -> Any:
        """Return `fn` as planned; it has the signature and the values of `fn`.

        A plan for one device gives a jitted function, whose order was checked on CPUs; a plan
        for several gives a function that is driven from the host, and refuses tracers.

        Args:
          fn: the function that was planned, or one that is traced to the same equations.
          *args: as it was planned for; shapes are enough.
          donate_argnums: positions of the arguments whose buffers may be reused.
          devices: for each device of the plan one to run on, by default the first ones of JAX. One
            may stand for several. A plan for one device may leave it to the arguments.
          nested: whether to leave compiler options out always; see `gopt.result.Result.apply`.
          drop_effects: as it was given to the verb.

        Raises:
          ValueError: the plan is of another program or backend, a device is missing, or XLA does
            not keep the order; the message says which.
        """
        fn = drop(fn, drop_effects)
        program = trace_program(fn, *args, donate_argnums=donate_argnums)
        program = unroll(program, max_trips=self.max_trips) if self.max_trips else program
        check_fingerprint(program, self.fingerprint)
        if self.options is None:
            return self.carry_out(program, devices, nested=nested)
        first = self._devices(devices)[0]
        run = own_executable(fn, self.options, program, donate_argnums, first)
        return apply_executable(run, name=repr(self), nested=nested)

    def carry_out(
        self,
        program: Program,
        devices: Sequence[jax.Device] | None = None,
        *,
        nested: bool = False,
    ) -> Any:
        """Return the function of the program that was planned, as in `apply`."""
        kernels, found = self.kernels(program), self._devices(devices)
        if self.is_free:
            free = in_free_order(kernels, self.runs)
            options = COMPILER_OPTIONS.get(self.platform)
            function = jit_donating(free, kernels, options, found[0])
            run = executable(free, options, kernels, function=function)
            return apply_executable(run, name=repr(self), nested=nested)
        if len(self.peak) == 1:
            function = jit_ordered(kernels, found[0])
            if self.platform in COMPILER_OPTIONS:  # others may change the order
                check_order(kernels, function.lower(*program.arguments()).compile())
            options = COMPILER_OPTIONS.get(self.platform)
            run = executable(ordered(kernels), options, kernels, function=function)
            return apply_executable(run, name=repr(self), nested=nested)
        if nested:
            raise ValueError(
                f"nested is given: expected False, a function on {len(self.peak)} devices is "
                "driven from the host"
            )
        ends = (kernel.outvars[0] for kernel in kernels.equations)
        workspace = dict(zip(ends, self.workspace, strict=True))
        traced = unshared_graph(kernels, workspace)
        if len(self.device) != int(traced.graph.num_ops):
            raise ValueError(
                f"the plan has devices for {len(self.device)} ops: "
                f"expected {int(traced.graph.num_ops)}"
            )
        return Staged(traced, workspace, self.device, self.transfers, self.peak, found)

    def _devices(self, devices: Sequence[jax.Device] | None) -> Sequence[Any]:
        """Return the devices of the plan; for a single one `None` if arguments say where it is."""
        count = len(self.peak)
        found: Sequence[Any] = devices if devices is not None else [None]
        if devices is None and count > 1:
            found = jax.devices()
        if len(found) < count:
            raise ValueError(
                f"device {len(found)} is missing: expected {count} devices; one may be named twice"
            )
        for k, device in enumerate(found):
            if not isinstance(device, jax.Device | None):
                raise ValueError(f"devices[{k}] is {device!r}: expected a device of JAX")
        platform = found[0].platform if found[0] else jax.default_backend()
        if platform != self.platform:
            raise ValueError(f"the plan is for the kernels of {self.platform}, not of {platform}")
        return found[:count]

    def kernels(self, program: Program) -> Program:
        """Return the program that was planned as kernels, in the order of the plan."""
        program = merge_duplicates(program) if self.merged else program
        return repeated(group(program, self.groups), self.runs)


def read_plan(row: dict[str, Any]) -> SchedulePlan:
    """Return a plan from its JSON values.

    Raises:
      ValueError: a field is of another type or out of range. The message names it.
    """
    fields = read_fields(row, _KINDS)
    for k, sent in enumerate(fields["transfers"]):
        if len(sent) != len(Transfer._fields):
            raise ValueError(f"transfers[{k}] is {sent}: expected {', '.join(Transfer._fields)}")
    plan = SchedulePlan(
        **{**fields, "transfers": tuple(Transfer(*sent) for sent in fields["transfers"])}
    )
    _check(plan)
    return plan


def _check(plan: SchedulePlan) -> None:
    check_groups(plan.groups)
    if len(plan.workspace) != len(plan.groups):
        raise ValueError(
            f"workspace has {len(plan.workspace)} entries: expected one for each group"
        )
    if list(dict.fromkeys(plan.runs)) != list(range(len(plan.groups))):
        raise ValueError(
            f"runs is {plan.runs}: expected each of 0..{len(plan.groups) - 1}, first runs in order"
        )
    if len(plan.runs) > len(plan.groups) and len(plan.peak) > 1:
        raise ValueError("runs has a kernel twice on several devices: expected each once")
    if plan.is_free and (len(plan.peak) > 1 or plan.options is not None):
        raise ValueError("is_free is true: expected false for several devices, or with options")
    if not plan.peak:
        raise ValueError("peak is empty: expected one for each device")
    devices, ops = range(len(plan.peak)), range(len(plan.device))
    read_value([*plan.device], [devices], "device")
    if plan.options is not None:
        check_options(plan.options)
        if len(plan.peak) > 1:
            raise ValueError("options are given for several devices: expected null")
    first: dict[tuple[int, ...], int] = {}
    for k, sent in enumerate(plan.transfers):
        before = plan.transfers[k - 1].before if k else 0
        if (
            sent.op not in ops
            or not sent.op < sent.before <= len(ops)
            or sent.device not in devices
            or sent.device == plan.device[sent.op]
            or sent.before < before
        ):
            raise ValueError(
                f"transfers[{k}] is {tuple(sent)}: expected the next transfer of an op in "
                f"0..{len(ops) - 1} that has run, to another device in 0..{len(devices) - 1}"
            )
        if first.setdefault(sent[1:], k) < k:
            raise ValueError(f"transfers[{k}] is transfers[{first[sent[1:]]}] again")


def make_plan(candidate: KernelSchedule, program: Program, max_trips: int) -> SchedulePlan:
    """Return the plan that carries a schedule out.

    Args:
      candidate: a schedule of the kernels of the program.
      program: as it was traced, with every `scan` of at most `max_trips` iterations unrolled.
      max_trips: see `SchedulePlan`.
    """
    kernels, schedule = candidate.kernels, candidate.schedule
    group_of = dict(zip(map(id, kernels.program.equations), kernels.groups, strict=True))
    order = candidate.order.equations
    parts = [group_of[id(kernel)] for kernel in order]
    first = {part: k for k, part in reversed([*enumerate(parts)])}
    first = dict(sorted(first.items(), key=itemgetter(1)))
    index = {part: k for k, part in enumerate(first)}
    ops = candidate.problem.shape.ops
    items = schedule.order[: int(schedule.num_items)].tolist()
    sources = [op for op, index in enumerate(candidate.traced.equations) if index < 0]
    run = [op for op in items if op < ops and candidate.traced.equations[op] >= 0]
    number = {op: k for k, op in enumerate((*sources, *run))}
    transfers, ran = [], len(sources)
    for item in items:
        if item >= ops:
            tensor, device = divmod(item - ops, candidate.problem.num_devices)
            op = int(candidate.problem.producer[tensor])
            output = tensor - int(candidate.problem.first_tensor[op])
            transfers.append(Transfer(ran, number[op], output, device))
        ran += item in number and number[item] >= len(sources)
    return SchedulePlan(
        fingerprint=fingerprint(program),
        platform=kernels.target.platform,
        max_trips=max_trips,
        merged=kernels.merged,
        groups=tuple(first),
        runs=tuple(index[part] for part in parts),
        workspace=tuple(kernels.workspace[order[k].outvars[0]] for k in first.values()),
        device=tuple(schedule.device[[*sources, *run]].tolist()),
        transfers=tuple(transfers),
        peak=candidate.peak,
        options=candidate.options,
        is_free=candidate.is_free,
    )
