"""Configurations of fusion as groups of equations, and XLA's own configuration."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool

from gopt.cost.fusion.cost import Kernels
from gopt.cost.fusion.problem import FusionProblem
from gopt.graph.tracing import TracedGraph
from gopt.program.equations import shape_of, variables
from gopt.xla.grouping import Group, materialised


def members(kernels: Kernels, problem: FusionProblem) -> dict[int, set[int]]:
    """Return the ops of each kernel, by the op that ends it.

    Args:
      kernels: of one configuration.
      problem: what it is a configuration of.
    """
    result = {int(op): {int(op)} for op in np.flatnonzero(kernels.is_end)}
    visits = np.flatnonzero(kernels.inside)
    ends, ops = np.asarray(problem.reach.kernel), np.asarray(problem.reach.producer)
    for visit in visits:
        result[int(ends[visit])].add(int(ops[visit]))
    return result


def groups_of(
    traced: TracedGraph, problem: FusionProblem, kernels: Mapping[int, set[int]]
) -> tuple[Group, ...]:
    """Return kernels as groups of equations, for `gopt.xla.group`.

    Equations that are not ops (views, broadcast scalars) are copied into each kernel that reads
    them, and so are broadcasts where rules allow.

    Args:
      traced: program and its graph.
      problem: fusion problem of the graph.
      kernels: ops of each kernel, by the op that ends it, see `members`.
    """
    equations = traced.program.equations
    producer = {v: i for i, equation in enumerate(equations) for v in equation.outvars}
    op_of = {i: op for op, i in enumerate(traced.equations) if i >= 0}
    with_moves = np.asarray(problem.role) & problem.broadcast_ends

    def group_of(last: int, inside: set[int], broadcasts: bool) -> Group:
        found, left = {last}, [last]
        while left:
            for v in variables(equations[left.pop()].invars):
                made_by = producer.get(v)
                if made_by is None or made_by in found:
                    continue
                op = op_of.get(made_by)
                is_broadcast = equations[made_by].primitive.name == "broadcast_in_dim"
                if op is None or op in inside or (broadcasts and is_broadcast):
                    found.add(made_by)
                    left.append(made_by)
        return tuple(sorted(found))

    parts = {
        traced.equations[end]: group_of(traced.equations[end], inside, bool(with_moves[end]))
        for end, inside in kernels.items()
    }
    # What is returned may only show what a kernel makes.
    for v in variables(traced.program.outputs):
        if v in producer and producer[v] not in parts:
            parts[producer[v]] = group_of(producer[v], set(), True)
    return tuple(parts[index] for index in sorted(parts))


def own_fusion(traced: TracedGraph, problem: FusionProblem) -> Bool[np.ndarray, " N"]:
    """Return what XLA fuses in the program, bool `[N]`: all that it does not write to memory.

    The program is compiled for the default backend, from shapes alone; nothing runs.

    Args:
      traced: the program and its graph.
      problem: of the graph.
    """
    equations = traced.program.equations
    op_of = {equation: op for op, equation in enumerate(traced.equations) if equation >= 0}
    producer = {v: i for i, equation in enumerate(equations) for v in equation.outvars}
    fuse = np.array(problem.configurable)
    written = list(materialised(traced.program))
    for index in written:  # it grows
        if index in op_of:
            fuse[op_of[index]] = False
            continue
        # A view is written where XLA takes the shape that it shows: its maker is in memory, then.
        size = shape_of(equations[index].outvars[0]).size
        for v in variables(equations[index].invars):
            if v in producer and shape_of(v).size == size:
                written.append(producer[v])
    return fuse
