"""Inline calls, and unroll loops into the equations of their iterations."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Var
from jax.sharding import AxisType, NamedSharding, Sharding

from gopt.program.equations import (
    Atom,
    aval_of,
    body_of,
    is_multi_device_placement,
    scan_operands,
    shape_of,
    variables,
)

# Primitives that only call the one jaxpr among their parameters.
CALLS = frozenset(
    {
        *("jit", "closed_call", "core_closed_call", "call", "core_call", "eval_jaxpr"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vmap_call"),
        *("remat", "remat2", "checkpoint"),
        "xla_metadata_call",  # of `gopt.xla.fused`: another decision may fuse otherwise
    }
)


def inline(closed: ClosedJaxpr, *, max_trips: int) -> ClosedJaxpr:
    """Return a jaxpr without calls, and without equations that no output depends on.

    Args:
      closed: any jaxpr.
      max_trips: largest number of iterations at which a `scan` is unrolled.

    Raises:
      ValueError: an equation has side effects.
    """
    builder = _Builder(max_trips)
    inputs = [Var(v.aval) for v in closed.jaxpr.invars]
    outputs = builder.inline(closed, inputs, scope=None)
    equations, live = _live(builder.equations, outputs)
    constants = {v: value for v, value in builder.constants if v in live}
    info = DebugInfo("program", "program", None, None)
    jaxpr = Jaxpr(list(constants), inputs, outputs, equations, debug_info=info)
    return ClosedJaxpr(jaxpr, list(constants.values()))


class _Builder:
    """Collects the equations and constants of inlined jaxprs."""

    def __init__(self, max_trips: int):
        self.max_trips = max_trips
        self.equations: list[JaxprEqn] = []
        self.constants: list[tuple[Var, Any]] = []
        self._constant_of: dict[int, Var] = {}

    def inline(self, closed: ClosedJaxpr, inputs: Sequence[Atom], scope: Any) -> list[Atom]:
        """Append the equations of a jaxpr applied to `inputs`, and return its outputs."""
        jaxpr = closed.jaxpr
        env: dict[Var, Atom] = dict(zip(jaxpr.invars, inputs, strict=True))
        env |= zip(jaxpr.constvars, map(self._constant, closed.consts), strict=True)

        def read(atom: Atom) -> Atom:
            if isinstance(atom, Var):
                return env[atom]
            return self._constant(atom.val) if aval_of(atom).shape else atom

        for eqn in jaxpr.eqns:
            info = eqn.source_info
            names = info.name_stack if scope is None else scope + info.name_stack
            atoms = [read(atom) for atom in eqn.invars]
            outputs: Sequence[Atom]
            if eqn.primitive.name in CALLS:
                atoms = self._placed(atoms, eqn.params.get("in_shardings"), names)
                outputs = self.inline(body_of(eqn), atoms, names)
                outputs = self._placed(outputs, eqn.params.get("out_shardings"), names)
            elif eqn.primitive.name == "scan" and 0 < eqn.params["length"] <= self.max_trips:
                outputs = self._iterations(eqn, atoms, names)
            elif eqn.effects:
                effects = sorted(type(effect).__name__ for effect in eqn.effects)
                is_debug = all("DebugEffect" in name for name in effects)
                hint = "; drop_effects='debug' drops debug prints" if is_debug else ""
                raise ValueError(
                    f"equation {eqn.primitive.name} has side effects ({', '.join(effects)}): "
                    f"a program must be pure{hint}"
                )
            else:
                outputs = [_fresh(v) for v in eqn.outvars]
                self.equations.append(
                    eqn.replace(
                        invars=atoms,
                        outvars=outputs,  # type: ignore[arg-type]
                        source_info=info.replace(name_stack=names),
                    )
                )
            env |= zip(eqn.outvars, outputs, strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def _placed(self, atoms: list[Atom], shardings: Any, scope: Any) -> list[Atom]:
        """Return the values with the sharding constraints of a call."""
        return [
            self._apply(partial(_spread, sharding=sharding), [atom], scope)
            if is_multi_device_placement(sharding)
            else atom
            for atom, sharding in zip(atoms, shardings or [None] * len(atoms), strict=True)
        ]

    def _iterations(self, eqn: JaxprEqn, inputs: Sequence[Atom], scope: Any) -> list[Atom]:
        length, (num_consts, num_carry) = eqn.params["length"], scan_operands(eqn)
        consts, scanned = inputs[:num_consts], inputs[num_consts + num_carry :]
        carry = list(inputs[num_consts : num_consts + num_carry])
        collected: list[list[Atom]] = [[] for _ in range(length)]
        for i in reversed(range(length)) if eqn.params["reverse"] else range(length):
            select = partial(lax.index_in_dim, index=i, axis=0, keepdims=False)
            slices = [self._apply(select, [x], scope) for x in scanned]
            results = self.inline(body_of(eqn), [*consts, *carry, *slices], scope)
            carry, collected[i] = results[:num_carry], results[num_carry:]
        columns = zip(*collected, strict=True)
        return carry + [self._apply(_stack, column, scope) for column in columns]

    def _apply(self, fn: Callable[..., Any], inputs: Sequence[Atom], scope: Any) -> Atom:
        shapes = map(shape_of, inputs)
        (output,) = self.inline(jax.make_jaxpr(fn)(*shapes), inputs, scope)
        return output

    def _constant(self, value: Any) -> Var:
        # A body that is called twice has the same constants twice.
        if id(value) not in self._constant_of:
            self._constant_of[id(value)] = Var(jax.typeof(value))
            self.constants.append((self._constant_of[id(value)], value))
        return self._constant_of[id(value)]


def _spread(array: jax.Array, sharding: Sharding) -> jax.Array:
    if isinstance(sharding, NamedSharding):
        types = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))
        if any(types.get(axis) == AxisType.Explicit for axis in jax.tree.leaves([*sharding.spec])):
            return jax.sharding.reshard(array, sharding)
    return lax.with_sharding_constraint(array, sharding)


def _stack(*rows: jax.Array) -> jax.Array:
    return lax.concatenate([lax.expand_dims(row, (0,)) for row in rows], 0)


def _fresh(variable: Var) -> Var:
    return type(variable)(variable.aval)


def _live(
    equations: Sequence[JaxprEqn], outputs: Sequence[Atom]
) -> tuple[list[JaxprEqn], set[Var]]:
    """Return the equations that the outputs depend on, and all variables that are read."""
    live = set(variables(outputs))
    kept = []
    for eqn in reversed(equations):
        if not live.isdisjoint(eqn.outvars):
            live.update(variables(eqn.invars))
            kept.append(eqn)
    return kept[::-1], live
