"""Group a program's equations into kernels, one equation for each kernel.

XLA fuses equations into kernels. Values inside a kernel need no memory, so schedules are planned
for kernels. A group holds the equations of a kernel in the order of the program. Its last equation,
the root, computes the kernel's outputs. Cheap equations may be in several groups, because XLA
clones them into several kernels.
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Var, jaxpr_as_fun

from gopt.graph.op_costs import IN_PLACE, num_bytes
from gopt.program.equations import Atom, aval_of, shape_of, variables
from gopt.program.primitives import DUPLICATED_BY_XLA
from gopt.program.program import Program
from gopt.xla import hlo_text
from gopt.xla.applied import compile_for
from gopt.xla.labels import labelled, module_kernels

Group = tuple[int, ...]

_SUMMED = 3  # values that a kernel may add; our choice
_LARGE = 1e-2  # share of the largest value; smaller ones are added as XLA adds them


def materialised(
    program: Program,
    options: Mapping[str, Any] | None = None,
    device: Any = None,
) -> tuple[int, ...]:
    """Return the equations whose results XLA writes to memory, in execution order.

    The program is compiled from shapes alone; nothing runs.

    Args:
      program: program to compile.
      options: additional compiler options.
      device: device to compile for, if it is only described.

    Returns:
      Positions of the equations.
    """
    # With "cse", XLA would merge equal equations and keep one label.
    own: dict[str, Any] = {"xla_disable_hlo_passes": "cse"}
    if device is None:  # the optimisation of the generated code does not matter here
        own["xla_backend_optimization_level"] = 0
    function = jax.jit(labelled(program), compiler_options={**own, **(options or {})})
    compiled = compile_for(device, function, program.arguments())
    found = module_kernels(hlo_text.parse(compiled.as_text() or ""))
    # The last of several steps writes the result.
    return tuple(reversed(dict.fromkeys(k for _, labels in reversed(found) for k in labels)))


def cloned_by_xla(equation: JaxprEqn) -> bool:
    """Return whether XLA clones an equation into each kernel that reads its result."""
    return equation.primitive.name in DUPLICATED_BY_XLA


def groups_for_memory(program: Program, written: Collection[int]) -> tuple[Group, ...]:
    """Return groups that read few large values at once; see `groups`.

    XLA clones sums into their readers, and sums many values in one kernel. All these values are in
    memory at once. Here a kernel clones only what reads not many more bytes than it makes. A kernel
    that would add more than three large values is cut; each part adds two. The order of the
    additions stays.
    """
    parts = groups(program, written, _cloned_for_memory)
    least = _LARGE * max((_bytes_made(e) for e in program.equations), default=0.0)
    sums = {k for part in parts for k in _partial_sums(program, part, least)}
    return groups(program, sums.union(written), _cloned_for_memory) if sums else parts


def _partial_sums(program: Program, part: Group, least: float) -> set[int]:
    """Return the additions of a group in sums of more than `_SUMMED` large values.

    A value counts if the program computes it, or makes it in the group of what it computes, and if
    it is not smaller than the sum. Arguments are in memory anyway.
    """
    given = {*program.inputs, *program.constants}
    inside = {v for k in part for v in program.equations[k].outvars}
    counted = set[Var]()
    sums: dict[Var, list[int]] = {}  # additions that make a value, in order
    found = set[int]()
    for k in part:
        equation = program.equations[k]
        size = _bytes_made(equation)
        large = [
            v
            for v in variables(equation.invars)
            if (v in counted if v in inside else v not in given and num_bytes(aval_of(v)) >= size)
        ]
        counted.update(equation.outvars if large else ())
        if equation.primitive.name in ("add", "add_any") and len(large) == 2 and size >= least:
            before = [i for v in large for i in sums.get(v, ())]
            sums[equation.outvars[0]] = [*before, k]
            if len(before) + 2 > _SUMMED:
                found.update((*before, k))
    return found


def _bytes_made(equation: JaxprEqn) -> float:
    return sum(num_bytes(aval_of(v)) for v in equation.outvars)


def _cloned_for_memory(equation: JaxprEqn) -> bool:
    reads = sum(num_bytes(aval_of(v)) for v in set(variables(equation.invars)))
    makes = sum(num_bytes(aval_of(v)) for v in equation.outvars)
    return cloned_by_xla(equation) and reads <= 1.5 * makes


def groups(
    program: Program,
    written: Collection[int],
    is_cloned: Callable[[JaxprEqn], bool] = cloned_by_xla,
) -> tuple[Group, ...]:
    """Return the groups of a program, sorted by root.

    Besides the equations in `written`, these are roots:

    - equations that compute outputs of the program;
    - broadcasts that fill a buffer, into which another equation writes;
    - equations that several kernels read and that are not cloned, unless they depend on literals
      alone.

    Args:
      program: program to group.
      written: positions of equations whose results should be written to memory.
      is_cloned: whether an equation is in each kernel that reads its result.
    """
    equations = program.equations
    producer = {v: i for i, equation in enumerate(equations) for v in equation.outvars}
    made_of = [
        {producer[v] for v in variables(equation.invars) if v in producer} for equation in equations
    ]
    readers: list[list[int]] = [[] for _ in equations]
    fixed = set[int]()
    for index, equation in enumerate(equations):
        for maker in made_of[index]:
            readers[maker].append(index)
        if all(v in producer and producer[v] in fixed for v in variables(equation.invars)):
            fixed.add(index)
    returned = {producer[v] for v in variables(program.outputs) if v in producer}
    filled = {
        producer[v]
        for equation in equations
        for v in variables(_updated(equation))
        if v in producer and equations[producer[v]].primitive.name == "broadcast_in_dim"
    }
    roots = returned | filled | set(written)
    members: dict[int, list[int]] = {}
    of: list[set[int]] = [set() for _ in equations]  # roots of each equation's groups
    for index in reversed(range(len(equations))):
        wanted = {root for reader in readers[index] for root in of[reader]}
        dear = len(wanted) > 1 and index not in fixed and not is_cloned(equations[index])
        of[index] = {index} if index in roots or dear else wanted
        for root in of[index]:
            members.setdefault(root, []).append(index)
    return tuple(tuple(reversed(members[root])) for root in sorted(members))


def group(program: Program, parts: Sequence[Group]) -> Program:
    """Return the program with one equation for each group, in the given order.

    A group of several equations becomes a call. Other groups can read only the results of its root.

    Args:
      program: program to group.
      parts: groups, in execution order.

    Raises:
      ValueError: a group is not valid, see `check_groups`, or has an equation that the program does
        not have. Or it reads a value that no earlier group computes, or no group computes an
        output. The message names it.
    """
    equations = program.equations
    check_groups(parts)
    for position, part in enumerate(parts):
        if part[0] < 0 or part[-1] >= len(equations):
            raise ValueError(
                f"groups[{position}] is {part}: expected equations in 0..{len(equations) - 1}"
            )
    known = {*program.inputs, *program.constants}
    result = []
    for position, part in enumerate(parts):
        body = [equations[index] for index in part]
        made = {v for equation in body for v in equation.outvars}
        reads = list(dict.fromkeys(v for e in body for v in variables(e.invars) if v not in made))
        for v in reads:
            if v not in known:
                raise ValueError(
                    f"group {position} {part} reads a {v.aval.str_short()} that no group before "
                    "it makes"
                )
        result.append(body[0] if len(body) == 1 else _call(body, reads))
        known |= set(body[-1].outvars)
    for index, output in enumerate(program.outputs):
        if isinstance(output, Var) and output not in known:
            raise ValueError(f"output {index} is made by no group")
    return replace(program, equations=tuple(result))


def check_groups(parts: Sequence[Group]) -> None:
    """Check that groups are not empty, ascend, and end with different equations.

    Raises:
      ValueError: a group is not valid. The message names it.
    """
    ends: dict[int, int] = {}
    for position, part in enumerate(parts):
        if not part or any(a >= b for a, b in itertools.pairwise(part)):
            raise ValueError(f"groups[{position}] is {part}: expected equations in their order")
        other = ends.setdefault(part[-1], position)
        if other != position:
            raise ValueError(
                f"groups[{position}] ends with equation {part[-1]}, and so does groups[{other}]"
            )


def _updated(equation: JaxprEqn) -> Sequence[Atom]:
    """Return the operands of an equation that XLA may overwrite, and so needs in memory."""
    if equation.primitive.name in ("scan", "while"):
        return equation.invars
    return equation.invars[:1] if equation.primitive.name in IN_PLACE else ()


def _call(body: Sequence[JaxprEqn], reads: Sequence[Var]) -> JaxprEqn:
    """Return one equation that calls several; its outputs are the last one's."""
    root = body[-1]
    info = DebugInfo("kernel", "kernel", None, None)
    made = [v for v in root.outvars if type(v) is Var]
    jaxpr = Jaxpr((), reads, made, list(body), debug_info=info)
    function = jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))

    def kernel(*values: jax.Array) -> list[jax.Array]:
        return function(*values)

    kernel.__name__ = root.primitive.name
    (call,) = jax.make_jaxpr(jax.jit(kernel))(*map(shape_of, reads)).jaxpr.eqns
    return call.replace(invars=list(reads), outvars=made, source_info=root.source_info)


def chains(program: Program) -> tuple[Group, ...]:
    """Return the kernels of a program in chains, sorted by the last kernel of each.

    A kernel joins the chain of another kernel if three conditions hold:

    - it reads no other kernel's result;
    - it is the only consumer of that kernel's single result, which is not an output;
    - its results are not larger.

    After the first kernel of a chain, the rest does not increase the memory in use. Running it at
    once loses little, and a search has fewer items to place.

    Args:
      program: program with one equation for each kernel.
    """
    kernels = program.equations
    made = {v for kernel in kernels for v in kernel.outvars}
    reads = [{v for v in variables(kernel.invars) if v in made} for kernel in kernels]
    readers: dict[object, list[int]] = {}
    for index, read in enumerate(reads):
        for v in read:
            readers.setdefault(v, []).append(index)
    returned = set(variables(program.outputs))
    sizes = [sum(num_bytes(aval_of(v)) for v in kernel.outvars) for kernel in kernels]
    following: dict[int, int] = {}
    for index, kernel in enumerate(kernels):
        last = kernel.outvars[0]
        if len(kernel.outvars) == 1 and last not in returned and len(readers[last]) == 1:
            (reader,) = readers[last]
            if reads[reader] == {last} and sizes[reader] <= sizes[index]:
                following[index] = reader
    parts = []
    for index in sorted(set(range(len(kernels))) - set(following.values())):
        part = [index]
        while part[-1] in following:
            part.append(following[part[-1]])
        parts.append(tuple(part))
    return tuple(sorted(parts, key=lambda part: part[-1]))
