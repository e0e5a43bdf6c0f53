"""Programs to be rewritten: terms of rules with random shapes, and their values in float64."""

from typing import Any

import jax
import numpy as np

from gopt.rewriting.patterns import build
from gopt.rewriting.rules import Rule
from gopt.rewriting.terms import Terms
from gopt.rewriting.writing import evaluate


def shape_of(spec, sizes):
    """The shape of a term, from letters such as `... m k` and sizes by letter."""
    shape = []
    for letter in spec.split():
        if letter == "...":
            shape.extend(sizes["..."])
        else:
            shape.append(int(letter) if letter.isdigit() else sizes[letter])
    return tuple(shape)


def fixes_groups(pattern):
    if isinstance(pattern, str):
        return False
    return "groups" in dict(pattern.attributes) or any(map(fixes_groups, pattern.inputs))


def sample(rule: Rule, seed: int, dtype: Any = np.float64):
    """Returns terms, those that have the patterns of a rule, what is bound, and arguments.

    Integers have all values of their dtype, so that sums and products wrap around.
    """
    rng = np.random.default_rng(seed)
    letters = {x for spec in rule.shapes.values() for x in spec.split()}
    sizes = {x: int(rng.integers(1, 5)) for x in sorted(letters) if not x.isdigit()}
    sizes["..."] = (int(rng.integers(1, 4)),) if rng.random() < 0.5 else ()
    sizes |= {x: int(rng.integers(1, 4)) for x in ("r", "s")}
    sizes |= {x: int(rng.integers(5, 8)) for x in ("h", "w")}  # kernels with holes fit
    conv = {
        "strides": tuple(map(int, rng.integers(1, 3, 2))),
        "padding": tuple(tuple(map(int, rng.integers(0, 3, 2))) for _ in range(2)),
        "dilation": tuple(map(int, rng.integers(1, 3, 2))),
        "precision": None,
        "dtype": None,
    }
    if not any(map(fixes_groups, rule.source)):
        conv["groups"] = int(rng.integers(1, 3))
        # Kernels have the channels of a group, images of all.
        sizes["c"] = conv["groups"] * sizes.get("i", 1)
        sizes["o"] = conv["groups"] * sizes.get("o", 1)
    names = sorted(set().union(*(pattern.names() for pattern in rule.source)))
    free = tuple(map(int, rng.integers(2, 4, 2)))  # names without letters: any that broadcast
    terms, arguments = Terms(), []
    bound = {f"size {letter}": size for letter, size in sizes.items()}
    bound["like product"] = (("dtype", None), ("precision", None))
    bound["like conv"] = tuple(sorted(conv.items()))
    for position, name in enumerate(names):
        if name in rule.shapes:
            shape = shape_of(rule.shapes[name], sizes)
        else:
            shape = tuple(n if rng.random() < 0.7 else 1 for n in free)
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
    return [np.asarray(x) for x in evaluate(terms, roots, arguments.__getitem__, {})]


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
        for old, new in zip(
            values(terms, sources, arguments), values(terms, targets, arguments), strict=True
        ):
            assert old.shape == new.shape and old.dtype == new.dtype == dtype
            assert np.isfinite(old).all()
            assert old.size and (old.size == 1 or (old != old.flat[0]).any())
            if np.issubdtype(dtype, np.integer):
                np.testing.assert_array_equal(new, old)
            else:
                np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-11)
