"""Domains of the rule generator: variables, operators and shapes.

An axis is a tuple of letters whose sizes are added up: if `x` is `m k` and `y` is `m p`, their
concatenation is `m (k p)`. Operators require that some axes are equal. During enumeration, all
channel axes have one letter. In a rule they get as many different letters as possible.

A domain has matrices, or it has images, kernels and convolution results, which are not convolved
again. All images have one height and width, and so have all kernels.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from gopt.rewriting.rules.patterns import Apply, add, concat, conv, matmul, mul, relu, transpose

Axis = tuple[str, ...]  # letters
Shape = tuple[Axis, ...]
Same = Callable[[Axis, Axis], bool]  # whether two axes are equal, or can be made equal

# Letters of images, kernels and convolution results.
FIXED = frozenset(("h", "w", "r", "s", "h'", "w'"))


class Operator(NamedTuple):
    """An operator on expressions.

    Attributes:
      pattern: function from patterns to the pattern of the operator.
      shape: function from input shapes and `same` to the shape; None if the operator does not
        apply.
      arity: number of inputs, one or two.
    """

    pattern: Callable[..., Apply]
    shape: Callable[..., Shape | None]
    arity: int


class Domain(NamedTuple):
    """The variables and operators of expressions.

    Attributes:
      names: shapes of the variables by name; axes that may become equal have the same letter.
      operators: operators.
      sizes: size of each letter when expressions are compared.
    """

    names: Mapping[str, Shape]
    operators: tuple[Operator, ...]
    sizes: Mapping[str, int]


class AxisEqualities:
    """Equalities between letters, collected from axes that must be equal."""

    def __init__(self) -> None:
        """Start with all letters different."""
        self._by: dict[str, str] = {}

    def find(self, letter: str) -> str:
        """Return the representative of all letters equal to this one."""
        while letter in self._by:
            letter = self._by[letter]
        return letter

    def same(self, one: Axis, other: Axis) -> bool:
        """Make two axes equal; return whether that is possible: they must have as many letters."""
        if len(one) != len(other):
            return False
        for a, b in zip(map(self.find, one), map(self.find, other), strict=True):
            if a != b:
                self._by[self.find(a)] = self.find(b)
        return True


def own_letters(name: str, shape: Shape) -> Shape:
    """Return the shape of a variable with its own letters, except for fixed ones.

    Args:
      name: name of the variable, which starts each new letter.
      shape: shape of the variable.
    """
    return tuple(
        tuple(letter if letter in FIXED else f"{name}{k}" for letter in axis)
        for k, axis in enumerate(shape)
    )


def _product(x: Shape, y: Shape, *, same: Same) -> Shape | None:
    return (x[0], y[1]) if same(x[1], y[0]) else None


def _of_elements(*shapes: Shape, same: Same) -> Shape | None:
    first, last = shapes[0], shapes[-1]
    if len(first) != len(last) or not all(map(same, first, last)):
        return None
    return first


def _not_of_kernels(*shapes: Shape, same: Same) -> Shape | None:
    return None if shapes[0][0] == ("r",) else _of_elements(*shapes, same=same)


def _transposed(x: Shape, *, same: Same) -> Shape:
    return x[::-1]


def _joined(x: Shape, y: Shape, *, same: Same, axis: int) -> Shape | None:
    k = axis % len(x)
    if len(x) != len(y) or not FIXED.isdisjoint(x[k]):
        return None
    if not all(same(*both) for j, both in enumerate(zip(x, y, strict=True)) if j != k):
        return None
    return (*x[:k], x[k] + y[k], *x[k + 1 :])


def _convolved(x: Shape, a: Shape, *, same: Same, groups: int) -> Shape | None:
    if x[1] != ("h",) or a[0] != ("r",):
        return None
    (*_, channels), (*_, read, made) = x, a
    count = len(channels) // groups
    parts = [channels[k * count : (k + 1) * count] for k in range(groups)]
    if len(channels) % groups or len(made) % groups or not all(same(p, read) for p in parts):
        return None
    half = len(made) // groups  # each group has as many outputs
    if not all(same(made[k * half : (k + 1) * half], made[:half]) for k in range(1, groups)):
        return None
    return (x[0], ("h'",), ("w'",), made)


def _joins(*axes: int) -> tuple[Operator, ...]:
    return tuple(
        Operator(partial(concat, axis=axis), partial(_joined, axis=axis), 2) for axis in axes
    )


_MATRIX: Shape = (("n",), ("n",))
_IMAGE: Shape = (("b",), ("h",), ("w",), ("n",))
_KERNEL: Shape = (("r",), ("s",), ("n",), ("n",))

MATRICES = Domain(
    dict.fromkeys("xyzu", _MATRIX),
    (
        Operator(matmul, _product, 2),
        Operator(add, _of_elements, 2),
        Operator(mul, _of_elements, 2),
        Operator(relu, _of_elements, 1),
        Operator(partial(transpose, permutation=(1, 0)), _transposed, 1),
        *_joins(-1, -2),
    ),
    {"n": 3},  # 2 × 2 matrices satisfy additional identities
)
IMAGES = Domain(
    {**dict.fromkeys("xyzu", _IMAGE), **dict.fromkeys("abcd", _KERNEL)},
    (
        Operator(conv, partial(_convolved, groups=1), 2),
        Operator(add, _of_elements, 2),
        Operator(mul, _not_of_kernels, 2),
        Operator(relu, _not_of_kernels, 1),
        *_joins(-1, -2, 0),
        # Last, because it restricts shapes more than equal expressions do: see `Generator`.
        Operator(partial(conv, groups=2), partial(_convolved, groups=2), 2),
    ),
    {"n": 2, "b": 1, "h": 2, "w": 3, "r": 2, "s": 2, "h'": 1, "w'": 2},
)
DOMAINS: dict[str, Domain] = {"matrices": MATRICES, "images": IMAGES}
