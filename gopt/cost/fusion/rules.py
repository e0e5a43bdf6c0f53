"""Fusion rules of compilers, by the roles of ops.

The rules follow XLA's passes (instruction fusion on CPUs, priority fusion on GPUs), reduced to op
kinds. Products and convolutions are library calls, with operands and results in memory. An
op that updates a buffer in place reads and writes it in memory.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int32

from gopt.graph.kinds import KINDS
from gopt.program.primitives import OPERATIONS_PER_ELEMENT, ROLE_MEMBERS, ROLES

# One bit more than those of roles: the op is cheap enough to be recomputed for each element that
# a broadcast repeats.
REPEATABLE = 1 << len(ROLES)

# Element-wise ops and moves that XLA's CPU pass calls expensive for float32
# (xla/service/cpu/cpu_instruction_fusion.cc, commit 0725a3a9). XLA exempts integer division by a
# constant, which a kind cannot tell apart.
EXPENSIVE = frozenset(
    (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "tanh"),
        *("cbrt", "pow", "rsqrt", "sqrt", "div", "rem", "gather"),
        *("erf", "exp", "exp2", "expm1", "log", "log1p", "logistic"),
        # Calls of library functions, or long expansions.
        *("digamma", "erf_inv", "erfc", "lgamma"),
    )
)

# Work per element, if above 1. Division, roots, tanh and exponentials have XLA's weights for CPUs.
# The others get the weight of the most similar function, our choice.
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
    """Fusion rules of a compiler.

    Attributes:
      fuses_into: (role, roles of ends) pairs. An op of the role may be fused into a kernel whose
        end has one of the roles.
      max_kernel_ops: largest number of ops in a kernel: its end, and the nearest ops before it in
        program order that may be fused into it. Work and memory grow with it. The default is our
        choice.
      allow_duplication: whether every kernel that reads an op, and may contain it, computes it
        anew. If not, an op is fused only if all its consumers are in one kernel.

    Raises:
      ValueError: a role is unknown, moves may not be fused wherever other ops may, or the limit is
        below 1.
    """

    fuses_into: tuple[tuple[str, tuple[str, ...]], ...]
    max_kernel_ops: int = 64
    allow_duplication: bool = True

    def __post_init__(self) -> None:
        for producer, roots in self.fuses_into:
            for role in (producer, *roots):
                if role not in ROLES:
                    raise ValueError(
                        f"fuses_into has role {role!r}: expected one of {', '.join(ROLES)}"
                    )
        # Consumers make broadcasts themselves, so a broadcast must be allowed wherever they are.
        moves = dict(self.fuses_into).get("move", ())
        for role in {role for producer, roots in self.fuses_into for role in (producer, *roots)}:
            if moves and role not in moves:
                raise ValueError(f"fuses_into has no {role!r} among what moves may be fused into")
        if not self.max_kernel_ops >= 1:
            raise ValueError(f"max_kernel_ops is {self.max_kernel_ops}: expected 1 at least")

    def masks(self) -> np.ndarray:
        """Return the roles of ends that each role may be fused into, as bit masks. int32 `[R]`."""
        masks = np.zeros(len(ROLES), np.int32)
        for producer, roots in self.fuses_into:
            for root in roots:
                masks[ROLES.index(producer)] |= 1 << ROLES.index(root)
        return masks


_LOOPS = ("element-wise", "move", "reduction", "update")

RULES: dict[str, Rules] = {
    # A reduction ends its kernel: XLA calls a library for it, and fuses its consumers separately.
    # XLA fuses small reductions into their consumers; these rules do not.
    "cpu": Rules((("element-wise", _LOOPS), ("move", _LOOPS))),
    # A reduction is spread over threads, so another one cannot read it within a kernel.
    "gpu": Rules((("element-wise", _LOOPS), ("move", _LOOPS), ("reduction", _LOOPS[:2]))),
}


def kind_roles() -> Int32[np.ndarray, " K"]:
    """Return the index in `ROLES` of each kind in `gopt.graph.kinds.KINDS`. int32 `[K]`."""
    roles = np.zeros(len(KINDS), np.int32)
    for role, names in ROLE_MEMBERS.items():
        for kind, name in enumerate(KINDS):
            if name in names:
                roles[kind] = ROLES.index(role)
    return roles


def kind_fusion_masks(rules: Rules) -> Int32[np.ndarray, " K"]:
    """Return the roles of ends that each kind may be fused into, as bit masks. int32 `[K]`.

    Rows follow `gopt.graph.kinds.KINDS`. A non-empty mask includes `REPEATABLE`, unless the kind is
    in `EXPENSIVE` or a reduction.
    """
    roles = kind_roles()
    fuses_into = rules.masks()[roles]
    is_cheap = np.array([name not in EXPENSIVE for name in KINDS])
    is_cheap &= roles != ROLES.index("reduction")
    return np.where(is_cheap & (fuses_into > 0), fuses_into | REPEATABLE, fuses_into).astype(
        np.int32
    )


def kind_work() -> Float64[np.ndarray, " K"]:
    """Return the work per flop of each kind in `gopt.graph.kinds.KINDS`. float64 `[K]`."""
    each = np.array([_WORK.get(name, 0) for name in KINDS], np.float64)
    return np.where(each > 0, each * kind_functions(), 1)


def kind_functions() -> Float64[np.ndarray, " K"]:
    """Return the function elements per flop of each kind. float64 `[K]`.

    Functions are exponentials, roots, divisions and the like; other kinds have 0. A kind has a
    fraction if graphs count the flops of its expansion.
    """
    return np.array(
        [(name in _WORK) / OPERATIONS_PER_ELEMENT.get(name, 1) for name in KINDS], np.float64
    )
