"""What is done to a program before its kernels are chosen."""

from gopt.kernels.duplicates import merge_duplicates
from gopt.kernels.sums import squeeze_sums
from gopt.kernels.transposes import fold_transposes
from gopt.program import Program


def simplify(program: Program) -> Program:
    """Returns the program without what XLA's library is slow at, and as XLA simplifies it.

    See `squeeze_sums`, `merge_duplicates` and `fold_transposes`. What is merged is held longer.
    """
    return fold_transposes(merge_duplicates(squeeze_sums(program)))
