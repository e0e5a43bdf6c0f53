"""Plans: decisions on the kernels of a function, kept in a file and carried out again."""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from gopt.apply import check_order, jit_ordered
from gopt.candidates import Candidate
from gopt.files import write_whole
from gopt.kernels import Group, group, merge_duplicates
from gopt.kernels.buffers import unshared_graph
from gopt.placement import Staged
from gopt.program import Program, trace_program, unroll
from gopt.stages import Transfer, stages

_FORMAT = 1
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Plan:
    """How a function should run: its kernels in order, and on which devices.

    Attributes:
      fingerprint: of the program, see `fingerprint`.
      max_trips: every `scan` of at most so many iterations is unrolled.
      merged: whether equations that compute the same are merged first.
      groups: equations of each kernel, in the order in which the kernels run. `[K]`
      workspace: bytes that each kernel needs only while it runs. `[K]`
      device: of each op: arguments, captured arrays, kernels that are no views. `[N]`
      transfers: what goes from one device to another, in order.
      peak: bytes that each device holds by the model. `[D]`
    """

    fingerprint: str
    max_trips: int
    merged: bool
    groups: tuple[Group, ...]
    workspace: tuple[float, ...]
    device: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    peak: tuple[int, ...]

    def apply(
        self,
        fn: Callable[..., Any],
        *args: Any,
        donate_argnums: int | Sequence[int] = (),
        devices: Sequence[jax.Device] | None = None,
    ) -> Any:
        """Returns `fn` as planned; it has the signature and the values of `fn`.

        A plan for one device gives a jitted function, whose order was checked; one for several
        gives a `gopt.placement.Staged`.

        Args:
          fn: the function that was planned, or one that is traced to the same equations.
          *args: as it was planned for; shapes are enough.
          donate_argnums: positions of the arguments whose buffers may be reused.
          devices: for each device of the plan one to run on, by default the first ones of JAX. One
            may stand for several.

        Raises:
          ValueError: the plan is of another program, a device is missing, or XLA does not keep the
            order; the message says which.
        """
        program = trace_program(fn, *args, donate_argnums=donate_argnums)
        program = unroll(program, max_trips=self.max_trips) if self.max_trips else program
        if fingerprint(program) != self.fingerprint:
            raise ValueError(
                f"the plan is of another program: fn has {len(program.equations)} equations on "
                f"{len(program.inputs)} arrays, fingerprint {fingerprint(program)}, "
                f"expected {self.fingerprint}"
            )
        function = self.carry_out(program, devices)
        if len(self.peak) == 1:
            check_order(self.kernels(program), function.lower(*args).compile())
        return function

    def carry_out(self, program: Program, devices: Sequence[jax.Device] | None = None) -> Any:
        """Returns the function of the program that was planned, as in `apply`."""
        kernels = self.kernels(program)
        if len(self.peak) == 1:
            return jit_ordered(kernels)
        devices = jax.devices() if devices is None else devices
        if len(devices) < len(self.peak):
            raise ValueError(
                f"device {len(devices)} is missing: expected {len(self.peak)} devices; "
                "one may be named twice"
            )
        workspace = zip((e.outvars[0] for e in kernels.equations), self.workspace, strict=True)
        traced = unshared_graph(kernels, dict(workspace))
        actions = stages(traced, self.device, self.transfers, self.peak)
        return Staged(traced, self.device, actions, devices[: len(self.peak)])

    def kernels(self, program: Program) -> Program:
        """Returns the program that was planned as kernels, in the order of the plan."""
        return group(merge_duplicates(program) if self.merged else program, self.groups)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a JSON file, whole or not at all."""
        with write_whole(path) as temporary:
            row = {"format": _FORMAT, **dataclasses.asdict(self)}
            temporary.write_text(json.dumps(row) + "\n")


def make_plan(candidate: Candidate, program: Program, max_trips: int) -> Plan:
    """Returns the plan that carries a candidate out.

    Args:
      candidate: a schedule of the kernels of the program; not XLA's own.
      program: as it was traced, with every `scan` of at most `max_trips` iterations unrolled.
      max_trips: see `Plan`.
    """
    kernels, schedule = candidate.kernels, candidate.schedule
    assert kernels is not None  # checked by the caller
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
        max_trips=max_trips,
        merged=kernels.merged,
        groups=tuple(groups[id(kernel)] for kernel in order),
        workspace=tuple(kernels.workspace[kernel.outvars[0]] for kernel in order),
        device=tuple(schedule.device[[*sources, *run]].tolist()),
        transfers=tuple(transfers),
        peak=candidate.peak,
    )


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Returns the plan in a file that `Plan.save` wrote.

    Raises:
      ValueError: the file is no plan, or of another version.
    """
    try:
        row = json.loads(Path(path).read_text())
        if row.pop("format") != _FORMAT:
            raise ValueError("another version")
        return Plan(
            **{
                **row,
                "groups": tuple(map(tuple, row["groups"])),
                "workspace": tuple(row["workspace"]),
                "device": tuple(row["device"]),
                "transfers": tuple(Transfer(*sent) for sent in row["transfers"]),
                "peak": tuple(row["peak"]),
            }
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no plan of gopt, format {_FORMAT}: {error}") from error


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
        for part in value:
            yield from _value(part)
    elif isinstance(value, frozenset):
        yield from sorted(map(repr, value))
    else:
        yield f" {_ADDRESS.sub('', repr(value))}"
