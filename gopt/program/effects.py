"""Functions without debug prints: JAX counts prints as side effects, and programs must be pure."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun

from gopt.program.arguments import to_jaxpr
from gopt.program.inlining import inline

DropEffects = Literal["debug"] | None

_DEBUG = ("DebugEffect", "OrderedDebugEffect")


def drop(fn: Callable[..., Any], effects: DropEffects) -> Callable[..., Any]:
    """Return a function without side effects of a kind.

    Args:
      fn: function of pytrees of arrays.
      effects: "debug" for `jax.debug.print` and `jax.debug.callback`; `None` drops nothing.

    Raises:
      ValueError: `effects` is another value.
    """
    if effects is None:
        return fn
    if effects != "debug":
        raise ValueError(f"drop_effects is {effects!r}: expected 'debug' or None")

    @functools.wraps(fn)
    def silent(*args: Any) -> Any:
        closed, structure, objects = to_jaxpr(fn, args)
        closed, count = _silent(closed), structure.num_leaves
        inlined = inline(closed, max_trips=0).jaxpr
        objects.check(inlined.invars, inlined.outvars)
        leaves = jaxpr_as_fun(closed)(*jax.tree.leaves(args))
        return jax.tree.unflatten(structure, leaves[:count])

    return silent


def _silent(body: Any) -> Any:
    """Return a jaxpr without debug effects in it and in its bodies. Other values are unchanged."""
    if isinstance(body, tuple | list):
        return type(body)(map(_silent, body)) if type(body) in (tuple, list) else body
    if isinstance(body, Jaxpr):  # from JAX 0.11 on, a `ClosedJaxpr` too
        kept = [_inside(equation) for equation in body.eqns if not _only_debugs(equation)]
        return body.replace(eqns=kept, effects=_others(body.effects))
    return ClosedJaxpr(_silent(body.jaxpr), body.consts) if isinstance(body, ClosedJaxpr) else body


def _inside(equation: JaxprEqn) -> JaxprEqn:
    if not equation.effects:
        return equation
    params = {name: _silent(value) for name, value in equation.params.items()}
    return equation.replace(params=params, effects=_others(equation.effects))


def _only_debugs(equation: JaxprEqn) -> bool:
    """Return whether an equation is a print or callback, and not a loop or call with one."""
    return not equation.outvars and bool(equation.effects) and not _others(equation.effects)


def _others(effects: Any) -> frozenset[Any]:
    return frozenset(e for e in effects if type(e).__name__ not in _DEBUG)
