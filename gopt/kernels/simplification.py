"""What is done to a program before its kernels are chosen."""

from gopt.kernels.duplicates import merge_duplicates
from gopt.kernels.sums import squeeze_sums
from gopt.kernels.transposes import fold_transposes
from gopt.program import Program


def simplify(program: Program) -> Program:
    """Returns the program as XLA simplifies it, and without what XLA's library is slow at."""
    return squeeze_sums(fold_transposes(merge_duplicates(program)))
