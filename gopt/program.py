"""Programs: a traced JAX function as a flat list of equations, and back to a JAX function.

Calls (`jit`, custom derivatives, checkpoints, closed calls) are replaced by the equations of
their bodies, and the shardings over devices of a `jit` by constraints. `scan`, `while` and
`cond` stay one equation each; `unroll` replaces a `scan` by its iterations. Whatever the order
of the equations, the function that comes back has the same values, because it evaluates the very
equations that were traced.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jax.sharding import AbstractMesh, AxisType, Mesh, Sharding

Atom = Var | Literal

# Equations that only call the one jaxpr among their parameters.
CALLS = frozenset(
    {
        *("jit", "closed_call", "core_closed_call", "call", "core_call"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vmap_call"),
        *("remat", "remat2", "checkpoint"),
    }
)


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A function as equations in the order in which they run.

    Attributes:
      equations: what runs, without calls but those of `gopt.kernels.group`. Each variable is bound
        once.
      inputs: variables of the flattened arguments.
      outputs: variables or literals of the flattened result.
      constants: variables of the arrays that the function closes over.
      values: the arrays themselves, one for each of `constants`.
      donated: for each input, whether its buffer may be reused.
      in_tree: structure of the tuple of arguments.
      out_tree: structure of the result.
    """

    equations: tuple[JaxprEqn, ...]
    inputs: tuple[Var, ...]
    outputs: tuple[Atom, ...]
    constants: tuple[Var, ...]
    values: tuple[Any, ...]
    donated: tuple[bool, ...]
    in_tree: Any
    out_tree: Any

    def jaxpr(self) -> ClosedJaxpr:
        """Returns the program as a jaxpr, for printing and for evaluation."""
        info = DebugInfo("program", "program", None, None)
        jaxpr = Jaxpr(self.constants, self.inputs, self.outputs, self.equations, debug_info=info)
        return ClosedJaxpr(jaxpr, self.values)

    def __str__(self) -> str:
        return str(self.jaxpr())

    def as_function(self) -> Callable[..., Any]:
        """Returns a function of the traced arguments that evaluates the equations in order.

        It can be jitted, vmapped and differentiated. Custom derivative and batching rules are
        gone with the calls that carried them: its derivatives are those of the equations, so
        trace the gradient where a rule matters. Recomputation that `jax.checkpoint` asked for is
        kept as equations, but nothing stops XLA from merging it again under `jax.jit`.

        The function raises `ValueError` where its arguments differ from the traced ones in
        structure, shape or dtype, naming the first that does.
        """
        evaluate = jaxpr_as_fun(self.jaxpr())

        def function(*args: Any) -> Any:
            return jax.tree.unflatten(self.out_tree, evaluate(*self.check_arguments(args)))

        return function

    def arguments(self) -> tuple[Any, ...]:
        """Returns the arguments as shapes."""
        shapes = map(shape_of, self.inputs)
        return jax.tree.unflatten(self.in_tree, shapes)

    def check_arguments(self, args: tuple[Any, ...]) -> list[Any]:
        """Returns the leaves of arguments.

        Raises:
          ValueError: they differ from the traced ones in structure, shape or dtype; the message
            names the first that does.
        """
        leaves, tree = jax.tree.flatten(args)
        if tree != self.in_tree:
            raise ValueError(f"arguments have structure {tree}, expected {self.in_tree}")
        for index, (leaf, variable) in enumerate(zip(leaves, self.inputs, strict=True)):
            got, expected = jax.typeof(leaf), aval_of(variable)
            if (got.shape, got.dtype) != (expected.shape, expected.dtype):
                path = jax.tree.leaves_with_path(args)[index][0]
                name = f"args{jax.tree_util.keystr(path)}"
                raise ValueError(f"{name} is {got.str_short()}, expected {expected.str_short()}")
        return leaves

    def with_order(self, order: Sequence[int]) -> "Program":
        """Returns the program whose k-th equation is number `order[k]` of this one.

        Raises:
          ValueError: `order` is not a permutation, or an equation would run before one that it
            reads from; the message names both.
        """
        count = len(self.equations)
        if len(order) != count:
            raise ValueError(f"order has {len(order)} entries, expected {count}")
        producer = {v: i for i, eqn in enumerate(self.equations) for v in eqn.outvars}
        ran: set[int] = set()
        for k, i in enumerate(map(int, order)):
            if i in ran or not 0 <= i < count:
                raise ValueError(f"order[{k}] is {i}: expected each of 0..{count - 1} once")
            for atom in variables(self.equations[i].invars):
                if atom in producer and producer[atom] not in ran:
                    names = [self.equations[j].primitive.name for j in (i, producer[atom])]
                    raise ValueError(
                        f"order[{k}]: equation {i} ({names[0]}) would run before equation "
                        f"{producer[atom]} ({names[1]}), whose result it reads"
                    )
            ran.add(i)
        return replace(self, equations=tuple(self.equations[i] for i in order))


def trace_program(
    fn: Callable[..., Any], *args: Any, donate_argnums: int | Sequence[int] = ()
) -> Program:
    """Returns the program of `fn(*args)`, traced from shapes.

    Args:
      fn: any function of pytrees of arrays. Bind other arguments with `functools.partial`.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.
      donate_argnums: positions in `args` of the arguments whose buffers may be reused.

    Raises:
      ValueError: an entry of `donate_argnums` is no position in `args`, or an equation has side
        effects (prints, callbacks, mutable references); the message names it.
    """
    donated_args = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
    for position in donated_args:
        if not 0 <= position < len(args):
            raise ValueError(f"donate_argnums has {position}, expected 0..{len(args) - 1}")
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    donated = [i in donated_args for i, arg in enumerate(args) for _ in jax.tree.leaves(arg)]
    return replace(
        from_jaxpr(closed),
        donated=tuple(donated),
        in_tree=jax.tree.structure(args),
        out_tree=jax.tree.structure(shapes),
    )


def check_one_device(args: tuple[Any, ...], program: Program) -> None:
    """Checks that a function runs on one device.

    Args:
      args: its arguments.
      program: its equations.

    Raises:
      ValueError: an argument or a captured array is on several devices, or an equation spreads over
        several; the message names it.
    """
    arrays = [(f"args{jax.tree_util.keystr(p)}", x) for p, x in jax.tree.leaves_with_path(args)]
    arrays += [(f"captured array {k}", value) for k, value in enumerate(program.values)]
    for name, array in arrays:
        sharding = getattr(array, "sharding", None)
        if sharding is not None and sharding.num_devices > 1:
            raise ValueError(f"{name} is on {sharding.num_devices} devices, expected one")
    for equation in every_equation(program.equations):
        if any(map(_is_spread, jax.tree.leaves(equation.params, is_leaf=_is_place))):
            name = equation.primitive.name
            raise ValueError(f"the function has a {name}: expected one that runs on one device")


def _is_place(value: Any) -> bool:
    return isinstance(value, Sharding | Mesh | AbstractMesh)


def _is_spread(place: Any) -> bool:
    """Returns whether a parameter of an equation is a place on several devices."""
    if isinstance(place, Mesh | AbstractMesh):
        return place.size > 1
    return isinstance(place, Sharding) and place.num_devices > 1


def run_equation(equation: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Returns the results of one equation; `values` has one for each variable and literal read."""
    inputs = [Var(aval_of(atom)) for atom in equation.invars]
    outputs = [Var(aval_of(variable)) for variable in equation.outvars]
    alone = equation.replace(invars=list[Atom](inputs), outvars=outputs)
    info = DebugInfo("equation", "equation", None, None)
    jaxpr = Jaxpr((), inputs, outputs, [alone], debug_info=info)
    return list(jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))(*values))


def from_jaxpr(closed: ClosedJaxpr) -> Program:
    """Returns the program of a jaxpr: a function of its inputs to the list of its outputs.

    Raises:
      ValueError: an equation has side effects.
    """
    return _flatten(closed, max_trips=0)


def unroll(program: Program, *, max_trips: int) -> Program:
    """Returns the program with every `scan` of at most `max_trips` iterations unrolled.

    Slices of what is scanned over, and the stacks of what is collected, become equations. Scans
    inside an unrolled body are unrolled too; those inside what stays a loop or a branch are not.

    Raises:
      ValueError: `max_trips` is negative.
    """
    if max_trips < 0:
        raise ValueError(f"max_trips is {max_trips}, expected 0 or more")
    return replace(
        _flatten(program.jaxpr(), max_trips=max_trips),
        donated=program.donated,
        in_tree=program.in_tree,
        out_tree=program.out_tree,
    )


def _flatten(closed: ClosedJaxpr, *, max_trips: int) -> Program:
    builder = _Builder(max_trips)
    inputs = [Var(v.aval) for v in closed.jaxpr.invars]
    outputs = builder.inline(closed, inputs, scope=None)
    equations, live = _live(builder.equations, outputs)
    constants = {v: value for v, value in builder.constants if v in live}
    return Program(
        equations=equations,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        constants=tuple(constants),
        values=tuple(constants.values()),
        donated=(False,) * len(inputs),
        in_tree=jax.tree.structure(tuple(inputs)),
        out_tree=jax.tree.structure(outputs),
    )


class _Builder:
    """Collects equations while jaxprs are inlined one into another."""

    def __init__(self, max_trips: int):
        self.max_trips = max_trips
        self.equations: list[JaxprEqn] = []
        self.constants: list[tuple[Var, Any]] = []
        self._constant_of: dict[int, Var] = {}

    def inline(self, closed: ClosedJaxpr, inputs: Sequence[Atom], scope: Any) -> list[Atom]:
        """Appends the equations of a jaxpr applied to `inputs`, returns its outputs."""
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
                raise ValueError(
                    f"equation {eqn.primitive.name} has side effects ({', '.join(effects)}): "
                    "a program must be pure"
                )
            else:
                outputs = [_fresh(v) for v in eqn.outvars]
                self.equations.append(
                    eqn.replace(
                        invars=atoms,
                        outvars=outputs,
                        source_info=info.replace(name_stack=names),
                    )
                )
            env |= zip(eqn.outvars, outputs, strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def _placed(self, atoms: list[Atom], shardings: Any, scope: Any) -> list[Atom]:
        """Returns the same values, each spread over devices as a call asks for."""
        return [
            self._apply(partial(_spread, sharding=sharding), [atom], scope)
            if _is_spread(sharding)
            else atom
            for atom, sharding in zip(atoms, shardings or [None] * len(atoms), strict=True)
        ]

    def _iterations(self, eqn: JaxprEqn, inputs: Sequence[Atom], scope: Any) -> list[Atom]:
        length, num_consts = eqn.params["length"], eqn.params["num_consts"]
        num_carry = eqn.params["num_carry"]
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
        # Bodies that are called twice bring the same arrays twice.
        if id(value) not in self._constant_of:
            self._constant_of[id(value)] = Var(jax.typeof(value))
            self.constants.append((self._constant_of[id(value)], value))
        return self._constant_of[id(value)]


def _spread(array: jax.Array, sharding: Sharding) -> jax.Array:
    mesh = getattr(sharding, "mesh", None)
    if mesh is not None and AxisType.Explicit in mesh.axis_types:
        return jax.device_put(array, sharding)
    return lax.with_sharding_constraint(array, sharding)


def _stack(*rows: jax.Array) -> jax.Array:
    return lax.concatenate([lax.expand_dims(row, (0,)) for row in rows], 0)


def body_of(eqn: JaxprEqn) -> ClosedJaxpr:
    """Returns the one jaxpr among the parameters of an equation.

    Raises:
      ValueError: there is none, or there are several.
    """
    bodies = [p for p in eqn.params.values() if isinstance(p, Jaxpr | ClosedJaxpr)]
    if len(bodies) != 1:
        raise ValueError(f"equation {eqn.primitive.name} has {len(bodies)} jaxprs, expected 1")
    return bodies[0] if isinstance(bodies[0], ClosedJaxpr) else ClosedJaxpr(bodies[0], ())


def every_equation(equations: Iterable[JaxprEqn]) -> Iterator[JaxprEqn]:
    """Yields equations, and those of all bodies in them."""
    for equation in equations:
        yield equation
        for parameter in equation.params.values():
            for part in parameter if isinstance(parameter, tuple | list) else (parameter,):
                body = part.jaxpr if isinstance(part, ClosedJaxpr) else part
                if isinstance(body, Jaxpr):
                    yield from every_equation(body.eqns)


def aval_of(atom: Atom) -> Any:
    """Returns the abstract value of a variable or literal: shape, dtype, size."""
    return atom.aval


def shape_of(atom: Atom) -> jax.ShapeDtypeStruct:
    """Returns the shape and the dtype of a variable or literal, to trace with."""
    aval = aval_of(atom)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _fresh(variable: Var) -> Var:
    return type(variable)(variable.aval)


def variables(atoms: Iterable[Atom]) -> Iterable[Var]:
    """Returns the variables among atoms, with repetitions."""
    return (atom for atom in atoms if isinstance(atom, Var))


def _live(
    equations: Sequence[JaxprEqn], outputs: Sequence[Atom]
) -> tuple[tuple[JaxprEqn, ...], set[Var]]:
    """Returns the equations that the outputs depend on, and all variables that are read."""
    live = set(variables(outputs))
    kept = []
    for eqn in reversed(equations):
        if not live.isdisjoint(eqn.outvars):
            live.update(variables(eqn.invars))
            kept.append(eqn)
    return tuple(reversed(kept)), live
