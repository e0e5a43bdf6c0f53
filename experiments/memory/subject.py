"""A training step with its kernels, and XLA's own programs of it."""

from typing import NamedTuple

from experiments.memory.cases import Step, plain
from gopt.host.progress import Progress
from gopt.program.program import trace_program
from gopt.result import Candidate
from gopt.scheduling.candidate import KernelSchedule, kernels_of
from gopt.scheduling.on_this_device import own_programs
from gopt.scheduling.recompute.program import Repeatable, repeatable
from gopt.scheduling.target import target_of
from gopt.xla.grouping import groups_for_memory

DONATED = (0, 1)


class Subject(NamedTuple):
    """A training step that budgets are given to.

    Attributes:
      name: its name.
      step: the step.
      found: its kernels, which may run more than once.
      own: XLA's own programs, compiled.
      limit: bytes without arguments of the one that needs least; budgets are shares of it.
    """

    name: str
    step: Step
    found: Repeatable
    own: list[Candidate[KernelSchedule]]
    limit: int


def subject(name: str, target: str | None = None, **sizes: int) -> Subject:
    """Return a step by its name.

    Args:
      name: name of the step.
      target: machine to compile for, see `gopt.schedule`; by default this one.
      **sizes: sizes other than the step's own, such as `batch`.
    """
    step = plain(name, **sizes)
    program = trace_program(step.fn, *step.args, donate_argnums=DONATED)
    kernels = kernels_of(program, merged=True, grouping=groups_for_memory, target=target_of(target))
    own = list(own_programs(step.fn, step.args, program, DONATED, kernels, Progress()))
    limit = min(c.memory.without_arguments for c in own if c.memory is not None)
    return Subject(name, step, repeatable(kernels), own, limit)
