"""`Result`: the decision of a verb, the programs that were compared, and how to apply it."""

import html
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import jax

from gopt.host.files import write_whole
from gopt.measure.timing import Memory, Times, median_ratio, memory
from gopt.plots.tables import aligned, candidate_cells
from gopt.program.program import Program
from gopt.xla.applied import Executable, apply_executable, fold_constants

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 2  # of files with decisions

# Record of a decision: `KernelSchedule`, `Fusion`, or `RewrittenProgram | None`.
DecisionT = TypeVar("DecisionT")


class Candidate(NamedTuple, Generic[DecisionT]):
    """One way to run a function, as predicted and as measured.

    Attributes:
      name: name in the table.
      decision: record of the decision; its type depends on the verb.
      predicted: cost by the model; the report has the unit: bytes without arguments, or s. `None`
        if the model has no cost.
      memory: bytes as XLA plans them, folded constants among the arguments; `None` if the candidate
        was not compiled.
      folded_bytes: bytes of folded constants.
      times: process and wall seconds per call, by round; `None` if the candidate was not timed.
      base_times: times of the first candidate in the same rounds.
      executable: the program that was measured; `None` if the candidate was not compiled.
    """

    name: str
    decision: DecisionT
    predicted: float | None = None
    memory: Memory | None = None
    folded_bytes: int = 0
    times: Times | None = None
    base_times: Times | None = None
    executable: Executable | None = None

    def nested(self, args: tuple[Any, ...]) -> "Candidate[DecisionT]":
        """Return the candidate as it is inside other functions, without compiler options; compiled.

        Args:
          args: arguments of the function; shapes are enough.

        Raises:
          ValueError: the candidate was not compiled.
        """
        if self.executable is None:
            raise ValueError(f"candidate {self.name!r} was not compiled")
        function = self.executable.nested
        return self._replace(
            name=f"{self.name}, nested",
            memory=memory(function.lower(*args).compile()),
            executable=Executable(function, function, {}),
        )

    def ratio(self, clock: Literal["process", "wall"] = "process") -> tuple[float, float, float]:
        """Return the median time as a share of the first candidate's, and its 95 % interval.

        Args:
          clock: "process" for the time of all cores, "wall" for elapsed time.

        Raises:
          ValueError: the candidate was not timed.
        """
        if self.times is None or self.base_times is None:
            raise ValueError(f"candidate {self.name!r} was not timed")
        return median_ratio(getattr(self.times, clock), getattr(self.base_times, clock))


class Plan(Protocol):
    """A decision without the function: it can be saved, and applied to the function again."""

    def apply(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return `fn` as decided; `Result.apply` describes the options."""

    def row(self) -> dict[str, Any]:
        """Return the decision as JSON values, without weights."""


class Report(Protocol):
    """The parts of a result that differ between verbs."""

    @property
    def verb(self) -> str:
        """Name of the verb: "schedule", "fuse" or "rewrite"."""

    @property
    def unit(self) -> str:
        """Unit of predicted costs, "B" or "s"."""

    @property
    def constant_argnums(self) -> tuple[int, ...]:
        """Positions of the arguments whose values may be folded."""

    def header(self, result: "Result") -> str:
        """Return the line above the table."""

    def notes(self, result: "Result") -> list[str]:
        """Return lines below the table."""

    def plan(self, result: "Result") -> Plan:
        """Return the decision as a plan."""

    def plot(self, result: "Result") -> "Figure":
        """Return the picture of the result."""


ReportT = TypeVar("ReportT", bound=Report)


@dataclass(frozen=True, eq=False, repr=False)
class Result(Generic[DecisionT, ReportT]):
    """The decision of `gopt.schedule`, `gopt.fuse` or `gopt.rewrite`. Print it for a table.

    Attributes:
      program: the function as equations.
      candidates: everything that was compared. The first one is the function without gopt.
      chosen: index of the candidate that `apply()` returns.
      reason: reason of the choice, in words.
      report: details of the verb, such as the rules that were applied.
      chosen_folded: index of the candidate that `apply(constants=...)` returns; `None` if the
        function has neither constant arguments nor captured arrays.
      reason_folded: reason of that choice.

    Example:
      import gopt, jax.numpy as jnp

      result = gopt.schedule(lambda x: jnp.tanh(x @ x.T) @ x, jnp.ones((64, 64)), evaluations=50)
      print(result)  # a row for each candidate
      result.after.memory.without_arguments  # bytes of outputs and temporaries
      fn = result.apply()
    """

    program: Program
    candidates: tuple[Candidate[DecisionT], ...]
    chosen: int
    reason: str
    report: ReportT
    chosen_folded: int | None = None
    reason_folded: str = ""

    @property
    def before(self) -> Candidate[DecisionT]:
        """The function without gopt; with `hardware=`, its program order on device 0."""
        return self.candidates[0]

    @property
    def after(self) -> Candidate[DecisionT]:
        """The candidate that was chosen."""
        return self.candidates[self.chosen]

    @property
    def after_folded(self) -> Candidate[DecisionT] | None:
        """The candidate that was chosen for folded constants, if there is one."""
        return None if self.chosen_folded is None else self.candidates[self.chosen_folded]

    def __getitem__(self, name: str) -> Candidate[DecisionT]:
        """Return a candidate by its name."""
        for candidate in self.candidates:
            if candidate.name == name:
                return candidate
        names = ", ".join(repr(candidate.name) for candidate in self.candidates)
        raise KeyError(f"no candidate is named {name!r}: expected one of {names}")

    @cached_property
    def plan(self) -> Plan:
        """The decision without the function, see `save`."""
        return self.report.plan(self)

    def apply(
        self,
        *,
        constants: Mapping[int, Any] | None = None,
        nested: bool = False,
        devices: Sequence[jax.Device] | None = None,
    ) -> Any:
        """Return the function as decided: the program that was measured, of the same arguments.

        Inside `jax.jit`, `jax.grad`, `jax.vmap` or another verb it traces the same equations
        without compiler options, and warns once that measured bytes and times do not hold there.
        A function for several devices is driven from the host, and refuses tracers.

        Args:
          constants: values of the constant arguments of `gopt.rewrite`, by position. A function
            of the other arguments is returned. Values that depend on constants alone are computed
            once, in this call.
          nested: whether compiler options are always left out, without a warning.
          devices: a JAX device for each device of the hardware that `gopt.schedule` was given; by
            default the first ones. One may stand for several.

        Raises:
          ValueError: constants, `nested` or devices are given for a result that has none; or a
            device is missing.
        """
        if self.after.executable is None:
            if constants is not None:
                raise ValueError("constants are given: expected none, nothing was decided for them")
            plan: Any = self.plan  # of a schedule: other verbs compile all candidates
            return plan.carry_out(self.program, devices, nested=nested)
        if devices is not None:
            raise ValueError("devices are given: expected none, the arguments say where to run")
        if constants is None:
            return apply_executable(
                self.after.executable, name=f"candidate {self.after.name!r}", nested=nested
            )
        if self.after_folded is None or self.after_folded.executable is None:
            raise ValueError("constants are given: expected none, nothing was decided for them")
        check_constants(constants, self.report.constant_argnums)
        return fold_constants(self.after_folded.executable, constants, self.program, nested=nested)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the decision to a JSON file, whole or not at all; weights are not in it.

        `gopt.load(path).apply(fn, *args)` returns the function as decided.
        """
        save_plan(path, self.report.verb, self.plan)

    def plot(self) -> "Figure":
        """Return a figure: memory in use, Gantt chart, progress of the search, or times."""
        return self.report.plot(self)

    def policy(self) -> Any:
        """Return what `jax.checkpoint` needs to hold the same values, of `gopt.schedule(memory=)`.

        Its `names` are for `jax.checkpoint_policies.save_only_these_names`, if the values that the
        decision holds are named by `jax.ad_checkpoint.checkpoint_name`; wrap the function that is
        differentiated. Else `names` is `None`, and `reason` says why.

        Raises:
          ValueError: the result is of something else.
        """
        if not hasattr(self.report, "policy"):
            raise ValueError("the result has no policy: expected one of gopt.schedule(memory=)")
        return self.report.policy(self)

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each candidate: bytes, least seconds, and ratios to the first one."""
        return [_row(candidate) for candidate in self.candidates]

    def __str__(self) -> str:
        lines = aligned(candidate_cells(self.table(), self.report.unit))
        return "\n".join([self.report.header(self), *lines, *self._last_lines()])

    def __repr__(self) -> str:
        return (
            f"<Result of gopt.{self.report.verb}: {self.after.name!r} "
            f"of {len(self.candidates)} candidates>"
        )

    def _repr_html_(self) -> str:
        cells = candidate_cells(self.table(), self.report.unit)
        first, *others = (list(map(html.escape, row)) for row in cells)
        head = "".join(f"<th>{cell}</th>" for cell in first)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in others)
        last = "<br>".join(map(html.escape, self._last_lines()))
        return (
            f"<p>{html.escape(self.report.header(self))}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{last}</p>"
        )

    def _last_lines(self) -> list[str]:
        """Return the lines below the table."""
        lines = [*self.report.notes(self), f"chosen: {self.after.name} ({self.reason})"]
        if self.after_folded is not None:
            lines.append(
                f"chosen for apply(constants=...): {self.after_folded.name} ({self.reason_folded})"
            )
        return lines


def check_constants(constants: Mapping[int, Any], positions: Sequence[int]) -> None:
    """Check that constant arguments are given by their positions.

    Raises:
      ValueError: there is another position, or one is missing.
    """
    if not isinstance(constants, Mapping) or set(constants) != set(positions):
        given = sorted(constants) if isinstance(constants, Mapping) else type(constants).__name__
        raise ValueError(
            f"constants has {given}: expected values by position, for {sorted(positions)}"
        )


def save_plan(path: str | os.PathLike[str], verb: str, plan: Plan) -> None:
    """Write a plan to a JSON file, whole or not at all."""
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps({"format": FORMAT, "verb": verb, **plan.row()}) + "\n")


def flag_note(options: Mapping[str, Any]) -> str:
    """Return a sentence that names XLA's own flags, where these are what helped."""
    flags = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"; XLA's own program with its flag {flags}, without a decision of gopt" if flags else ""


def _row(candidate: Candidate[Any]) -> dict[str, Any]:
    """Return the figures of a candidate, `None` where there are none."""
    memory, times = candidate.memory, candidate.times
    row: dict[str, Any] = {"name": candidate.name, "predicted": candidate.predicted}
    row["arguments"] = memory and memory.arguments - candidate.folded_bytes
    row["folded"] = candidate.folded_bytes if memory else None
    for field in ("temporaries", "outputs", "aliases", "without_arguments"):
        row[field] = memory and getattr(memory, field)
    for clock in ("process", "wall"):
        row[f"{clock} s"] = times and float(getattr(times, clock).min())
        row[f"{clock} ratio"] = times and candidate.ratio(clock)
    return row
