"""A decision as names to save for `jax.checkpoint`, where it can be said so.

`jax.checkpoint(fn, policy=jax.checkpoint_policies.save_only_these_names(*names))` holds the values
that `jax.ad_checkpoint.checkpoint_name` names, and computes all others again. So a value that a
decision holds needs a name, unless it takes hardly any time to compute it again.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from jax.extend.core import JaxprEqn, Var

from gopt.program.equations import aval_of, variables
from gopt.program.program import Program
from gopt.scheduling.candidate import KernelSchedule
from gopt.scheduling.recompute.program import kernel_seconds
from gopt.xla.recomputed import second_runs

SMALL = 0.02  # share of the time that `jax.checkpoint` may add

Part = tuple[int, ...]  # the equations of a kernel

# Show the value of their operand.
_VIEWS = frozenset(("name", "reshape", "squeeze", "expand_dims", "transpose", "stop_gradient"))


class Names(NamedTuple):
    """Names to save for `jax.checkpoint`.

    Attributes:
      names: the names; `None` if no names say the decision.
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
        return Names(None, "the function has no gradient")
    if not again:
        return Names(None, "nothing runs again")
    makers = _first_runs(decision)
    named = _names(source)
    held = _read_late(decision, makers) - again
    names = {name for part in held for name in named[part[-1]]}
    for part in again:
        for name in named[part[-1]] & names:
            return Names(None, f"{name!r} names values that are held and values that run again")
    # What `jax.checkpoint` would run again besides.
    seconds = dict(zip(parts, _seconds(decision), strict=True))
    more = _computed_again(decision, makers, names, named) - again
    share = sum(seconds[part] for part in more) / max(sum(_seconds(decision)), 1e-30)
    if share <= SMALL:
        return Names(tuple(sorted(names)))
    root = source.equations[max(more, key=lambda part: seconds[part])[-1]]
    return Names(
        None,
        "values that are held have no name, and to compute them again takes "
        f"{100 * share:.0f} % of the time, most of it for {_described(root)}",
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
    decision: KernelSchedule, makers: dict[Var, Part], names: set[str], named: list[set[str]]
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
        if part in found or named[part[-1]] & names:
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


def _names(program: Program) -> list[set[str]]:
    """Return the names of the results of each equation; views of a value share its names."""
    found: list[set[str]] = [set() for _ in program.equations]
    maker = {v: k for k, e in enumerate(program.equations) for v in e.outvars}
    for k, equation in reversed([*enumerate(program.equations)]):
        if equation.primitive.name == "name":
            found[k].add(equation.params["name"])
        if equation.primitive.name in _VIEWS:
            for v in variables(equation.invars):
                if v in maker:
                    found[maker[v]] |= found[k]
    for k, equation in enumerate(program.equations):
        if equation.primitive.name in _VIEWS:
            for v in variables(equation.invars):
                if v in maker:
                    found[k] |= found[maker[v]]
    return found


def _described(equation: JaxprEqn) -> str:
    shapes = ", ".join(aval_of(v).str_short(short_dtypes=True) for v in equation.outvars)
    where = next(_frames(equation), "")
    return f"{shapes} of {equation.primitive.name}{where}"


def _frames(equation: JaxprEqn) -> Iterator[str]:
    """Yield the lines of the user that an equation comes from, the innermost first."""
    traceback: Any = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if "site-packages" not in frame.file_name and "/gopt/" not in frame.file_name:
            yield f" at {frame.file_name}:{frame.line_num}"
