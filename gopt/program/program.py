"""Programs: a traced JAX function as a flat list of equations, and back to a JAX function.

Calls (`jit`, custom derivatives, checkpoints, closed calls) are inlined. The shardings of a `jit`
over devices become constraints. `scan`, `while` and `cond` stay one equation each; `unroll`
replaces a `scan` by its iterations. In any order of its equations, a program computes the same
values, because it evaluates the traced equations themselves.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Var, jaxpr_as_fun
from jax.extend.core.primitives import convert_element_type_p

from gopt.program.arguments import positions, to_jaxpr
from gopt.program.equations import (
    Atom,
    aval_of,
    shape_of,
    variables,
)
from gopt.program.inlining import inline


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A function as equations in execution order.

    Attributes:
      equations: equations of the function; each variable is bound once. The only calls are the
        kernels of `gopt.xla.grouping.group`.
      inputs: variables of the flattened arguments.
      outputs: variables or literals of the flattened result.
      constants: variables of the captured arrays.
      values: captured arrays, one per entry of `constants`.
      donated: per input, whether its buffer may be reused.
      weak: per output, whether its type is weak, like a Python scalar.
      in_tree: pytree structure of the tuple of arguments.
      out_tree: pytree structure of the result.
    """

    equations: tuple[JaxprEqn, ...]
    inputs: tuple[Var, ...]
    outputs: tuple[Atom, ...]
    constants: tuple[Var, ...]
    values: tuple[Any, ...]
    donated: tuple[bool, ...]
    weak: tuple[bool, ...]
    in_tree: Any
    out_tree: Any

    def jaxpr(self) -> ClosedJaxpr:
        """Return the program as a jaxpr, for printing and evaluation."""
        info = DebugInfo("program", "program", None, None)
        jaxpr = Jaxpr(self.constants, self.inputs, self.outputs, self.equations, debug_info=info)
        return ClosedJaxpr(jaxpr, self.values)

    def __str__(self) -> str:
        return str(self.jaxpr())

    def as_function(self) -> Callable[..., Any]:
        """Return a function of the traced arguments that evaluates the equations in order.

        The function can be jitted, vmapped and differentiated. Inlining drops custom derivative and
        batching rules: the equations themselves are differentiated. Trace the gradient where a rule
        matters. Recomputation by `jax.checkpoint` stays as equations, but XLA may merge it again
        under `jax.jit`.

        The function raises `ValueError` if its arguments differ from the traced ones in structure,
        shape or dtype. The message names the first that differs.
        """
        evaluate = jaxpr_as_fun(self.jaxpr())

        def function(*args: Any) -> Any:
            return self.result(evaluate(*self.check_arguments(args)))

        return function

    @property
    def donated_arguments(self) -> tuple[int, ...]:
        """Positions of the arguments that are donated, each with all its leaves."""
        flags = jax.tree.unflatten(self.in_tree, self.donated)
        leaves = map(jax.tree.leaves, flags)
        return tuple(k for k, found in enumerate(leaves) if found and all(found))

    def with_copies(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arguments in which donated arrays are copies, which a call may consume."""
        leaves, tree = jax.tree.flatten(args)
        pairs = zip(leaves, self.donated, strict=True)
        return jax.tree.unflatten(
            tree,
            [jax.numpy.copy(x) if d and isinstance(x, jax.Array) else x for x, d in pairs],
        )

    def result(self, leaves: Sequence[Any]) -> Any:
        """Return values of the outputs as `jax.jit` returns them: arrays, weak types, in pytrees.

        Args:
          leaves: value of each output.
        """
        return jax.tree.unflatten(self.out_tree, list(map(_with_type, leaves, self.weak)))

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments as `jax.ShapeDtypeStruct`s."""
        shapes = map(shape_of, self.inputs)
        return jax.tree.unflatten(self.in_tree, shapes)

    def check_arguments(self, args: tuple[Any, ...]) -> list[Any]:
        """Return the leaves of arguments, after checking them.

        Raises:
          ValueError: they differ from the traced ones in structure, shape or dtype. The message
            names the first that differs.
        """
        leaves, tree = jax.tree.flatten(args)
        if tree != self.in_tree:
            raise ValueError(f"arguments have structure {tree}, expected {self.in_tree}")
        for index, (leaf, variable) in enumerate(zip(leaves, self.inputs, strict=True)):
            expected = aval_of(variable)
            try:
                got = jax.typeof(leaf)
                if (got.shape, got.dtype) == (expected.shape, expected.dtype):
                    continue
                text = got.str_short()
            except (TypeError, OverflowError):  # not an array, or a number that is too large
                text = repr(leaf)
            path = jax.tree.leaves_with_path(args)[index][0]
            name = f"args{jax.tree_util.keystr(path)}"
            raise ValueError(f"{name} is {text}, expected {expected.str_short()}")
        return leaves

    def with_order(self, order: Sequence[int]) -> "Program":
        """Return the program with its equations in another order.

        Args:
          order: index in this program of each equation in the new order.

        Raises:
          ValueError: `order` is not a permutation, or an equation would run before one whose result
            it reads. The message names both.
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
    """Return the program of `fn(*args)`, traced from shapes.

    Args:
      fn: function of pytrees of arrays. Bind other arguments with `functools.partial`.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.
      donate_argnums: positions in `args` of the arguments whose buffers may be reused.

    Raises:
      ValueError: `donate_argnums` has an entry outside of `args`; a leaf of an argument is not
        an array; a shape is symbolic, as from `jax.export.symbolic_shape`; the function needs the
        value of an argument, or changes an object among the arguments; or an equation has side
        effects, such as prints, callbacks or mutable references. The message names it.
    """
    donated_args = positions("donate_argnums", donate_argnums, len(args))
    closed, out_tree, objects = to_jaxpr(fn, args)
    program = from_jaxpr(closed)
    count = out_tree.num_leaves
    objects.check(program.inputs, program.outputs)
    donated = [i in donated_args for i, arg in enumerate(args) for _ in jax.tree.leaves(arg)]
    return replace(
        program,
        outputs=program.outputs[:count],
        donated=tuple(map(operator.or_, donated, _donated_by_calls(closed))),
        weak=program.weak[:count],
        in_tree=jax.tree.structure(args),
        out_tree=out_tree,
    )


def _donated_by_calls(closed: ClosedJaxpr) -> list[bool]:
    """Return which inputs the outermost calls donate, and no equation reads afterwards.

    JAX ignores the donations of inner calls.
    """
    read_later: set[Var] = set()
    donated: set[Var] = set()
    for equation in reversed(closed.jaxpr.eqns):
        flags = equation.params.get("donated_invars", ())
        pairs = zip(equation.invars, flags, strict=False)
        donated.update(
            v for v in variables([v for v, flag in pairs if flag]) if v not in read_later
        )
        read_later.update(variables(equation.invars))
    return [v in donated for v in closed.jaxpr.invars]


def from_jaxpr(closed: ClosedJaxpr) -> Program:
    """Return the program of a jaxpr, from its inputs to the list of its outputs.

    Raises:
      ValueError: an equation has side effects.
    """
    weak = tuple(aval_of(atom).weak_type for atom in closed.jaxpr.outvars)
    return replace(_program(inline(closed, max_trips=0)), weak=weak)


def unroll(program: Program, *, max_trips: int) -> Program:
    """Return the program with every `scan` of at most `max_trips` iterations unrolled.

    Slices of scanned arrays and stacks of collected results become equations. Scans inside an
    unrolled body are unrolled too; scans inside a remaining loop or branch are not.

    Args:
      program: program to unroll.
      max_trips: largest number of iterations at which a `scan` is unrolled.

    Raises:
      ValueError: `max_trips` is negative.
    """
    if not max_trips >= 0:
        raise ValueError(f"max_trips is {max_trips}, expected 0 or more")
    return replace(
        _program(inline(program.jaxpr(), max_trips=max_trips)),
        donated=program.donated,
        weak=program.weak,
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
        weak=(False,) * len(jaxpr.outvars),
        in_tree=jax.tree.structure(tuple(jaxpr.invars)),
        out_tree=jax.tree.structure(list(jaxpr.outvars)),
    )


def _with_type(value: Any, is_weak: bool) -> Any:
    """Return an array whose type is weak or strong."""
    value = value if isinstance(value, jax.Array) else jax.numpy.asarray(value)
    aval = jax.typeof(value)
    if aval.weak_type == is_weak:
        return value
    return convert_element_type_p.bind(
        value, new_dtype=aval.dtype, weak_type=is_weak, sharding=None
    )
