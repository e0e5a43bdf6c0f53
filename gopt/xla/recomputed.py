"""Programs in which kernels run more than once, so that their results need not be held.

A run is an equation of its own, with new results. XLA would merge a second run with the first one,
but for barriers. There are two ways to say them:

- `gopt.xla.ordered` puts the operands of each kernel behind a barrier with the kernel before it.
- `in_free_order` lets XLA order the kernels. The operands of consecutive second runs alone stand
  behind a barrier, with a result that is made before them and read after them: the one with most
  kernels on its way. `jax.checkpoint` ties what it computes again to cotangents in this way.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Var

from gopt.graph.tracing import TracedGraph
from gopt.program.equations import Atom, all_equations, aval_of, run_equation, variables
from gopt.program.interpret import Values, interpret, operands_of
from gopt.program.program import Program
from gopt.xla.labels import label
from gopt.xla.passes.duplicates import NEVER_MERGED

# Signs of their results depend on rounding; or their bodies are not known.
_KEPT = frozenset(("eig", "eigh", "svd", "schur", "while", "call_hi_primitive"))


def may_repeat(kernel: JaxprEqn) -> bool:
    """Return whether a kernel may run more than once with the same results, up to rounding.

    Excluded are random numbers with a state, functions that XLA cannot inspect, and whole numbers
    that are made from floats, such as indices: a run may round floats in another way, and then two
    runs could disagree about an order. The same holds for the number of iterations of a `while`
    over floats.
    """
    for equation in all_equations([kernel]):
        name = equation.primitive.name
        if name in NEVER_MERGED:
            return False
        has_floats = any(_is(atom, np.inexact) for atom in equation.invars)
        makes_numbers = any(_is(v, np.integer) for v in equation.outvars)
        is_order = makes_numbers and name not in ("bitcast_convert_type", "scan", "cond", "jit")
        if has_floats and (is_order or name in _KEPT or name == "sort"):
            return False
    return True


def _is(atom: Atom, kind: Any) -> bool:
    return jax.dtypes.issubdtype(aval_of(atom).dtype, kind)


def kernel_runs(traced: TracedGraph, ops: Sequence[int]) -> tuple[int, ...]:
    """Return the equations in the order in which they run, some more than once.

    Views have no op. A view comes just before its first reader, and again before a later reader if
    what it shows has run again.

    Args:
      traced: graph of a program of kernels.
      ops: ops of the graph in the order in which they run, some more than once.
    """
    equations = traced.program.equations
    placed = set(traced.equations)
    view_of = {v: k for k, e in enumerate(equations) if k not in placed for v in e.outvars}
    runs: list[int] = []
    last: dict[int, int] = {}  # number of the last run of an equation
    shown: dict[int, tuple[int, ...]] = {}  # runs that the last run of a view shows
    maker = {v: k for k, e in enumerate(equations) for v in e.outvars}

    def run(k: int) -> None:
        for v in variables(equations[k].invars):
            show(v)
        last[k] = len(runs)
        runs.append(k)

    def show(v: Var) -> None:
        k = view_of.get(v)
        if k is None:
            return
        for operand in variables(equations[k].invars):
            show(operand)
        sources = [maker[o] for o in variables(equations[k].invars) if o in maker]
        now = tuple(last[source] for source in sources)
        if shown.get(k) != now:
            shown[k] = now
            run(k)

    for op in ops:
        if traced.equations[op] >= 0:
            run(traced.equations[op])
    for output in traced.program.outputs:
        if isinstance(output, Var) and view_of.get(output, 0) not in last:
            show(output)
    return tuple(runs)


def repeated(program: Program, runs: Sequence[int]) -> Program:
    """Return a program with one equation for each run; readers read the latest run before them.

    Args:
      program: program of kernels.
      runs: index in the program of each run, some more than once. Outputs are of first runs.

    Raises:
      ValueError: an equation runs before what it reads, or an output is not computed.
    """
    latest: dict[Var, Var] = {v: v for v in (*program.inputs, *program.constants)}

    def read(atom: Atom, run: int) -> Atom:
        if isinstance(atom, Var) and atom not in latest:
            raise ValueError(
                f"runs[{run}] reads a {atom.aval.str_short()} that no run before makes"
            )
        return latest[atom] if isinstance(atom, Var) else atom

    equations = []
    for number, k in enumerate(runs):
        equation = program.equations[k]
        operands = [read(atom, number) for atom in equation.invars]
        results = [
            Var(aval_of(v)) if type(v) is Var and v in latest else v for v in equation.outvars
        ]
        equations.append(equation.replace(invars=operands, outvars=results))
        latest.update(zip(equation.outvars, results, strict=True))
    for index, output in enumerate(program.outputs):
        if isinstance(output, Var) and output not in latest:
            raise ValueError(f"output {index} is made by no run")
    return replace(program, equations=tuple(equations))


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
    equations, second, depth = program.equations, set(again), _depths(program)
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
        earlier = [
            v
            for k in range(start)
            if k not in second
            for v in equations[k].outvars
            if type(v) is Var and last_read.get(v, -1) >= end
        ]
        awaited = max(reversed(earlier), key=depth.__getitem__, default=None)
        waited = read if awaited is None else {**read, awaited: None}
        found[start] = _Delayed(end, tuple(waited), awaited)
    return found


def _depths(program: Program) -> dict[Var, int]:
    """Return the number of equations on the longest way to each value."""
    depth: dict[Var, int] = {}
    for equation in program.equations:
        longest = max((depth.get(v, 0) for v in variables(equation.invars)), default=0)
        depth |= dict.fromkeys(equation.outvars, longest + 1)
    return depth
