"""Rules that differ in a number: of parts, of which two are neighbours, or of sizes of kernels."""

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
    """Returns what may be done to parts or to all that they make, for so many parts."""
    x, y = ([f"{letter}{k}" for k in range(count)] for letter in "xy")
    whole = partial(concat, like="parts")
    same = {name: f"{k}..." for k in range(count) for name in (x[k], y[k])}
    found = [*both(f"relu of {count} parts", relu(whole(*x)), whole(*map(relu, x)))]
    for name, of in (("sum", add), ("product", mul)):
        joined, parts = of(whole(*x), whole(*y)), whole(*map(of, x, y))
        name = f"{name} of {count} parts"
        found.append(Rule(name, (joined,), (parts,), same))
        # In all ways to tell one side from the other they would be too many.
        found.append(Rule(f"{name}, back", (parts,), (joined,), same, constant=tuple(y)))
    return tuple(found)


def neighbours(count: int) -> tuple[Rule, ...]:
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


def halves(whole: Apply, axis: int, first: str, second: str) -> tuple[Apply, Apply]:
    """Returns what is before and after the size of the first."""
    a, b = size(first), size(second)
    return part(whole, axis=axis, start=0, stop=a), part(whole, axis=axis, start=a, stop=a + b)


def enlarged(first: int, second: int) -> Rule:
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
        halves(whole("x", concat(*kernels, axis=-1)), -1, "o", "q"),
        {"x": "b h w c", "a": f"{first} {first} c o", "b": f"{second} {second} c q"},
    )


def with_itself(size: int) -> Rule:
    """Returns what adds images to a convolution of them, in its kernel, of so many pixels."""
    around = ((size // 2, size // 2),) * 2
    own = partial(conv, padding=around, strides=(1, 1), dilation=(1, 1), groups=1)
    return Rule(
        f"conv(x, a) + x = conv(x, a + identity), of {size}",
        (add(own("x", "a"), "x"),),
        (own("x", add("a", apply("identity", "a"))),),
        {"x": "b h w c", "a": f"{size} {size} c c"},
    )


def _wider(padding: tuple[tuple[int, int], ...], more: int) -> tuple[tuple[int, int], ...]:
    """Returns what a kernel needs that is larger by so much on each side."""
    return tuple((before + more, after + more) for before, after in padding)


def transposed(
    name: str, permutation: tuple[int, ...], shapes: Mapping[str, str]
) -> tuple[Rule, Rule]:
    """Returns what transposes products of matrices; precisions are those of left and right."""
    view = partial(transpose, permutation=permutation)
    swapped = given("precision", by=_swapped, back=_swapped)
    product = partial(apply, "matmul", dtype=given("dtype"))
    left = view(product("x", "y", precision=given("precision")))
    return both(name, left, product(view("y"), view("x"), precision=swapped), shapes)


def _swapped(precision: Any) -> Any:
    return precision[::-1] if isinstance(precision, tuple) else precision


def named(*names: str) -> dict[str, Any]:
    """Returns attributes that have their own names."""
    return {name: given(name) for name in names}
