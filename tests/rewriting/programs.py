"""Programs to be rewritten: terms of rules with random shapes, and their values in float64."""

from typing import Any

import jax
import numpy as np

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import evaluate
from gopt.rewriting.rules.patterns import AttributeVariable, build
from gopt.rewriting.rules.rule import Rule


def shape_of(spec, sizes):
    """The shape of a term, from letters such as `... m k` and sizes by letter."""
    shape = []
    for letter in spec.split():
        if letter.endswith("..."):
            shape.extend(sizes[letter])
        else:
            shape.append(int(letter) if letter.isdigit() else sizes[letter])
    return tuple(shape)


def parts_of(pattern):
    """All operators of a pattern."""
    if not isinstance(pattern, str):
        yield pattern
        for each in pattern.inputs:
            yield from parts_of(each)


def random_conv(rng):
    """Attributes of a convolution."""
    return {
        "strides": tuple(map(int, rng.integers(1, 3, 2))),
        "padding": tuple(tuple(map(int, rng.integers(0, 4, 2))) for _ in range(2)),
        "dilation": tuple(map(int, rng.integers(1, 3, 2))),
        "precision": None,
        "dtype": None,
    }


def random_view(rng, shape):
    """Attributes of what may be done to an array of two axes, by operator."""
    return {
        "transpose": {"permutation": (1, 0)},
        "reshape": {"shape": (shape[0] * shape[1],)},
        "concat": {"axis": int(rng.integers(2))},
    }


def sample(rule: Rule, seed: int, dtype: Any = np.float64):
    """Returns terms, those that have the patterns of a rule, what is bound, and arguments.

    Integers have all values of their dtype, so that sums and products wrap around.
    """
    rng = np.random.default_rng(seed)
    every = [part for pattern in rule.source for part in parts_of(pattern)]
    letters = {x for spec in rule.shapes.values() for x in spec.split()}
    sizes = {x: int(rng.integers(1, 5)) for x in sorted(letters) if not x.isdigit()}
    sizes["..."] = (int(rng.integers(1, 4)),) if rng.random() < 0.5 else ()
    sizes |= {x: int(rng.integers(1, 4)) for x in ("r", "s")}
    sizes |= {x: int(rng.integers(5, 8)) for x in ("h", "w")}  # kernels with holes fit
    conv = random_conv(rng)
    fixed = [dict(part.attributes)["groups"] for part in every if "groups" in dict(part.attributes)]
    if fixed and not isinstance(fixed[0], AttributeVariable):
        groups = fixed[0]
    elif rule.shapes.get("a") == "r s 1 c":
        groups = conv["groups"] = sizes["c"]
    else:
        groups = conv["groups"] = int(rng.integers(1, 3)) * (2 if fixed else 1)
        # Kernels have the channels of a group, images of all.
        sizes["c"] = groups * sizes.get("i", 1)
        sizes["o"] = groups * sizes.get("o", 1)
    bound = {f"given {name}": value for name, value in conv.items()}
    bound["given window"] = sizes["r"], sizes["s"]
    # Names without letters are any shapes that broadcast, or have two axes, of which one differs
    # where arrays are joined.
    whole = tuple(map(int, rng.integers(2, 5, 2)))
    views = random_view(rng, whole)
    axis = views["concat"]["axis"]
    operators = {part.operator for part in every}
    has_views = not operators.isdisjoint(("transpose", "reshape", "slice", "concat"))
    is_joined = any(part.like == "parts" for part in every)

    def one_of_parts() -> tuple[int, ...]:
        own = int(rng.integers(1, 4)) if is_joined else whole[axis]
        return tuple(own if k == axis else n for k, n in enumerate(whole))

    if any(part.like == "view" for part in every) or "..." in rule.shapes.values():
        sizes["..."] = whole
    sizes |= {x: one_of_parts() for x in sorted(letters) if x.endswith("...") and x != "..."}
    attributes = [value for part in every for _, value in part.attributes]
    has_middle = any(
        isinstance(value, AttributeVariable) and value.name == "middle" for value in attributes
    )
    start, middle, stop = sorted(map(int, rng.choice(whole[axis] + 3, 3, replace=False)))
    bound |= {"given axis": axis, "given start": start, "given middle": middle, "given stop": stop}
    for part in every:
        if part.like in ("view", "parts"):
            bound[f"like {part.like}"] = tuple(sorted(views[part.operator].items()))
    names = sorted(set().union(*(pattern.names() for pattern in rule.source)))
    terms, arguments = Terms(), []
    bound |= {f"size {letter}": size for letter, size in sizes.items()}
    bound["like product"] = (("dtype", None), ("precision", None))
    bound["like conv"] = tuple(sorted(conv.items()))
    for position, name in enumerate(names):
        if name in rule.shapes:
            shape = shape_of(rule.shapes[name], sizes)
        elif name == "y" and has_middle:
            shape = tuple(n + 3 if k == axis else n for k, n in enumerate(whole))
        elif has_views:
            shape = one_of_parts()
        else:
            shape = tuple(n if rng.random() < 0.7 else 1 for n in whole)
        struct = jax.ShapeDtypeStruct(shape, dtype)
        bound[name] = terms.argument(position, struct, constant=name in rule.constant)
        if np.issubdtype(dtype, np.integer):
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            arguments.append(rng.integers(low, high, shape, dtype, endpoint=True))
        else:
            arguments.append(rng.standard_normal(shape))
    sources = tuple(build(terms, pattern, bound) for pattern in rule.source)
    return terms, sources, bound, arguments


def values(terms, roots, arguments):
    """The values of terms, all by one program."""
    run = jax.jit(lambda *values: evaluate(terms, roots, values.__getitem__))
    return [np.asarray(x) for x in run(*arguments)]


def check_rule(rule: Rule, seed: int, dtype: Any = np.float64) -> None:
    """Checks that sources and targets of a rule are equal, and not for lack of anything in them.

    Integers are the same, all others but for rounding.

    Raises:
      AssertionError: they are not.
    """
    with jax.enable_x64(True):
        terms, sources, bound, arguments = sample(rule, seed, dtype)
        targets = tuple(build(terms, pattern, bound) for pattern in rule.target)
        assert set(sources).isdisjoint(targets)
        found = values(terms, (*sources, *targets), arguments)
        for old, new in zip(found[: len(sources)], found[len(sources) :], strict=True):
            assert old.shape == new.shape and old.dtype == new.dtype == dtype
            assert np.isfinite(old).all()
            assert old.size and (old.size == 1 or (old != old.flat[0]).any())
            if np.issubdtype(dtype, np.integer):
                np.testing.assert_array_equal(new, old)
            else:
                np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-11)
