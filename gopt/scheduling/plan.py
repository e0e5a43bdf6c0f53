"""Plans: decisions on the kernels of a function, kept in a file and carried out again."""

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jax.sharding import SingleDeviceSharding

from gopt.files import write_whole
from gopt.program.program import Program, trace_program, unroll
from gopt.scheduling.candidate import Candidate
from gopt.scheduling.staged import Staged
from gopt.scheduling.stages import Transfer
from gopt.xla import Group, group, merge_duplicates
from gopt.xla.buffers import unshared_graph
from gopt.xla.ordered import check_order, jit_ordered

_FORMAT = 1
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Plan:
    """How a function should run: its kernels in order, and on which devices.

    Attributes:
      fingerprint: of the program, see `fingerprint`.
      platform: backend whose kernels they are, such as "cpu".
      max_trips: every `scan` of at most so many iterations is unrolled.
      merged: whether equations that compute the same are merged first.
      groups: equations of each kernel, in the order in which the kernels run. `[K]`
      workspace: bytes that each kernel needs only while it runs. `[K]`
      device: of each op: arguments, captured arrays, kernels that are no views. `[N]`
      transfers: what goes from one device to another, in order.
      peak: bytes that each device holds by the model. `[D]`
      options: of the compiler, if XLA's own program needs least; `None` for a plan of gopt.
    """

    fingerprint: str
    platform: str
    max_trips: int
    merged: bool
    groups: tuple[Group, ...]
    workspace: tuple[float, ...]
    device: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    peak: tuple[int, ...]
    options: dict[str, Any] | None = None

    def apply(
        self,
        fn: Callable[..., Any],
        *args: Any,
        donate_argnums: int | Sequence[int] = (),
        devices: Sequence[jax.Device] | None = None,
    ) -> Any:
        """Returns `fn` as planned; it has the signature and the values of `fn`.

        A plan for one device gives a jitted function, whose order was checked; one for several
        gives a `gopt.scheduling.staged.Staged`.

        Args:
          fn: the function that was planned, or one that is traced to the same equations.
          *args: as it was planned for; shapes are enough.
          donate_argnums: positions of the arguments whose buffers may be reused.
          devices: for each device of the plan one to run on, by default the first ones of JAX. One
            may stand for several. A plan for one device may leave it to the arguments.

        Raises:
          ValueError: the plan is of another program or backend, a device is missing, or XLA does
            not keep the order; the message says which.
        """
        program = trace_program(fn, *args, donate_argnums=donate_argnums)
        program = unroll(program, max_trips=self.max_trips) if self.max_trips else program
        if fingerprint(program) != self.fingerprint:
            raise ValueError(
                f"the plan is of another program: fn has {len(program.equations)} equations on "
                f"{len(program.inputs)} arrays, fingerprint {fingerprint(program)}, "
                f"expected {self.fingerprint}"
            )
        if self.options is not None:
            first = self._devices(devices)[0]
            return jax.jit(
                fn,
                donate_argnums=donate_argnums,
                compiler_options=self.options,
                out_shardings=SingleDeviceSharding(first) if first else None,
            )
        return self.carry_out(program, devices)

    def carry_out(self, program: Program, devices: Sequence[jax.Device] | None = None) -> Any:
        """Returns the function of the program that was planned, as in `apply`."""
        kernels, found = self.kernels(program), self._devices(devices)
        if len(self.peak) == 1:
            function = jit_ordered(kernels, found[0])
            check_order(kernels, function.lower(*program.arguments()).compile())
            return function
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
        """Returns the devices of the plan; for a single one `None` if arguments say where it is."""
        count = len(self.peak)
        found: Sequence[Any] = devices if devices is not None else [None]
        if devices is None and count > 1:
            found = jax.devices()
        if len(found) < count:
            raise ValueError(
                f"device {len(found)} is missing: expected {count} devices; one may be named twice"
            )
        platform = found[0].platform if found[0] else jax.default_backend()
        if platform != self.platform:
            raise ValueError(f"the plan is for the kernels of {self.platform}, not of {platform}")
        return found[:count]

    def kernels(self, program: Program) -> Program:
        """Returns the program that was planned as kernels, in the order of the plan."""
        source = merge_duplicates(program) if self.merged else program
        for k, part in enumerate(self.groups):
            if not all(0 <= index < len(source.equations) for index in part):
                raise ValueError(f"groups[{k}] is {part}: expected equations of the program")
        return group(source, self.groups)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a JSON file, whole or not at all."""
        with write_whole(path) as temporary:
            row = {"format": _FORMAT, **dataclasses.asdict(self)}
            temporary.write_text(json.dumps(row) + "\n")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Returns the plan in a file that `Plan.save` wrote.

    Raises:
      ValueError: the file is no plan, or of another version.
    """
    try:
        row = json.loads(Path(path).read_text())
        if row.pop("format") != _FORMAT:
            raise ValueError("another version")
        plan = Plan(
            **{
                **row,
                "max_trips": int(row["max_trips"]),
                "groups": tuple(tuple(map(int, part)) for part in row["groups"]),
                "workspace": tuple(map(float, row["workspace"])),
                "device": tuple(map(int, row["device"])),
                "transfers": tuple(Transfer(*map(int, sent)) for sent in row["transfers"]),
                "peak": tuple(map(int, row["peak"])),
            }
        )
        _check(plan)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no plan of gopt, format {_FORMAT}: {error}") from error
    return plan


def _check(plan: Plan) -> None:
    devices = range(len(plan.peak))
    if len(plan.workspace) != len(plan.groups):
        raise ValueError(
            f"workspace has {len(plan.workspace)} entries: expected one for each group"
        )
    if not all(0 <= needed < math.inf for needed in (*plan.workspace, *plan.peak)):
        raise ValueError("workspace or peak has an entry that is no number of bytes")
    if not isinstance(plan.options, dict | None) or not isinstance(plan.merged, bool):
        raise ValueError(f"options is {plan.options!r}, merged {plan.merged!r}")
    if not plan.peak:
        raise ValueError("peak is empty: expected one for each device")
    for op, on in enumerate(plan.device):
        if on not in devices:
            raise ValueError(f"device[{op}] is {on}: expected 0..{len(devices) - 1}")


def make_plan(candidate: Candidate, program: Program, max_trips: int) -> Plan:
    """Returns the plan that carries a candidate out.

    Args:
      candidate: a schedule of the kernels of the program.
      program: as it was traced, with every `scan` of at most `max_trips` iterations unrolled.
      max_trips: see `Plan`.
    """
    kernels, schedule = candidate.kernels, candidate.schedule
    groups = dict(zip(map(id, kernels.program.equations), kernels.groups, strict=True))
    order = candidate.order.equations
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
    return Plan(
        fingerprint=fingerprint(program),
        platform=jax.default_backend(),
        max_trips=max_trips,
        merged=kernels.merged,
        groups=tuple(groups[id(kernel)] for kernel in order),
        workspace=tuple(kernels.workspace[kernel.outvars[0]] for kernel in order),
        device=tuple(schedule.device[[*sources, *run]].tolist()),
        transfers=tuple(transfers),
        peak=candidate.peak,
        options=candidate.options,
    )


def fingerprint(program: Program) -> str:
    """Returns a hash of a program: equal for functions that are traced to the same equations.

    Captured arrays count by shape and dtype.
    """
    digest = hashlib.sha256()
    for line in _lines(program.jaxpr().jaxpr):
        digest.update(line.encode())
    digest.update(repr(program.donated).encode())
    return digest.hexdigest()[:16]


def _lines(jaxpr: Jaxpr) -> Iterator[str]:
    """Yields what makes a jaxpr what it is: no names, no addresses of objects."""
    number: dict[Var, int] = {}

    def name(atom: Any) -> str:
        if isinstance(atom, Literal):
            return f"{atom.val!r}:{atom.aval.str_short()}"
        return f"{number.setdefault(atom, len(number))}:{atom.aval.str_short()}"

    yield " ".join(map(name, (*jaxpr.constvars, *jaxpr.invars)))
    for equation in jaxpr.eqns:
        reads, makes = (" ".join(map(name, atoms)) for atoms in (equation.invars, equation.outvars))
        yield f"\n{makes} = {equation.primitive.name} {reads}"
        for key, value in sorted(equation.params.items()):
            if key != "name":  # of what is called
                yield f"\n {key}"
                yield from _value(value)
    yield "\n" + " ".join(map(name, jaxpr.outvars))


def _value(value: Any) -> Iterator[str]:
    """Yields the value of a parameter of an equation."""
    if isinstance(value, ClosedJaxpr):
        value = value.jaxpr
    if isinstance(value, Jaxpr):
        yield from _lines(value)
    elif isinstance(value, tuple | list):
        yield "("
        for part in value:
            yield from _value(part)
        yield ")"
    elif isinstance(value, frozenset):
        yield from sorted(map(repr, value))
    else:
        yield f" {_ADDRESS.sub('', repr(value))}"
