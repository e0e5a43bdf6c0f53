"""JAX functions whose kernels XLA orders, but for second runs, which wait.

XLA would merge a second run with the first one. So the operands of consecutive second runs stand
behind one `lax.optimization_barrier`, with a result of the kernel before them that is read later.
All other kernels are free. `jax.checkpoint` ties what it computes again to cotangents in this way.

Source: our own.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn, Var

from gopt.program.equations import run_equation, variables
from gopt.program.interpret import Values, interpret, operands_of
from gopt.program.program import Program
from gopt.xla.labels import label


class _Delayed(NamedTuple):
    """Consecutive second runs.

    Attributes:
      end: position after the last one.
      waited: what stands behind the barrier: values that they read and do not make, and `awaited`.
      awaited: a value that is made before the runs and read after them; `None` without one.
    """

    end: int
    waited: tuple[Var, ...]
    awaited: Var | None


def in_free_order(program: Program, runs: Sequence[Hashable]) -> Callable[..., Any]:
    """Return a function of the traced arguments that runs kernels again as late as a program does.

    Its values equal the program's. It can be vmapped and differentiated, but without custom
    derivative rules.

    Args:
      program: program with one equation for each run of a kernel.
      runs: kernel of each equation; a second run has the kernel of an earlier one. `[E]`
    """
    delayed = _delayed(program, second_runs(runs))
    also_read = {start: each.waited for start, each in delayed.items()}

    def function(*args: Any) -> Any:
        behind: Values = {}  # results of the last barrier
        end = 0

        def evaluate(position: int, kernel: JaxprEqn, values: Values) -> list[Any]:
            nonlocal behind, end
            if position in delayed:
                end, waited, awaited = delayed[position]
                results = lax.optimization_barrier([jnp.asarray(values[v]) for v in waited])
                behind = dict(zip(waited, results, strict=True))
                if awaited is not None:  # its later readers keep it in the barrier
                    values[awaited] = behind[awaited]
            operands = operands_of(kernel, {**values, **behind} if position < end else values)
            with label(position):
                return run_equation(kernel, operands)

        return interpret(program, args, evaluate, also_read=also_read)

    return function


def second_runs(runs: Sequence[Hashable]) -> list[int]:
    """Return the positions of what has run before."""
    first: dict[Hashable, int] = {}
    return [k for k, run in enumerate(runs) if first.setdefault(run, k) < k]


def _delayed(program: Program, again: Sequence[int]) -> dict[int, _Delayed]:
    """Return consecutive second runs by the position of the first one."""
    equations, second = program.equations, set(again)
    last_read = {v: k for k, e in enumerate(equations) for v in variables(e.invars)}
    found = {}
    for start in again:
        if start - 1 in second:
            continue
        end = start
        while end in second:
            end += 1
        body = equations[start:end]
        made = {v for e in body for v in e.outvars}
        read = dict.fromkeys(v for e in body for v in variables(e.invars) if v not in made)
        earlier = (
            v
            for k in reversed(range(start))
            if k not in second
            for v in equations[k].outvars
            if type(v) is Var and last_read.get(v, -1) >= end
        )
        awaited = next(earlier, None)
        waited = read if awaited is None else {**read, awaited: None}
        found[start] = _Delayed(end, tuple(waited), awaited)
    return found
