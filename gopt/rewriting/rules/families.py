"""Families of rules with a number as parameter: of parts, of neighbours, or of kernel sizes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gopt.rewriting.rules.patterns import (
    Apply,
    add,
    apply,
    concat,
    conv,
    given,
    mul,
    part,
    relu,
    size,
    transpose,
)
from gopt.rewriting.rules.rule import Rule, both


def of_parts(count: int) -> tuple[Rule, ...]:
    """Return rules that move element-wise ops into and out of a concatenation of `count` parts."""
    x, y = ([f"{letter}{k}" for k in range(count)] for letter in "xy")
    whole = partial(concat, like="parts")
    same = {name: f"{k}..." for k in range(count) for name in (x[k], y[k])}
    found = [*both(f"relu of {count} parts", relu(whole(*x)), whole(*map(relu, x)))]
    for name, of in (("sum", add), ("product", mul)):
        joined, parts = of(whole(*x), whole(*y)), whole(*map(of, x, y))
        name = f"{name} of {count} parts"
        found.append(Rule(name, (joined,), (parts,), same))
        # Without a constant side, the number of ways to tell the sides apart would be too large.
        found.append(Rule(f"{name}, back", (parts,), (joined,), same, constant=tuple(y)))
    return tuple(found)


def neighbours(count: int) -> tuple[Rule, ...]:
    """Return rules that merge two adjacent slices in a concatenation of `count` arrays."""
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


def halves(whole: Apply, axis: int, first: str, second: str) -> tuple[Apply, Apply]:
    """Return two adjacent slices along an axis, of sizes `first` and `second`.

    Args:
      whole: pattern to slice.
      axis: axis of the slices.
      first: letter of the first size.
      second: letter of the second size.
    """
    a, b = size(first), size(second)
    return part(whole, axis=axis, start=0, stop=a), part(whole, axis=axis, start=a, stop=a + b)


def enlarged(first: int, second: int) -> Rule:
    """Return the rule that joins convolutions of two kernel sizes by zero-padding the small kernel.

    The enlarged kernel needs more padding of the image. Paddings are therefore compared as numbers:
    `SAME` under one name for both would be wrong with strides.

    Args:
      first: size of the first kernel, in pixels.
      second: size of the second kernel, in pixels.
    """
    large = max(first, second)
    sources, kernels = [], []
    for name, own in (("a", first), ("b", second)):
        more = (large - own) // 2
        wider, narrower = (partial(_wider, more=sign * more) for sign in (1, -1))
        # The name stands for the large kernel's padding.
        padding = given("padding", by=narrower, back=wider)
        sources.append(conv("x", name, padding=padding, dilation=(1, 1), groups=1))
        widths = ((more, more), (more, more), (0, 0), (0, 0))
        kernels.append(apply("pad", name, widths=widths) if more else name)
    whole = partial(conv, padding=given("padding"), dilation=(1, 1), groups=1)
    return Rule(
        f"conv(x, a), conv(x, b), of {first} and {second}, are parts of one of {large}",
        tuple(sources),
        halves(whole("x", concat(*kernels, axis=-1)), -1, "o", "q"),
        {"x": "b h w c", "a": f"{first} {first} c o", "b": f"{second} {second} c q"},
    )


def with_itself(size: int) -> Rule:
    """Return the rule that moves the addition of the input into a convolution's kernel.

    Args:
      size: kernel size in pixels, odd.
    """
    around = ((size // 2, size // 2),) * 2
    own = partial(conv, padding=around, strides=(1, 1), dilation=(1, 1), groups=1)
    return Rule(
        f"conv(x, a) + x = conv(x, a + identity), of {size}",
        (add(own("x", "a"), "x"),),
        (own("x", add("a", apply("identity", "a"))),),
        {"x": "b h w c", "a": f"{size} {size} c c"},
    )


def _wider(padding: tuple[tuple[int, int], ...], more: int) -> tuple[tuple[int, int], ...]:
    """Return the padding of a kernel that is larger by `more` on each side."""
    return tuple((before + more, after + more) for before, after in padding)


def transposed(
    name: str, permutation: tuple[int, ...], shapes: Mapping[str, str]
) -> tuple[Rule, Rule]:
    """Return the rules that move transposes into and out of a matrix product.

    Precisions of the left and right matrix are swapped.

    Args:
      name: name of the rules.
      permutation: permutation that swaps the matrix axes.
      shapes: shapes of `x` and `y` by name.
    """
    view = partial(transpose, permutation=permutation)
    swapped = given("precision", by=_swapped, back=_swapped)
    product = partial(apply, "matmul", dtype=given("dtype"))
    left = view(product("x", "y", precision=given("precision")))
    return both(name, left, product(view("y"), view("x"), precision=swapped), shapes)


def _swapped(precision: Any) -> Any:
    return precision[::-1] if isinstance(precision, tuple) else precision


def named(*names: str) -> dict[str, Any]:
    """Return attributes that are variables of the same names."""
    return {name: given(name) for name in names}
