"""JAX functions that XLA runs in a planned order of kernels.

XLA schedules by data dependencies alone, so each step of the order becomes a dependency. If a
kernel does not read a result of the kernel before it, `lax.optimization_barrier` ties one of its
operands to that result. Barriers also stop XLA from recomputing another kernel's result inside a
kernel. Recomputation would keep the operands of both kernels in memory.

Source: our own; measured in `experiments/apply.py`.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn, Var

from gopt.graph.op_costs import num_bytes
from gopt.graph.tracing import name_of
from gopt.program.equations import run_equation, variables
from gopt.program.interpret import Values, interpret, operands_of
from gopt.program.program import Program
from gopt.xla import hlo_text
from gopt.xla.applied import jit_donating
from gopt.xla.buffers import overwritten
from gopt.xla.labels import depends_on_parameters, label, module_kernels

# On a CPU, XLA schedules for concurrency by default. This option makes it save memory.
MEMORY_SCHEDULER: dict[str, dict[str, Any]] = {
    "cpu": {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
}

# On a CPU, XLA removes barriers before it fuses and schedules, unless that pass is disabled.
# Barriers do not tie everything, for instance constants that XLA broadcasts into a buffer. Such a
# buffer should be short-lived. If kernels shared it ("cse"), it would live from the first kernel
# to the last.
COMPILER_OPTIONS: dict[str, dict[str, Any]] = {
    "cpu": {**MEMORY_SCHEDULER["cpu"], "xla_disable_hlo_passes": "cse_barrier_expander,cse"},
}


# Kernels with results up to this share of the largest kernel's bytes need no place in the order.
_LIGHT = 1e-3


def check_options(options: dict[str, Any]) -> None:
    """Check compiler options from a file: XLA has others that write files and run programs.

    Raises:
      ValueError: they are not options that gopt chooses.
    """
    known = [{}, *MEMORY_SCHEDULER.values(), *COMPILER_OPTIONS.values()]
    if options not in known:
        raise ValueError(f"options is {options!r}: expected one of {known}")


def ordered(program: Program) -> Callable[..., Any]:
    """Return a function of the traced arguments whose kernels run in the order of a program.

    Its values equal the program's. It can be vmapped and differentiated, but without custom
    derivative rules; see `Program.as_function`. If a rule matters, trace the gradient function.

    Under `jax.jit` the order holds with the platform's `COMPILER_OPTIONS`; see `jit_ordered`. XLA
    chooses the place of kernels that read nothing, and of small kernels that depend on arguments
    alone.

    Args:
      program: program with one equation for each kernel, in order; see `gopt.xla.grouping.group`.
    """
    over, ties = written_over(program), _ties(program)
    overwritten_later = set(over.values())

    def function(*args: Any) -> Any:
        untied: Values = {}  # values without a barrier, for the kernels that overwrite them

        def evaluate(position: int, kernel: JaxprEqn, values: Values) -> list[Any]:
            with label(position):
                operands = operands_of(kernel, values)
                if position in ties:
                    tied = ties[position]
                    untied.update((v, values[v]) for v in tied if v in overwritten_later)
                    _tie(kernel, operands, values, tied, over.get(position), untied)
                return run_equation(kernel, operands)

        return interpret(program, args, evaluate, also_read=ties)

    return function


def jit_ordered(program: Program, device: jax.Device | None = None) -> Any:
    """Return `ordered(program)` jitted, with donated arguments and the platform's options.

    Args:
      program: program with one equation for each kernel, in order.
      device: device to run on; by default the device of the arguments.
    """
    platform = device.platform if device else jax.default_backend()
    return jit_donating(ordered(program), program, COMPILER_OPTIONS.get(platform), device)


def check_order(program: Program, compiled: jax.stages.Compiled) -> None:
    """Check that a compiled function runs its kernels in the order of a program.

    The check ignores:

    - kernels without a place in the order; see `ordered`;
    - all steps of a kernel but the last;
    - kernels that XLA removes, because their results are known or unused. Nothing ties the kernel
      after such a one to the kernel before it.

    Args:
      program: the argument of `ordered`.
      compiled: compiled function of `ordered(program)`.

    Raises:
      ValueError: two kernels run in the wrong order; the message names both.
    """
    unplaced = _unplaced(program)
    ends: dict[int, int] = {}
    module = hlo_text.parse(compiled.as_text() or "")
    placed = depends_on_parameters(module)
    for time, (instruction, labels) in enumerate(module_kernels(module)):
        if instruction.name in placed:
            ends |= dict.fromkeys(labels - unplaced, time)
    in_order = (k for k in range(len(program.equations)) if k not in unplaced)
    for before, after in itertools.pairwise(in_order):
        if {before, after} <= ends.keys() and ends[before] > ends[after]:
            names = [f"{k} ({name_of(program.equations[k])})" for k in (before, after)]
            raise ValueError(f"kernel {names[0]} runs after kernel {names[1]}, expected before")


def written_over(program: Program) -> dict[int, Var]:
    """Return the operand that each kernel of `ordered(program)` overwrites, by kernel position.

    Kernels that overwrite nothing are left out. XLA overwrites only direct operands of a kernel,
    not results of a barrier. So a value in a barrier is not overwritten if it has one consumer.

    Args:
      program: program with one equation for each kernel, in order.
    """
    held = {v for tie in _ties(program).values() for v in tie}
    over = overwritten(program, alone=False, held=held)
    readers = Counter(v for e in program.equations for v in set(variables(e.invars)))
    return {k: v for k, v in over.items() if readers[v] > 1 or v not in held}


def _tie(
    kernel: JaxprEqn,
    operands: list[Any],
    values: Values,
    ties: Sequence[Var],
    over: Var | None,
    untied: Values,
) -> None:
    """Tie a kernel by a barrier to the kernel before it.

    Args:
      kernel: kernel to tie.
      operands: values of its operands, replaced by results of the barrier.
      values: live values. The barrier's results replace the values of `ties`, because XLA drops
        unused results, and with them the order.
      ties: results of the kernel before, which this kernel does not read.
      over: operand that the kernel overwrites.
      untied: values without a barrier; the value of `over` is removed.
    """
    covered = [k for k, a in enumerate(kernel.invars) if isinstance(a, Var) and a is not over]
    if ties and not covered:
        covered = list(range(len(operands)))
    original = untied.pop(over, None) if over else None
    for k, atom in enumerate(kernel.invars):
        if original is not None and atom is over and k not in covered:
            operands[k] = original
    if covered:
        items = [jnp.asarray(operands[k]) for k in covered] + [values[v] for v in ties]
        behind = lax.optimization_barrier(items)
        for k, value in zip(covered, behind, strict=False):
            operands[k] = value
        values |= zip(ties, behind[len(covered) :], strict=True)


def _ties(program: Program) -> dict[int, list[Var]]:
    """Return, for each placed kernel, the results of the one before it that it does not read."""
    unplaced = _unplaced(program)
    found = {}
    latest: list[Var] = []
    for position, kernel in enumerate(program.equations):
        if position not in unplaced:
            found[position] = [v for v in latest if v not in kernel.invars]
            latest = [v for v in kernel.outvars if type(v) is Var]
    return found


def _unplaced(program: Program) -> set[int]:
    """Return the positions of kernels without a place in the order.

    These are kernels without operands, which nothing can tie, and small kernels that depend on
    arguments and constants alone.
    """
    sizes = [sum(num_bytes(v.aval) for v in e.outvars) for e in program.equations]
    bound = _LIGHT * max(sizes, default=0.0)
    given = {*program.inputs, *program.constants}
    found = set()
    for position, (equation, size) in enumerate(zip(program.equations, sizes, strict=True)):
        if not equation.invars:
            found.add(position)
        elif size <= bound and given.issuperset(variables(equation.invars)):
            found.add(position)
            given |= set(equation.outvars)
    return found
