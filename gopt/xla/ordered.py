"""A schedule becomes a program: a JAX function that XLA runs in the order planned.

XLA schedules by data dependencies alone, so an order is made of them: where a kernel does not read
what the one before it made, `lax.optimization_barrier` ties an operand of it to that. Barriers
also keep XLA from computing again, inside a kernel, what another one has written for it: that would
keep the operands of both in memory.

Source: our own; measured in `experiments/apply.py`.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn, Var
from jax.sharding import SingleDeviceSharding

from gopt.graph.op_costs import num_bytes
from gopt.graph.tracing import name_of
from gopt.program.equations import variables
from gopt.program.program import Program
from gopt.xla import hlo_text
from gopt.xla.buffers import overwritten
from gopt.xla.labels import Values, depends_on_parameters, labelled, module_kernels, value_of

# On a CPU, XLA schedules for concurrency unless it is told to save memory.
MEMORY_SCHEDULER: dict[str, dict[str, Any]] = {
    "cpu": {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
}

# On a CPU, XLA removes barriers before it fuses and schedules unless it is told not to. What they
# do not tie, such as numbers that XLA repeats in a buffer, should still come late, and go early: if
# kernels shared such a buffer ("cse"), it would be held from the first of them to the last.
COMPILER_OPTIONS: dict[str, dict[str, Any]] = {
    "cpu": {**MEMORY_SCHEDULER["cpu"], "xla_disable_hlo_passes": "cse_barrier_expander,cse"},
}

_LIGHT = 1e-3  # of the largest result: what is smaller is not worth a place in the order


def ordered(program: Program) -> Callable[..., Any]:
    """Returns a function of the traced arguments whose kernels run in the order of a program.

    It has the values of the program's function, and can be vmapped and differentiated. Its
    derivatives are those of the equations: custom rules are gone, see `Program.as_function`, so
    trace the gradient where a rule matters. Under `jax.jit` the order is kept with the
    `COMPILER_OPTIONS` of the platform, see `jit_ordered`. What reads nothing, or arguments alone to
    make next to nothing, runs when XLA likes.

    Args:
      program: one equation for each kernel, in order; see `gopt.xla.group`.
    """
    return labelled(program, _Chain(program))


def jit_ordered(program: Program, device: jax.Device | None = None) -> jax.stages.Wrapped:
    """Returns `ordered(program)` jitted, donated arguments included.

    Args:
      program: see `ordered`.
      device: where it runs, by default where its arguments are.
    """
    donated = jax.tree.unflatten(program.in_tree, program.donated)
    platform = device.platform if device else jax.default_backend()
    return jax.jit(
        ordered(program),
        donate_argnums=[i for i, leaves in enumerate(donated) if any(jax.tree.leaves(leaves))],
        compiler_options=COMPILER_OPTIONS.get(platform),
        out_shardings=SingleDeviceSharding(device) if device else None,
    )


def check_order(program: Program, compiled: jax.stages.Compiled) -> None:
    """Checks that a compiled function runs its kernels in the order of a program.

    Args:
      program: as it was given to `ordered`.
      compiled: its function, compiled. What has no place in the order may run at any time, and so
        may all but the last of the steps of one kernel; of kernels that XLA has simplified away
        nothing is said.

    Raises:
      ValueError: XLA runs a kernel before one that comes before it in the program; the message
        names both.
    """
    unplaced = _unplaced(program)
    ends: dict[int, int] = {}
    module = hlo_text.parse(compiled.as_text() or "")
    placed = depends_on_parameters(module)
    for time, (instruction, labels) in enumerate(module_kernels(module)):
        if instruction.name in placed:
            ends |= dict.fromkeys(labels - unplaced, time)
    for before, after in itertools.pairwise(sorted(ends)):
        if ends[before] > ends[after]:
            names = [f"{k} ({name_of(program.equations[k])})" for k in (before, after)]
            raise ValueError(f"kernel {names[0]} runs after kernel {names[1]}, expected before")


def written_over(program: Program) -> dict[int, Var]:
    """Returns the kernels of `ordered(program)` that write over an operand, and which.

    XLA writes over what a kernel reads directly, not over what comes out of a barrier. So a value
    that a barrier holds for one reader alone is not written over.
    """
    over = overwritten(program, alone=False)
    held = {v for tie in _ties(program).values() for v in tie}
    readers = Counter(v for e in program.equations for v in set(variables(e.invars)))
    return {k: v for k, v in over.items() if readers[v] > 1 or v not in held}


class _Chain:
    """Ties kernels to those before them; called before each of them."""

    def __init__(self, program: Program):
        self.over = written_over(program)
        self.ties = _ties(program)

    def __call__(self, position: int, kernel: JaxprEqn, values: Values, tied: Values) -> list[Any]:
        """Returns what a kernel reads: from behind a barrier with what the one before it made."""
        operands = [value_of(atom, tied, values) for atom in kernel.invars]
        if position not in self.ties:
            return operands
        over, ties = self.over.get(position), self.ties[position]
        covered = [k for k, a in enumerate(kernel.invars) if isinstance(a, Var) and a is not over]
        if ties and not covered:
            covered = list(range(len(operands)))
        for k, atom in enumerate(kernel.invars):
            if atom is over and k not in covered:
                operands[k] = values[over]
        if covered:
            items = [jnp.asarray(operands[k]) for k in covered] + [values[v] for v in ties]
            behind = lax.optimization_barrier(items)
            for k, value in zip(covered, behind, strict=False):
                operands[k] = value
            # XLA drops what is not read from a barrier, and with it the order.
            tied |= zip(ties, behind[len(covered) :], strict=True)
        return operands


def _ties(program: Program) -> dict[int, list[Var]]:
    """Returns for each kernel with a place in the order what the one before it made for others."""
    unplaced = _unplaced(program)
    found = {}
    latest: list[Var] = []
    for position, kernel in enumerate(program.equations):
        if position not in unplaced:
            found[position] = [v for v in latest if v not in kernel.invars]
            latest = [v for v in kernel.outvars if type(v) is Var]
    return found


def _unplaced(program: Program) -> set[int]:
    """Returns the kernels that run when XLA likes.

    Those are what depends on arguments alone and makes next to nothing, and what reads nothing, not
    even a literal that could be tied.
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
