"""What is done to a program before its kernels are chosen."""

from gopt.program.program import Program
from gopt.xla.passes.duplicates import merge_duplicates
from gopt.xla.passes.sums import squeeze_sums
from gopt.xla.passes.transposes import fold_transposes


def simplify(program: Program) -> Program:
    """Returns the program without what XLA's library is slow at, and as XLA simplifies it.

    See `squeeze_sums`, `merge_duplicates` and `fold_transposes`. What is merged is held longer.
    """
    return fold_transposes(merge_duplicates(squeeze_sums(program)))
