"""A decision as names to save for `jax.checkpoint`, where it can be said so.

`jax.checkpoint(fn, policy=jax.checkpoint_policies.save_only_these_names(*names))` holds the values
that `jax.ad_checkpoint.checkpoint_name` names, and computes all others again. So a value that a
decision holds needs a name, unless it takes hardly any time to compute it again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jax.extend.core import JaxprEqn, Var

import gopt
from gopt.program.equations import aval_of, variables
from gopt.program.program import Program
from gopt.scheduling.candidate import KernelSchedule
from gopt.scheduling.recompute.program import kernel_seconds
from gopt.xla.recomputed import second_runs

_PACKAGE = Path(gopt.__file__).parent
SMALL = 0.02  # share of the time that `jax.checkpoint` may add

Part = tuple[int, ...]  # the equations of a kernel

# Show the value of their operand.
_VIEWS = frozenset(("name", "reshape", "squeeze", "expand_dims", "transpose", "stop_gradient"))


class Names(NamedTuple):
    """Names to save for `jax.checkpoint`.

    Attributes:
      names: the names, none of them if nothing is held; `None` if no names say the decision.
      reason: why no names do; else empty.
    """

    names: tuple[str, ...] | None
    reason: str = ""


def is_backward(program: Program, part: Part) -> bool:
    """Return whether a group of equations has one of a backward pass, by its scope."""
    scopes = (str(program.equations[k].source_info.name_stack) for k in part)
    return any("transpose(" in scope for scope in scopes)


def names_of(decision: KernelSchedule) -> Names:
    """Return the names that say what a decision holds between its forward and backward runs.

    Args:
      decision: runs of kernels on one device.
    """
    if decision.options is not None:
        return Names(None, "nothing runs again: XLA's own program needs no policy")
    kernels = decision.kernels
    source, parts = kernels.source, kernels.groups
    again = {parts[k] for k in second_runs(parts)}
    if not any(is_backward(source, part) for part in parts):
        return Names(None, "the function has no gradient outside of loops")
    if not again:
        return Names(None, "nothing runs again")
    makers, seconds = _first_runs(decision), dict(zip(parts, _seconds(decision), strict=True))
    total = max(sum(_seconds(decision)), 1e-30)
    if sum(seconds[part] for part in again if is_backward(source, part)) > SMALL * total:
        return Names(None, "a kernel of the backward pass runs again")
    named = _names(source)
    held = _read_late(decision, makers) - again
    names = {name for part in held for name in _of_part(source, part, named)}
    if (name := _other_value(source, held, names)) is not None:
        return Names(None, f"{name!r} names values that are held and values that run again")
    # What `jax.checkpoint` would run again besides.
    more = _computed_again(decision, makers, names, named) - again
    share = sum(seconds[part] for part in more) / total
    if share <= SMALL:
        return Names(tuple(sorted(names)))
    root = source.equations[max(more, key=lambda part: seconds[part])[-1]]
    return Names(
        None,
        "values that are held have no name, and to compute them again takes "
        f"{100 * share:.0f} % of the time by the model, most of it for {_described(root)}",
    )


def _first_runs(decision: KernelSchedule) -> dict[Var, Part]:
    """Return the forward kernel that makes each value in its first run."""
    kernels = decision.kernels
    late = {*second_runs(kernels.groups)}
    return {
        v: part
        for k, (kernel, part) in enumerate(
            zip(kernels.program.equations, kernels.groups, strict=True)
        )
        if k not in late and not is_backward(kernels.source, part)
        for v in kernel.outvars
    }


def _read_late(decision: KernelSchedule, makers: dict[Var, Part]) -> set[Part]:
    """Return the forward kernels whose first results a backward or a second run reads."""
    kernels = decision.kernels
    again = {*second_runs(kernels.groups)}
    return {
        makers[v]
        for k, kernel in enumerate(kernels.program.equations)
        if k in again or is_backward(kernels.source, kernels.groups[k])
        for v in variables(kernel.invars)
        if v in makers
    }


def _computed_again(
    decision: KernelSchedule, makers: dict[Var, Part], names: set[str], named: dict[Var, set[str]]
) -> set[Part]:
    """Return the forward kernels that `jax.checkpoint` computes again if it saves some names."""
    kernels = decision.kernels
    operands: dict[Part, list[Var]] = {}
    for kernel, part in zip(kernels.program.equations, kernels.groups, strict=True):
        operands.setdefault(part, list(variables(kernel.invars)))
    found: set[Part] = set()
    again = (kernels.groups[k] for k in second_runs(kernels.groups))
    todo = [*_read_late(decision, makers), *again]
    while todo:
        part = todo.pop()
        if part in found or _of_part(kernels.source, part, named) & names:
            continue
        found.add(part)
        todo += [makers[v] for v in operands[part] if v in makers]
    return found


def _seconds(decision: KernelSchedule) -> list[float]:
    """Return the time of each run, s."""
    kernels, traced = decision.kernels, decision.traced
    found = [0.0] * len(kernels.groups)
    for seconds, k in zip(kernel_seconds(kernels, traced).tolist(), traced.equations, strict=True):
        if k >= 0:
            found[k] = seconds
    return found


def _names(program: Program) -> dict[Var, set[str]]:
    """Return the names that hold each value.

    A view has the names of its value. A value has the names of views if only these read it.
    """
    readers: dict[Var, list[JaxprEqn]] = {}
    for equation in program.equations:
        for v in variables(equation.invars):
            readers.setdefault(v, []).append(equation)
    found: dict[Var, set[str]] = {}
    for equation in reversed(program.equations):
        for v in equation.outvars:
            views = [e for e in readers.get(v, []) if e.primitive.name in _VIEWS]
            through = [found[e.outvars[0]] for e in views]
            is_shown = views and len(views) == len(readers[v]) and v not in program.outputs
            found[v] = set.intersection(*through) if is_shown else set()
            if equation.primitive.name == "name":
                found[v].add(equation.params["name"])
    for equation in program.equations:
        if equation.primitive.name in _VIEWS:
            for v in variables(equation.invars):
                found[equation.outvars[0]] |= found.get(v, set())
    return found


def _of_part(program: Program, part: Part, named: dict[Var, set[str]]) -> set[str]:
    """Return the names that hold all results of a kernel."""
    made = [v for v in program.equations[part[-1]].outvars if type(v) is Var]
    return set.intersection(*(named[v] for v in made)) if made else set()


def _other_value(program: Program, held: set[Part], names: set[str]) -> str | None:
    """Return a name that a held value shares with another one; `None` without one."""
    covered = {v for part in held for v in program.equations[part[-1]].outvars}
    for equation in program.equations:
        is_shown = not covered.isdisjoint(variables(equation.invars))
        if equation.primitive.name in _VIEWS and is_shown:
            covered |= {*equation.outvars}
        is_name = equation.primitive.name == "name" and equation.params["name"] in names
        if is_name and covered.isdisjoint(equation.outvars):
            return equation.params["name"]
    return None


def _described(equation: JaxprEqn) -> str:
    shapes = ", ".join(aval_of(v).str_short(short_dtypes=True) for v in equation.outvars)
    where = next(_frames(equation), "")
    return f"{shapes} of {equation.primitive.name}{where}"


def _frames(equation: JaxprEqn) -> Iterator[str]:
    """Yield the lines of the user that an equation comes from, the innermost first."""
    traceback: Any = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        is_ours = _PACKAGE in Path(frame.file_name).parents
        if "site-packages" not in frame.file_name and not is_ours:
            yield f" at {frame.file_name}:{frame.line_num}"
