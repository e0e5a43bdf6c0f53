"""Plans of fusion: the kernels of a function in a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gopt.host.files import read_fields
from gopt.program.effects import DropEffects, drop
from gopt.program.hashing import check_fingerprint, fingerprint
from gopt.program.program import Program, trace_program
from gopt.xla import Group, simplify
from gopt.xla.applied import Executable, apply_executable, executable, own_executable
from gopt.xla.fused import fused
from gopt.xla.grouping import check_groups
from gopt.xla.ordered import check_options

_KINDS = {
    **{"fingerprint": str, "simplified": bool, "groups": (None, [[range(2**31)]])},
    "options": dict,
}


class Fusion(NamedTuple):
    """A decision on the kernels of a function.

    Attributes:
      simplified: whether the equations are simplified first, see `gopt.xla.simplify`.
      fuse: bool `[N]`, whether each op is fused into its readers; `None` if XLA fuses.
      groups: equations of each kernel; `None` if XLA fuses.
      options: compiler options.
    """

    simplified: bool
    fuse: np.ndarray | None
    groups: tuple[Group, ...] | None
    options: dict[str, Any]

    @property
    def kernels(self) -> int | None:
        """Number of kernels; `None` if XLA fuses."""
        return None if self.groups is None else len(self.groups)


@dataclass(frozen=True, repr=False)
class FusionPlan:
    """Kernels of a function.

    Attributes:
      fingerprint: of the function's program.
      simplified: whether the equations are simplified first, see `gopt.xla.simplify`.
      groups: equations of each kernel; `None` if XLA fuses.
      options: compiler options.
    """

    fingerprint: str
    simplified: bool
    groups: tuple[Group, ...] | None
    options: dict[str, Any]

    def __repr__(self) -> str:
        kernels = "XLA's kernels" if self.groups is None else f"{len(self.groups)} kernels"
        return f"<FusionPlan of {kernels}, program {self.fingerprint}>"

    def row(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def apply(
        self,
        fn: Callable[..., Any],
        *args: Any,
        donate_argnums: int | Sequence[int] = (),
        nested: bool = False,
        drop_effects: DropEffects = None,
    ) -> Any:
        """Return `fn` as fused; see `gopt.result.Result.apply`.

        Args:
          fn: the function that was fused, or one that is traced to the same equations.
          *args: as it was fused for; shapes are enough.
          donate_argnums: positions of the arguments whose buffers may be reused.
          nested: whether compiler options are always left out.
          drop_effects: as it was given to the verb.

        Raises:
          ValueError: the plan is of another program.
        """
        fn = drop(fn, drop_effects)
        traced = trace_program(fn, *args, donate_argnums=donate_argnums)
        check_fingerprint(traced, self.fingerprint)
        program = simplify(traced) if self.simplified else traced
        decision = Fusion(self.simplified, None, self.groups, self.options)
        found = executable_of(decision, fn, program, donate_argnums)
        return apply_executable(found, name=repr(self), nested=nested)


def executable_of(
    decision: Fusion,
    fn: Callable[..., Any],
    program: Program,
    donate_argnums: int | Sequence[int] = (),
) -> Executable:
    """Return a decision as an executable.

    Args:
      decision: kernels of the program.
      fn: the function itself.
      program: its equations, simplified if the decision says so.
      donate_argnums: positions of the arguments that are donated besides those that `fn` donates.
    """
    if decision.groups is not None:
        return executable(fused(program, decision.groups), decision.options, program)
    if decision.simplified:
        return executable(program.as_function(), decision.options, program)
    return own_executable(fn, decision.options, program, donate_argnums)


def make_plan(traced: Program, decision: Fusion) -> FusionPlan:
    """Return the plan of a decision.

    Args:
      traced: the function as it was traced, not simplified.
      decision: kernels of it.
    """
    return FusionPlan(
        fingerprint(traced), decision.simplified, decision.groups, dict(decision.options)
    )


def read_plan(row: dict[str, Any]) -> FusionPlan:
    """Return a plan from its JSON values.

    Raises:
      ValueError: a field is of another type or out of range. The message names it.
    """
    plan = FusionPlan(**read_fields(row, _KINDS))
    check_groups(plan.groups or ())
    check_options(plan.options)
    return plan
