"""Kernels that run one after another in any good order, taken together for a search."""

from gopt.graph.op_costs import num_bytes
from gopt.program.equations import aval_of, variables
from gopt.program.program import Program
from gopt.xla.grouping import Group


def chains(program: Program) -> tuple[Group, ...]:
    """Returns the kernels of a program in chains, by the last of each.

    A kernel is in a chain with the one before it if that is all it reads, but for arguments, if it
    alone reads that, and if it makes no more. Once the first has run, the rest takes no more memory
    to keep, so that little is lost by running it at once; a search has fewer things to place.
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
