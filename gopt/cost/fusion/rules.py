"""Which ops a compiler may fuse into which, by their roles.

The rules are those of XLA's passes (instruction fusion on CPUs, priority fusion on GPUs), reduced
to kinds of ops: products and convolutions are library calls, whose operands and results are in
memory; what changes a buffer in place, does so from memory to memory.
"""

from dataclasses import dataclass

import numpy as np

from gopt.graph.kinds import KINDS
from gopt.program.primitives import EXPANDED, ROLE_MEMBERS, ROLES

# A bit beside those of roles: an op is cheap enough to be computed again for each element that a
# broadcast repeats.
REPEATABLE = 1 << len(ROLES)

# Element-wise ops and moves that XLA's pass for CPUs calls expensive, as float32 ones are
# (xla/service/cpu/cpu_instruction_fusion.cc, commit 0725a3a9). Integer divisions by constants are
# not, which a kind does not tell.
DEAR = frozenset(
    (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "tanh"),
        *("cbrt", "pow", "rsqrt", "sqrt", "div", "rem", "gather"),
        *("erf", "exp", "exp2", "expm1", "log", "log1p", "logistic"),
        # Calls of library functions, or long expansions.
        *("digamma", "erf_inv", "erfc", "lgamma"),
    )
)

# Work for each element, where it is more than one. Division, roots, tanh and exponentials: XLA's
# weights on CPUs; the others are put beside those that are most like them, our choice.
_WORK = {
    **dict.fromkeys(("div", "rem"), 3),
    **dict.fromkeys(("sqrt", "rsqrt", "cbrt"), 4),
    **dict.fromkeys(("tanh", "erf", "erfc", "erf_inv", "lgamma", "digamma"), 9),
    **dict.fromkeys(("acos", "asin", "atan", "atan2", "cosh", "sinh"), 9),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log1p", "logistic", "pow"), 11),
    **dict.fromkeys(("cos", "sin", "tan"), 11),
}


@dataclass(frozen=True)
class Rules:
    """What a target's compiler may fuse.

    Attributes:
      into: for each role of an op that may be fused into its readers, the roles of the ops that a
        kernel may end with into which it is fused.
      limit: how many ops may be in a kernel: its end, and those nearest before it in the order of
        the program that may be fused into it; our choice. Work and memory grow with it.
      clones: whether an op is computed in each kernel that reads it and may have it. If not, it is
        only fused if all its readers are in one kernel.
    """

    into: tuple[tuple[str, tuple[str, ...]], ...]
    limit: int = 64
    clones: bool = True

    def __post_init__(self) -> None:
        for producer, roots in self.into:
            for role in (producer, *roots):
                if role not in ROLES:
                    raise ValueError(f"into has role {role!r}: expected one of {', '.join(ROLES)}")
        # So that a broadcast, which readers make themselves, may be wherever its reader is.
        moves = dict(self.into).get("move", ())
        for role in {role for producer, roots in self.into for role in (producer, *roots)}:
            if moves and role not in moves:
                raise ValueError(f"into has no {role!r} among what moves may be fused into")
        if self.limit < 1:
            raise ValueError(f"limit is {self.limit}: expected 1 at least")

    def masks(self) -> np.ndarray:
        """Returns for each role the roles that it may be fused into, as bits. int32 `[R]`."""
        masks = np.zeros(len(ROLES), np.int32)
        for producer, roots in self.into:
            for root in roots:
                masks[ROLES.index(producer)] |= 1 << ROLES.index(root)
        return masks


_LOOPS = ("element-wise", "move", "reduction", "update")

RULES: dict[str, Rules] = {
    # A reduction ends its kernel: all but small ones XLA hands to a library, and fuses what follows
    # them apart. What follows a small one it does fuse, which these rules leave out.
    "cpu": Rules((("element-wise", _LOOPS), ("move", _LOOPS))),
    # A reduction is spread over threads: another one does not read it within a kernel.
    "gpu": Rules((("element-wise", _LOOPS), ("move", _LOOPS), ("reduction", _LOOPS[:2]))),
}


def roles_of_kinds() -> np.ndarray:
    """Returns the index in `ROLES` of each kind of `gopt.graph.kinds.KINDS`. int32 `[K]`."""
    roles = np.zeros(len(KINDS), np.int32)
    for role, names in ROLE_MEMBERS.items():
        for kind, name in enumerate(KINDS):
            if name in names:
                roles[kind] = ROLES.index(role)
    return roles


def into_of_kinds(rules: Rules) -> np.ndarray:
    """Returns what ops of each kind of `gopt.graph.kinds.KINDS` may be fused into, as bits. int32
    `[K]`.

    Bits are those of roles, and `REPEATABLE` unless the kind is `DEAR` or a reduction.
    """
    roles = roles_of_kinds()
    into = rules.masks()[roles]
    is_cheap = np.array([name not in DEAR for name in KINDS])
    is_cheap &= roles != ROLES.index("reduction")
    return np.where(is_cheap & (into > 0), into | REPEATABLE, into).astype(np.int32)


def work_of_kinds() -> np.ndarray:
    """Returns how much work a flop of each kind of `gopt.graph.kinds.KINDS` is. float64 `[K]`."""
    each = np.array([_WORK.get(name, 0) for name in KINDS], np.float64)
    return np.where(each > 0, each * functions_of_kinds(), 1)


def functions_of_kinds() -> np.ndarray:
    """Returns how many elements of a function a flop of each kind is. float64 `[K]`.

    Functions are exponentials, roots, divisions and the like; of other kinds it is 0. Of those that
    graphs count as they are expanded it is a fraction.
    """
    return np.array([(name in _WORK) / EXPANDED.get(name, 1) for name in KINDS], np.float64)
