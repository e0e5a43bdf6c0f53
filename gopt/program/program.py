"""Programs: a traced JAX function as a flat list of equations, and back to a JAX function.

Calls (`jit`, custom derivatives, checkpoints, closed calls) are replaced by the equations of
their bodies, and the shardings over devices of a `jit` by constraints. `scan`, `while` and
`cond` stay one equation each; `unroll` replaces a `scan` by its iterations. Whatever the order
of the equations, the function that comes back has the same values, because it evaluates the very
equations that were traced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Var, jaxpr_as_fun

from gopt.program.equations import Atom, aval_of, every_equation, is_spread, shape_of, variables
from gopt.program.inlining import inlined


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A function as equations in the order in which they run.

    Attributes:
      equations: what runs, without calls but those of `gopt.xla.group`. Each variable is bound
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
        effects (prints, callbacks, mutable references), or a shape is no numbers, as those of
        `jax.export.symbolic_shape`; the message names it.
    """
    donated_args = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
    for position in donated_args:
        if not 0 <= position < len(args):
            raise ValueError(f"donate_argnums has {position}, expected 0..{len(args) - 1}")
    for path, x in jax.tree.leaves_with_path(args):
        if not all(isinstance(size, Integral) for size in np.shape(x)):
            name = f"args{jax.tree_util.keystr(path)}"
            raise ValueError(f"{name} has shape {np.shape(x)}: expected numbers")
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
      ValueError: a mesh of several devices is set, an argument or a captured array is on several,
        or an equation asks for several; the message names it.
    """
    arrays = [(f"args{jax.tree_util.keystr(p)}", x) for p, x in jax.tree.leaves_with_path(args)]
    arrays += [(f"captured array {k}", value) for k, value in enumerate(program.values)]
    for name, array in arrays:
        sharding = getattr(array, "sharding", None)
        if sharding is not None and sharding.num_devices > 1:
            raise ValueError(f"{name} is on {sharding.num_devices} devices, expected one")
    for equation in every_equation(program.equations):
        if is_spread(equation):
            raise ValueError(
                f"the function asks for several devices ({equation.primitive.name}): expected one"
            )
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size > 1:
        raise ValueError(f"a mesh of {mesh.size} devices is set: expected one")


def from_jaxpr(closed: ClosedJaxpr) -> Program:
    """Returns the program of a jaxpr: a function of its inputs to the list of its outputs.

    Raises:
      ValueError: an equation has side effects.
    """
    return _program(inlined(closed, max_trips=0))


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
        _program(inlined(program.jaxpr(), max_trips=max_trips)),
        donated=program.donated,
        in_tree=program.in_tree,
        out_tree=program.out_tree,
    )


def _program(closed: ClosedJaxpr) -> Program:
    jaxpr = closed.jaxpr
    return Program(
        equations=tuple(jaxpr.eqns),
        inputs=tuple(jaxpr.invars),
        outputs=tuple(jaxpr.outvars),
        constants=tuple(jaxpr.constvars),
        values=tuple(closed.consts),
        donated=(False,) * len(jaxpr.invars),
        in_tree=jax.tree.structure(tuple(jaxpr.invars)),
        out_tree=jax.tree.structure(list(jaxpr.outvars)),
    )
