"""What expressions are made of, for the generator of rules: names, operators, and their shapes.

An axis is a tuple of letters, whose sizes are added up: where `x` is `m k` and `y` is `m p`, what
joins them is `m (k p)`. Operators say which axes have to be the same. Of which letters these then
are made is left open: all that stand for channels are one letter while expressions are enumerated,
and as many as can be told apart in a rule.

Shapes of a domain: matrices; or images, kernels, and what a convolution makes of these, which is
not convolved again. Images have one height and width, and so have kernels.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from gopt.rewriting.rules.patterns import Apply, add, concat, conv, matmul, mul, relu, transpose

Axis = tuple[str, ...]  # letters
Shape = tuple[Axis, ...]
Same = Callable[[Axis, Axis], bool]  # whether axes are the same, or can be made so

FIXED = frozenset(("h", "w", "r", "s", "h'", "w'"))  # of images, kernels, and what they make


class Operator(NamedTuple):
    """What is applied to expressions.

    Attributes:
      pattern: makes a pattern of patterns.
      shape: returns the shape, given those of the inputs and what axes are the same; nothing if it
        does not apply.
      arity: how many inputs there are, one or two.
    """

    pattern: Callable[..., Apply]
    shape: Callable[..., Shape | None]
    arity: int


class Domain(NamedTuple):
    """What expressions are made of.

    Attributes:
      names: shapes by name; what may become the same is the same letter.
      operators: that are applied.
      sizes: of letters, when expressions are compared.
    """

    names: Mapping[str, Shape]
    operators: tuple[Operator, ...]
    sizes: Mapping[str, int]


class Letters:
    """Which letters are the same, given axes that have to be."""

    def __init__(self) -> None:
        """All letters are different."""
        self._by: dict[str, str] = {}

    def find(self, letter: str) -> str:
        """Returns the letter that stands for all that are the same."""
        while letter in self._by:
            letter = self._by[letter]
        return letter

    def same(self, one: Axis, other: Axis) -> bool:
        """Makes two axes the same; returns whether that can be: if they have as many letters."""
        if len(one) != len(other):
            return False
        for a, b in zip(map(self.find, one), map(self.find, other), strict=True):
            if a != b:
                self._by[self.find(a)] = self.find(b)
        return True


def own_letters(name: str, shape: Shape) -> Shape:
    """Returns the shape of a name with letters of its own, but for those that are fixed."""
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
    half = len(made) // groups  # what comes out of each group has one size
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
    {"n": 3},  # matrices of two rows have identities of their own
)
IMAGES = Domain(
    {**dict.fromkeys("xyzu", _IMAGE), **dict.fromkeys("abcd", _KERNEL)},
    (
        Operator(conv, partial(_convolved, groups=1), 2),
        Operator(add, _of_elements, 2),
        Operator(mul, _not_of_kernels, 2),
        Operator(relu, _not_of_kernels, 1),
        *_joins(-1, -2, 0),
        # Last, as it asks more of shapes than what it may be equal to: see `Generator`.
        Operator(partial(conv, groups=2), partial(_convolved, groups=2), 2),
    ),
    {"n": 2, "b": 1, "h": 2, "w": 3, "r": 2, "s": 2, "h'": 1, "w'": 2},
)
DOMAINS: dict[str, Domain] = {"matrices": MATRICES, "images": IMAGES}
