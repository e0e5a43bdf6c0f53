"""Terms: equal ones are one, views fold, and what is replaced is replaced everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.rewriting.ir.operators import Literal
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import evaluate


def floats(*shape):
    return jax.ShapeDtypeStruct(shape, np.float32)


@pytest.fixture
def terms():
    return Terms()


@pytest.fixture
def x(terms):
    return terms.argument(0, floats(2, 6), constant=False)


@pytest.fixture
def w(terms):
    return terms.argument(1, floats(2, 6), constant=True)


def test_equal_terms_are_one(terms, x, w):
    assert terms.add("add", [x, w]) == terms.add("add", [x, w])
    assert terms.add("add", [x, w]) != terms.add("add", [w, x])
    assert terms.argument(0, floats(2, 6), constant=False) == x
    one, two = (Literal(value, np.float32) for value in (1, 2))
    assert terms.add("number", value=one) == terms.add("number", value=Literal(1, np.float32))
    assert terms.add("number", value=one) != terms.add("number", value=two)
    assert terms.add("number", value=one) != terms.add("number", value=Literal(1, np.int32))
    assert Literal(-1, jnp.int4) != Literal(15, jnp.uint4)


def test_constants_are_what_depends_on_nothing_else(terms, x, w):
    assert terms.constant[terms.add("relu", [w])]
    assert terms.constant[terms.add("number", value=Literal(1.0))]
    assert not terms.constant[terms.add("add", [x, w])]


def test_an_argument_is_one_array(terms, x):
    with pytest.raises(ValueError, match=r"argument 0 is .*\(2, 6\).*expected.*\(3,\)"):
        terms.argument(0, floats(3), constant=False)
    with pytest.raises(ValueError, match="argument 0"):
        terms.argument(0, floats(2, 6), constant=True)


def test_shapes_that_do_not_fit_raise(terms, x):
    with pytest.raises(ValueError, match="matmul does not apply to"):
        terms.add("matmul", [x, x], precision=None, dtype=None)


def slices(terms, x, *ranges, axis=1):
    for start, stop in ranges:
        x = terms.add("slice", [x], axis=axis, start=start, stop=stop)
    return x


def test_views_of_views_are_one(terms, x):
    assert terms.add("transpose", [x], permutation=(0, 1)) == x
    turned = terms.add("transpose", [x], permutation=(1, 0))
    assert terms.add("transpose", [turned], permutation=(1, 0)) == x
    flat = terms.add("reshape", [x], shape=(12,))
    assert terms.add("reshape", [flat], shape=(2, 6)) == x
    assert terms.add("reshape", [flat], shape=(3, 4)) == terms.add("reshape", [x], shape=(3, 4))
    assert slices(terms, x, (0, 6)) == x
    assert slices(terms, x, (1, 6), (1, 3)) == slices(terms, x, (2, 4))
    assert slices(terms, slices(terms, x, (1, 6)), (0, 1), axis=0) != slices(terms, x, (1, 6))


def test_transposes_of_three_axes_compose(terms):
    x = terms.argument(0, floats(2, 3, 4), constant=False)
    first = terms.add("transpose", [x], permutation=(1, 2, 0))
    both = terms.add("transpose", [first], permutation=(0, 2, 1))
    (value,) = evaluate(terms, [both], lambda _: np.arange(24).reshape(2, 3, 4))
    expected = np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0).transpose(0, 2, 1)
    np.testing.assert_array_equal(value, expected)
    assert terms[both].inputs == (x,)


def test_parts_of_what_was_joined_are_those_of_its_parts(terms, x, w):
    both = terms.add("concat", [x, w], axis=1)
    assert slices(terms, both, (0, 6)) == x
    assert slices(terms, both, (6, 12)) == w
    assert slices(terms, both, (7, 9)) == slices(terms, w, (1, 3))
    twice = terms.add("concat", [both, x], axis=1)
    assert terms[twice].inputs == (x, w, x)
    assert slices(terms, twice, (12, 18)) == x
    assert terms.add("concat", [x], axis=1) == x
    across = slices(terms, both, (5, 7))
    assert terms[across].inputs == (both,)


def values_of(terms, number, *arguments):
    return np.asarray(evaluate(terms, [number], arguments.__getitem__)[0])


@pytest.mark.parametrize("axis", [0, 1])
def test_kernels_that_are_joined_as_matrices_are_joined_as_kernels(terms, axis):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 2, 3, 4 + k), np.float32) for k in (0, axis)]
    given = [terms.argument(k, floats(*x.shape), constant=True) for k, x in enumerate(arrays)]
    flat = [
        terms.add("reshape", [k], shape=(6, x.shape[-1]))
        for k, x in zip(given, arrays, strict=True)
    ]
    found = terms.add("concat", flat, axis=axis)
    assert terms[found].operator == ("reshape" if axis else "concat")
    expected = np.concatenate([x.reshape(6, -1) for x in arrays], axis)
    np.testing.assert_array_equal(values_of(terms, found, *arrays), expected)
    if axis:
        assert found == terms.add("reshape", [terms.add("concat", given, axis=3)], shape=(6, 9))


def test_what_is_no_kernel_is_joined_as_it_is(terms):
    """A last axis that is new, or leading ones of other sizes, before or after."""
    x, y = (terms.argument(k, floats(*n), constant=True) for k, n in ((0, (6,)), (1, (2, 3))))
    for one, two, shape in ((x, x, (6, 1)), (y, y, (3, 2)), (x, y, (6, 1))):
        flat = [terms.add("reshape", [k], shape=shape) for k in (one, two)]
        assert terms[terms.add("concat", flat, axis=1)].operator == "concat"
    wide = terms.argument(2, floats(6, 4), constant=True)
    flat = [terms.add("reshape", [wide], shape=shape) for shape in ((2, 3, 4), (3, 2, 4))]
    with pytest.raises(ValueError, match="concat does not apply"):
        terms.add("concat", flat, axis=2)


MADE = {
    "pair_groups": {"groups": 4},
    "pad": {"widths": ((1, 1), (0, 2), (0, 0), (0, 0))},
}


@pytest.mark.parametrize("operator", MADE)
@pytest.mark.parametrize("shape", [(), (1, 1, 1, 4), (1, 1, 2, 1), (4,)])
@pytest.mark.parametrize("order", [1, -1])
def test_scales_are_inside_of_kernels_that_were_made(terms, operator, shape, order):
    rng = np.random.default_rng(0)
    inputs = 1 if operator == "pair_groups" else 2
    arrays = [rng.standard_normal(s, np.float32) for s in ((3, 3, inputs, 4), shape)]
    kernel, scale = (
        terms.argument(k, floats(*x.shape), constant=True) for k, x in enumerate(arrays)
    )
    made = terms.add(operator, [kernel], **MADE[operator])
    found = terms.add("mul", [made, scale][::order])
    is_inside = shape in ((), (1, 1, 1, 4))
    assert terms[found].operator == (operator if is_inside else "mul")
    expected = values_of(terms, made, *arrays) * arrays[1]
    np.testing.assert_array_equal(values_of(terms, found, *arrays), expected)


def test_what_is_scaled_after_it_was_padded_stays(terms):
    kernel = terms.argument(0, floats(2, 1), constant=True)
    scale = terms.argument(1, floats(1, 3), constant=True)
    padded = terms.add("pad", [kernel], widths=((0, 0), (1, 1)))
    assert terms.shape(terms.add("mul", [padded, scale])) == (2, 3)


def test_what_is_replaced_is_replaced_everywhere(terms, x, w):
    old, new = terms.add("relu", [x]), terms.add("add", [x, w])
    user = terms.add("mul", [old, terms.add("add", [old, w])])
    (after,) = terms.replace([user], {old: new})
    assert after == terms.add("mul", [new, terms.add("add", [new, w])])
    assert terms.replace([x, user], {new: old}) == (x, user)  # new is not in it


def test_what_is_replaced_inside_a_replacement_is_replaced_there(terms, x, w):
    first = terms.add("relu", [x])
    second = terms.add("add", [first, w])
    by = {first: terms.add("add", [x, x]), second: terms.add("mul", [first, w])}
    assert terms.replace([second], by) == (terms.add("mul", [terms.add("add", [x, x]), w]),)


def test_nothing_depends_on_itself(terms, x, w):
    old = terms.add("relu", [x])
    assert terms.replace([old], {old: terms.add("add", [old, w])}) is None
    other = terms.add("add", [old, w])
    by = {old: terms.add("relu", [other]), other: terms.add("relu", [old])}
    assert terms.replace([other], by) is None


def test_a_long_chain_is_no_recursion(terms, x):
    top = x
    for k in range(3000):
        top = terms.add("add" if k % 2 else "mul", [top, x])
    (after,) = terms.replace([top], {x: terms.add("relu", [x])}) or (None,)
    assert after is None  # x is inside its replacement
    y = terms.argument(1, floats(2, 6), constant=False)
    (after,) = terms.replace([top], {x: y})
    assert len(terms.live([after])) == 3001
