"""What may be put in the place of what: the table of rules.

Letters of shapes: `m`, `n`, `k`, `p` of matrices, `b` of how many; `b h w` of images and `r s` of
kernels, `c` of channels that go in, `i` of those that a kernel reads, and `o`, `q` of those that
come out.

Both sides have the same finite values, but for rounding. Where a value is infinite, zeros that a
rule puts into a kernel make what is not a number of it.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from gopt.rewriting.patterns import Apply, apply, given, size


@dataclass(frozen=True)
class Rule:
    """An equality of patterns.

    Attributes:
      name: what it does.
      source: what is looked for, one pattern or two, of different terms of a program.
      target: what is put in the place of each.
      shapes: of terms by name, see `gopt.rewriting.patterns`.
      constant: names of terms that have to be known before the program runs.
      alone: whether operators inside of the pattern must have no other readers, in the program
        that is rewritten. Of a sum that is read anyhow, to add it up in another order is no gain,
        and there may be exponentially many.

    Raises:
      ValueError: there are not one or two patterns, with a target for each, or not one where what
        is inside has to be alone.
    """

    name: str
    source: tuple[Apply, ...]
    target: tuple[Any, ...]
    shapes: Mapping[str, str] = field(default_factory=dict)
    constant: tuple[str, ...] = ()
    alone: bool = False

    def __post_init__(self) -> None:
        if not len(self.source) == len(self.target) in (1, 2):
            sizes = f"{len(self.source)} patterns and {len(self.target)} targets"
            raise ValueError(f"{self.name!r} has {sizes}: expected one of each, or two")
        if self.alone and len(self.source) > 1:
            raise ValueError(f"{self.name!r} has two patterns: expected one, as of what is alone")


matmul = partial(apply, "matmul", like="product")
conv = partial(apply, "conv", like="conv")
concat, part = partial(apply, "concat"), partial(apply, "slice")
add, sub, mul = (partial(apply, name) for name in ("add", "sub", "mul"))
relu = partial(apply, "relu")
transpose, reshape = partial(apply, "transpose"), partial(apply, "reshape")


def _both(
    name: str,
    left: Apply,
    right: Apply,
    shapes: Mapping[str, str] = MappingProxyType({}),
    *,
    alone: bool = False,
) -> tuple[Rule, Rule]:
    """Returns the rule from left to right, and the one from right to left."""
    return (
        Rule(name, (left,), (right,), shapes, alone=alone),
        Rule(f"{name}, back", (right,), (left,), shapes, alone=alone),
    )


def _of_parts(count: int) -> tuple[Rule, ...]:
    """Returns what may be done to parts or to all that they make, for so many parts."""
    x, y = ([f"{letter}{k}" for k in range(count)] for letter in "xy")
    whole = partial(concat, like="parts")
    same = {name: f"{k}..." for k in range(count) for name in (x[k], y[k])}
    found = [*_both(f"relu of {count} parts", relu(whole(*x)), whole(*map(relu, x)))]
    for name, both in (("sum", add), ("product", mul)):
        joined, parts = both(whole(*x), whole(*y)), whole(*map(both, x, y))
        name = f"{name} of {count} parts"
        found.append(Rule(name, (joined,), (parts,), same))
        # In all ways to tell one side from the other they would be too many.
        found.append(Rule(f"{name}, back", (parts,), (joined,), same, constant=tuple(y)))
    return tuple(found)


def _neighbours(count: int) -> tuple[Rule, ...]:
    """Returns what makes neighbouring parts one, of so many that are joined."""
    axis, start, middle, stop = map(given, ("axis", "start", "middle", "stop"))
    two = (
        part("y", axis=axis, start=start, stop=middle),
        part("y", axis=axis, start=middle, stop=stop),
    )
    both = part("y", axis=axis, start=start, stop=stop)
    if count == 2:
        return (Rule("2 neighbours are one part", (concat(*two, axis=axis),), (both,)),)
    others = [f"x{k}" for k in range(count - 2)]
    return tuple(
        Rule(
            f"neighbours {k} and {k + 1} of {count} are one part",
            (concat(*others[:k], *two, *others[k:], axis=axis),),
            (concat(*others[:k], both, *others[k:], axis=axis),),
        )
        for k in range(count - 1)
    )


def _halves(whole: Apply, axis: int, first: str, second: str) -> tuple[Apply, Apply]:
    """Returns what is before and after the size of the first."""
    a, b = size(first), size(second)
    return part(whole, axis=axis, start=0, stop=a), part(whole, axis=axis, start=a, stop=a + b)


def _enlarged(first: int, second: int) -> Rule:
    """Returns what joins convolutions of kernels of two sizes: the small one gets zeros around.

    Then it needs more padding; with the same name for both, `SAME` would be wrong where it strides.
    """
    large = max(first, second)
    sources, kernels = [], []
    for name, own in (("a", first), ("b", second)):
        more = (large - own) // 2
        wider, narrower = (partial(_wider, more=sign * more) for sign in (1, -1))
        padding = given("padding", by=narrower, back=wider)  # that of the large one has the name
        sources.append(conv("x", name, padding=padding, dilation=(1, 1), groups=1))
        widths = ((more, more), (more, more), (0, 0), (0, 0))
        kernels.append(apply("pad", name, widths=widths) if more else name)
    whole = partial(conv, padding=given("padding"), dilation=(1, 1), groups=1)
    return Rule(
        f"conv(x, a), conv(x, b), of {first} and {second}, are parts of one of {large}",
        tuple(sources),
        _halves(whole("x", concat(*kernels, axis=-1)), -1, "o", "q"),
        {"x": "b h w c", "a": f"{first} {first} c o", "b": f"{second} {second} c q"},
    )


def _wider(padding: tuple[tuple[int, int], ...], more: int) -> tuple[tuple[int, int], ...]:
    """Returns what a kernel needs that is larger by so much on each side."""
    return tuple((before + more, after + more) for before, after in padding)


def _transposed(
    name: str, permutation: tuple[int, ...], shapes: Mapping[str, str]
) -> tuple[Rule, Rule]:
    """Returns what transposes products of matrices; precisions are those of left and right."""
    view = partial(transpose, permutation=permutation)
    swapped = given("precision", by=_swapped, back=_swapped)
    product = partial(apply, "matmul", dtype=given("dtype"))
    left = view(product("x", "y", precision=given("precision")))
    return _both(name, left, product(view("y"), view("x"), precision=swapped), shapes)


def _swapped(precision: Any) -> Any:
    return precision[::-1] if isinstance(precision, tuple) else precision


def _named(*names: str) -> dict[str, Any]:
    """Returns attributes that have their own names."""
    return {name: given(name) for name in names}


_SIDES = {"x": "... m k", "y": "... m k", "a": "... k n", "b": "... k n"}

RULES: tuple[Rule, ...] = (
    # Products of matrices.
    *_both(
        "(xa)b = x(ab)",
        matmul(matmul("x", "a"), "b"),
        matmul("x", matmul("a", "b")),
        {"x": "... m k", "a": "... k n", "b": "... n p"},
    ),
    *_both(
        "xa + xb = x(a + b)",
        add(matmul("x", "a"), matmul("x", "b")),
        matmul("x", add("a", "b")),
        _SIDES,
    ),
    *_both(
        "xa + ya = (x + y)a",
        add(matmul("x", "a"), matmul("y", "a")),
        matmul(add("x", "y"), "a"),
        _SIDES,
        alone=True,
    ),
    Rule(
        "xa, xb are parts of x[a|b]",
        (matmul("x", "a"), matmul("x", "b")),
        _halves(matmul("x", concat("a", "b", axis=-1)), -1, "n", "p"),
        {"x": "... m k", "a": "... k n", "b": "... k p"},
    ),
    Rule(
        "xa, ya are parts of [x|y]a",
        (matmul("x", "a"), matmul("y", "a")),
        _halves(matmul(concat("x", "y", axis=-2), "a"), -2, "m", "p"),
        {"x": "... m k", "y": "... p k", "a": "... k n"},
    ),
    Rule(
        "xa + yb = [x|y][a|b]",
        (add(matmul("x", "a"), matmul("y", "b")),),
        (matmul(concat("x", "y", axis=-1), concat("a", "b", axis=-2)),),
        {"x": "... m k", "y": "... m p", "a": "... k n", "b": "... p n"},
    ),
    # Convolutions.
    *_both(
        "conv(x, a) + conv(x, b) = conv(x, a + b)",
        add(conv("x", "a"), conv("x", "b")),
        conv("x", add("a", "b")),
        {"x": "b h w c", "a": "r s i o", "b": "r s i o"},
    ),
    *_both(
        "conv(x, a) + conv(y, a) = conv(x + y, a)",
        add(conv("x", "a"), conv("y", "a")),
        conv(add("x", "y"), "a"),
        {"x": "b h w c", "y": "b h w c", "a": "r s i o"},
        alone=True,
    ),
    Rule(
        "conv(x, a), conv(x, b) are parts of conv(x, [a|b])",
        (conv("x", "a", groups=1), conv("x", "b", groups=1)),
        _halves(conv("x", concat("a", "b", axis=-1), groups=1), -1, "o", "q"),
        {"x": "b h w c", "a": "r s c o", "b": "r s c q"},
    ),
    Rule(
        "conv(x, a), conv(y, a) are parts of conv([x|y], a)",
        (conv("x", "a"), conv("y", "a")),
        _halves(conv(concat("x", "y", axis=0), "a"), 0, "b", "q"),
        {"x": "b h w c", "y": "q h w c", "a": "r s i o"},
    ),
    Rule(
        "conv(x, a) + conv(y, b) = conv([x|y], [a|b])",
        (add(conv("x", "a", groups=1), conv("y", "b", groups=1)),),
        (conv(concat("x", "y", axis=-1), concat("a", "b", axis=-2), groups=1),),
        {"x": "b h w c", "y": "b h w q", "a": "r s c o", "b": "r s q o"},
    ),
    *_both(
        "[conv(x, a)|conv(y, b)] = conv([x|y], [a|b]), in two groups",
        concat(conv("x", "a", groups=1), conv("y", "b", groups=1), axis=-1),
        conv(concat("x", "y", axis=-1), concat("a", "b", axis=-1), groups=2),
        {"x": "b h w c", "y": "b h w c", "a": "r s c o", "b": "r s c o"},
    ),
    Rule(
        "two groups of a convolution are one",
        (conv("x", "a", groups=given("groups", where=lambda groups: groups % 2 == 0)),),
        (
            conv(
                "x",
                apply("pair_groups", "a", groups=given("groups")),
                groups=given("groups", by=lambda groups: groups // 2),
            ),
        ),
        {"x": "b h w c", "a": "r s i o"},
        constant=("a",),
    ),
    *(_enlarged(*sizes) for sizes in itertools.permutations((1, 3, 5), 2)),
    Rule(
        "a convolution of pixels is a product",
        (
            conv(
                "x",
                "a",
                strides=(1, 1),
                padding=((0, 0), (0, 0)),
                groups=1,
                **_named("dilation", "precision", "dtype"),
            ),
        ),
        (
            reshape(
                apply(
                    "matmul",
                    reshape("x", shape=(size("b") * size("h") * size("w"), size("c"))),
                    reshape("a", shape=(size("c"), size("o"))),
                    **_named("precision", "dtype"),
                ),
                shape=tuple(map(size, "bhwo")),
            ),
        ),
        {"x": "b h w c", "a": "1 1 c o"},
    ),
    Rule(
        "a convolution of each channel is a sum of shifted images",
        (conv("x", "a", **_named("strides", "padding", "dilation"), dtype=None),),
        (apply("depthwise", "x", "a", **_named("strides", "padding", "dilation")),),
        {"x": "b h w c", "a": "r s 1 c"},
    ),
    # What is done to each element.
    Rule(
        "xa + xb = x(a + b), of elements",
        (add(mul("x", "a"), mul("x", "b")),),
        (mul("x", add("a", "b")),),
    ),
    Rule(
        "c(a + b) = ca + cb, of elements",
        (mul("c", add("a", "b")),),
        (add(mul("c", "a"), mul("c", "b")),),
        constant=("b", "c"),
        alone=True,
    ),
    *(
        rule
        for name, both in (("(x + y) + z = x + (y + z)", add), ("(xy)z = x(yz), of elements", mul))
        for rule in _both(name, both(both("x", "y"), "z"), both("x", both("y", "z")), alone=True)
    ),
    # Parts.
    *(rule for count in (2, 3, 4) for rule in _of_parts(count)),
    *(rule for count in (2, 3, 4) for rule in _neighbours(count)),
    # Views.
    *_transposed("(xy)' = y'x'", (1, 0), {"x": "m k", "y": "k n"}),
    *_transposed("(xy)' = y'x', of each matrix", (0, 2, 1), {"x": "b m k", "y": "b k n"}),
    *(
        rule
        for view, name in ((transpose, "transpose"), (reshape, "reshape"))
        for rule in (
            *_both(f"relu of a {name}", relu(view("x", like="view")), view(relu("x"), like="view")),
            *_both(
                f"sum of {name}s",
                add(view("x", like="view"), view("y", like="view")),
                view(add("x", "y"), like="view"),
                {"x": "...", "y": "..."},
            ),
            *_both(
                f"product of {name}s",
                mul(view("x", like="view"), view("y", like="view")),
                view(mul("x", "y"), like="view"),
                {"x": "...", "y": "..."},
            ),
        )
    ),
    # Constants move into what is folded before.
    Rule(
        "a norm of a convolution is in its kernel",
        (add(mul(sub(conv("x", "a"), "mean"), "scale"), "bias"),),
        (add(conv("x", mul("a", "scale")), sub("bias", mul("mean", "scale"))),),
        {"x": "b h w c", "a": "r s i o", **dict.fromkeys(("mean", "scale", "bias"), "1 1 1 o")},
        constant=("a", "mean", "scale", "bias"),
    ),
    Rule(
        "scales of a convolution are in its kernel",
        (mul(conv("x", "a"), "scale"),),
        (conv("x", mul("a", "scale")),),
        {"x": "b h w c", "a": "r s i o", "scale": "1 1 1 o"},
        constant=("a", "scale"),
    ),
    Rule(
        "a scale of a product is in its matrix",
        (mul(matmul("x", "a"), "scale"),),
        (matmul("x", mul("a", "scale")),),
        {"x": "... m k", "a": "... k n", "scale": ""},
        constant=("a", "scale"),
    ),
)
