"""Trace a JAX function to a computation graph, from shapes alone.

Equations become ops as follows:

- Views are removed, and their consumers read the viewed tensor. Views are reshapes, squeezes, new
  axes, bitcasts, identities such as `stop_gradient` and, as in XLA, `copy`.
- Broadcast scalars and iotas are removed: their consumers make them on the fly, without time or
  memory. They stay ops where they are outputs of the function.
- `scan`, `while`, `cond` and other equations with a body are one op each. It has the flop and bytes
  of the body times the number of iterations, and the body's peak memory as workspace. A `while`
  loop counts one iteration, since their number is unknown; a `cond` counts its largest branch.
  Slices of scanned arrays are read where the body reads them, and results are written in place.
- Kernels (`pallas_call`, `shard_map`) are one op each, without workspace.
- Every other equation is one op, with one tensor per result, read or not.

Arguments and captured arrays are `input` ops and come first. Non-donated arguments, captured
arrays and outputs are pinned. A result never reuses a buffer: an update in place moves few bytes,
but its result is a new tensor.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from gopt.graph import bodies
from gopt.graph.graph import Graph, Op, Output, from_ops
from gopt.graph.op_costs import IN_PLACE, bytes_moved, flops, num_bytes
from gopt.program.arguments import check_whole_numbers, keywords_are_options
from gopt.program.effects import DropEffects, drop
from gopt.program.equations import Atom, aval_of, body_of
from gopt.program.program import Program, from_jaxpr, trace_program, unroll

_IDENTITIES = frozenset(
    (
        *("reshape", "squeeze", "expand_dims", "stop_gradient", "name", "optimization_barrier"),
        *("random_wrap", "random_unwrap", "copy"),
    )
)

# Primitives mapped to a kind of another name in `gopt.graph.kinds`.
_KIND = {
    "jit": "fusion",
    "one_minus_square": "square",
    "polynomial": "integer_pow",
    "scatter-sub": "scatter_add",
    "stack": "concatenate",
    "unstack": "split",
}


@dataclass(frozen=True, eq=False, repr=False)
class TracedGraph:
    """A graph and the program it was traced from.

    Attributes:
      graph: computation graph of `N` ops.
      program: the function as equations.
      names: readable name per op, `[N]`: path of an argument, or scope and primitive.
      equations: index in `program` of each op's equation, `[N]`; -1 for inputs.
    """

    graph: Graph
    program: Program
    names: tuple[str, ...]
    equations: tuple[int, ...]

    def with_order(self, order: Sequence[int]) -> Program:
        """Return the program with its equations in an order of ops.

        Equations without an op (views, broadcast scalars) run just before their first consumer.

        Args:
          order: op indices, `[N]`, a topological order.

        Raises:
          ValueError: the order is not a permutation of the ops, or not topological.
        """
        count, eqns = len(self.equations), self.program.equations
        if len(order) != count:
            raise ValueError(f"order has {len(order)} entries, expected {count}")
        ops = set(self.equations)
        unplaced = {v: i for i, eqn in enumerate(eqns) if i not in ops for v in eqn.outvars}
        result: list[int] = []

        def place(index: int) -> None:
            for atom in eqns[index].invars:
                if isinstance(atom, Var) and atom in unplaced:
                    place(unplaced[atom])
            for v in eqns[index].outvars:
                unplaced.pop(v, None)
            result.append(index)

        seen: set[int] = set()
        for k, op in enumerate(map(int, order)):
            if op in seen or not 0 <= op < count:
                raise ValueError(f"order[{k}] is {op}: expected each of 0..{count - 1} once")
            seen.add(op)
            if self.equations[op] >= 0:
                place(self.equations[op])
        while unplaced:
            place(next(iter(unplaced.values())))
        return self.program.with_order(result)


@keywords_are_options
def trace(
    fn: Callable[..., Any],
    *args: Any,
    donate_argnums: int | Sequence[int] = (),
    max_trips: int = 0,
    drop_effects: DropEffects = None,
) -> TracedGraph:
    """Return the computation graph of `fn(*args)`, traced without running anything.

    Args:
      fn: function of pytrees of arrays. Bind other arguments with `functools.partial`.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.
      donate_argnums: positions of the arguments that are freed after their last use. What a jitted
        `fn` donates is donated, too.
      max_trips: largest number of iterations at which a `scan` is unrolled; 0 unrolls none.
      drop_effects: "debug" drops `jax.debug.print` and `jax.debug.callback`.

    Raises:
      ValueError: the function has no argument, captured array or equation; or see
        `gopt.program.program.trace_program` and `gopt.program.program.unroll`.
    """
    check_whole_numbers(0, max_trips=max_trips)
    program = trace_program(drop(fn, drop_effects), *args, donate_argnums=donate_argnums)
    return from_program(unroll(program, max_trips=max_trips) if max_trips else program)


def from_program(program: Program) -> TracedGraph:
    """Return the computation graph of a program.

    Raises:
      ValueError: the program has no input, no constant and no equation.
    """
    return traced(program, *ops_of(program))


def traced(program: Program, ops: Sequence[Op], equations: Sequence[int]) -> TracedGraph:
    """Return the graph of a program's ops, with the program and readable names.

    Args:
      program: program that the ops were made from.
      ops: inputs and constants of the program, then the ops of its equations.
      equations: index of each op's equation; -1 for inputs and constants.

    Raises:
      ValueError: `ops` is empty.
    """
    if not ops:
        raise ValueError(
            "the function has no argument, captured array or equation: expected one at least"
        )
    arguments = jax.tree.unflatten(program.in_tree, range(len(program.inputs)))
    names = [f"args{jax.tree_util.keystr(p)}" for p, _ in jax.tree.leaves_with_path(arguments)]
    names += [f"constants[{k}]" for k in range(len(program.constants))]
    names += [name_of(program.equations[i]) for i in equations if i >= 0]
    return TracedGraph(from_ops(ops), program, tuple(names), tuple(equations))


def name_of(eqn: JaxprEqn) -> str:
    """Return the scope and primitive of an equation; a call is named after its function."""
    scope, name = str(eqn.source_info.name_stack), eqn.primitive.name
    name = eqn.params["name"] if name == "jit" else name
    return f"{scope}/{name}" if scope else name


class _Tensor(NamedTuple):
    """Position of a variable's data: output `output` of op `op`, `size` bytes."""

    op: int
    output: int
    size: float


def ops_of(program: Program, *, made: Collection[int] = ()) -> tuple[list[Op], list[int]]:
    """Return the ops of a program in its order, and the index of each op's equation.

    Inputs and constants come first, with index -1.

    Args:
      program: program to convert.
      made: indices of equations that become ops even if they are views.
    """
    sources = (*program.inputs, *program.constants)
    returned = {atom for atom in program.outputs if isinstance(atom, Var)}
    # A variable without a tensor is made on the fly by its consumers, like a literal.
    tensors = {v: _Tensor(op, 0, _size(v)) for op, v in enumerate(sources)}

    def find(atom: Atom | None) -> _Tensor | None:
        return tensors.get(atom) if isinstance(atom, Var) else None

    rows: list[tuple[int, JaxprEqn, list[_Tensor]]] = []
    for index, eqn in enumerate(program.equations):
        viewed = [(v, find(atom)) for v, atom in zip(eqn.outvars, _viewed(eqn), strict=False)]
        is_view = viewed and all(v not in returned or (t and t.size == _size(v)) for v, t in viewed)
        if is_view and index not in made:
            tensors.update((v, t) for v, t in viewed if t)
        else:
            op = len(sources) + len(rows)
            rows.append((index, eqn, list(dict.fromkeys(t for t in map(find, eqn.invars) if t))))
            tensors.update((v, _Tensor(op, k, _size(v))) for k, v in enumerate(eqn.outvars))

    lent = [v for v, donated in zip(program.inputs, program.donated, strict=True) if not donated]
    pinned = {tensors[v] for v in (*lent, *program.constants, *returned)}

    def outputs(op: int, variables: Sequence[Var]) -> tuple[Output, ...]:
        made = [(_Tensor(op, k, _size(v)), aval_of(v)) for k, v in enumerate(variables)]
        return tuple(Output(t.size, a.shape, a.dtype.name, t in pinned) for t, a in made)

    ops = [Op("input", outputs=outputs(op, [v]), bytes=0.0) for op, v in enumerate(sources)]
    for _, eqn, read in rows:
        work = _work(eqn, read)
        ops.append(
            Op(
                kind=_KIND.get(eqn.primitive.name, eqn.primitive.name),
                inputs=tuple((t.op, t.output) for t in read),
                outputs=outputs(len(ops), eqn.outvars),
                flops=work.flops,
                bytes=work.bytes,
                workspace=work.workspace,
            )
        )
    return ops, [-1] * len(sources) + [index for index, _, _ in rows]


def _viewed(eqn: JaxprEqn) -> list[Atom | None]:
    """Return the atom that each result views, `None` if its consumers make it on the fly.

    The list is empty if the equation is an op.
    """
    name, out = eqn.primitive.name, aval_of(eqn.outvars[0])
    if name == "iota":
        return [None]
    if name in _IDENTITIES:
        return list(eqn.invars)
    same = {
        "bitcast_convert_type": lambda seen: seen.size == out.size,
        "broadcast_in_dim": lambda seen: seen.size in (1, out.size),
        "convert_element_type": lambda seen: seen.dtype == out.dtype,
    }
    if name in same and same[name](aval_of(eqn.invars[0])):
        return [eqn.invars[0]]
    return []


def _size(atom: Atom) -> float:
    return num_bytes(atom.aval)


class _Work(NamedTuple):
    """Work of one op: flop, bytes moved, and workspace in bytes."""

    flops: float
    bytes: float
    workspace: float


def _work(eqn: JaxprEqn, read: Sequence[_Tensor]) -> _Work:
    name = eqn.primitive.name
    written = sum(map(_size, eqn.outvars))
    if name == "jit":  # one kernel: its intermediate results are not in memory
        inside = _ops_inside(body_of(eqn))
        return _Work(
            flops=sum(op.flops for op in inside),
            bytes=sum(t.size for t in read) + written,
            workspace=max(op.workspace for op in inside),
        )
    if name in bodies.LOOPS:
        loops = [(runs, _body_work(body)) for body, runs in bodies.LOOPS[name](eqn)]
        return _Work(
            flops=sum(runs * body.flops for runs, body in loops),
            bytes=sum(runs * body.bytes for runs, body in loops),
            workspace=max(body.workspace for _, body in loops),
        )
    if name in bodies.BRANCHES:
        branches = [_body_work(body) for body in bodies.BRANCHES[name](eqn)]
        flop, traffic, peak = (max(column) for column in zip(*branches, strict=True))
        # The outputs of a branch are results of the op, not its workspace.
        return _Work(flop, traffic, max(peak - written, 0.0))
    if name in bodies.KERNELS:
        return _Work(bodies.kernel_flops(eqn), sum(t.size for t in read) + written, 0.0)
    part = bytes_moved(eqn)
    if part is None:
        return _Work(flops(eqn), sum(t.size for t in read) + written, 0.0)
    if name in IN_PLACE and _size(eqn.invars[0]) not in [t.size for t in read]:
        part += written  # the updated buffer was made on the fly and has to be filled
    return _Work(flops(eqn), part, 0.0)


# A schedule runs kernels many times, and searches make many schedules.
_OPS_INSIDE: WeakKeyDictionary[ClosedJaxpr, list[Op]] = WeakKeyDictionary()


def _ops_inside(jaxpr: ClosedJaxpr) -> list[Op]:
    """Return the ops of a body."""
    if jaxpr not in _OPS_INSIDE:
        _OPS_INSIDE[jaxpr], _ = ops_of(from_jaxpr(jaxpr))
    return _OPS_INSIDE[jaxpr]


def _body_work(jaxpr: ClosedJaxpr) -> _Work:
    """Return the work of one run of a body; its workspace is its peak memory, results included."""
    ops = _ops_inside(jaxpr)
    return _Work(sum(op.flops for op in ops), sum(op.bytes or 0.0 for op in ops), _peak(ops))


def _peak(ops: Sequence[Op]) -> float:
    """Return the most bytes that the results of ops hold at once when run in this order."""
    last_reader = {tensor: i for i, op in enumerate(ops) for tensor in op.inputs}
    live = peak = 0.0
    for i, op in enumerate(ops):
        if op.kind == "input":
            continue
        live += sum(output.size for output in op.outputs)
        peak = max(peak, live + op.workspace)
        made = [(i, k) for k in range(len(op.outputs))]
        for j, k in (*op.inputs, *made):
            output = ops[j].outputs[k]
            if last_reader.get((j, k), i) == i and not output.pinned:
                live -= output.size
    return peak
