"""What tells whether functions have the same values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.measure.equality import is_telling, largest_difference, random_arguments, tolerance


def test_differences_are_shares_of_the_largest_value():
    assert largest_difference([jnp.ones(3)], [jnp.ones(3)]) == 0
    assert largest_difference([jnp.array([1.0, 9.0])], [jnp.array([1.5, 10.0])]) == 0.1
    both = {"a": jnp.array([1.0]), "b": jnp.array([0.0, 2.0])}
    assert largest_difference(both, {**both, "b": jnp.array([0.5, 2.0])}) == 0.25
    assert largest_difference([], []) == 0
    assert largest_difference(jnp.zeros((0, 3)), jnp.zeros((0, 3))) == 0
    assert largest_difference(jnp.array([True]), jnp.array([False])) > 1


def test_what_is_not_finite_has_to_be_so_in_both():
    one, none = jnp.array([1.0, 2.0]), jnp.array([1.0, jnp.nan])
    assert largest_difference(one, none) == np.inf
    assert largest_difference(none, one) == np.inf
    assert largest_difference(none, none) == 0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (jnp.array([1.0, jnp.inf]), jnp.array([1.0, -jnp.inf])),
        (jnp.ones(3), jnp.ones(3, jnp.int32)),
        (jnp.ones(3), jnp.ones((3, 1))),
        (jnp.array([True]), jnp.array([1])),
    ],
)
def test_what_cannot_be_compared_differs(ours, theirs):
    assert largest_difference([ours], [theirs]) == np.inf


def test_complex_numbers_and_keys_are_compared():
    assert largest_difference(1j * jnp.ones(2), 5j * jnp.ones(2)) == pytest.approx(0.8)
    keys = jax.random.key(0), jax.random.key(1)
    assert largest_difference(keys[0], keys[0]) == 0
    assert largest_difference(*keys) > 0


def test_rounding_is_that_of_the_dtype():
    assert tolerance([jnp.ones(2, jnp.int32), jnp.ones(2, bool)]) == 0
    assert tolerance(jnp.ones(2)) == pytest.approx(2**-11.5)
    assert tolerance([jnp.ones(2), jnp.ones(2, jnp.bfloat16)]) == pytest.approx(2**-3.5)


def test_values_tell_something_if_they_are_finite_and_differ():
    rising, one = jnp.arange(3.0), jnp.ones(3)
    assert is_telling([rising], [rising])
    assert is_telling([jnp.array(3.0)], [jnp.array(4.0)])
    assert not is_telling([rising, one], [rising, one])
    assert not is_telling([rising], [jnp.array([0.0, 1.0, jnp.inf])])
    assert not is_telling([jnp.array(3.0)], [jnp.array(3.0)])
    assert is_telling([jnp.zeros(0)], [jnp.zeros(0)])


def test_random_arguments_have_the_shapes_and_keep_the_scale():
    shapes = {
        "kernel": jax.ShapeDtypeStruct((3, 3, 64, 8), jnp.float32),
        "scale": jax.ShapeDtypeStruct((400,), jnp.bfloat16),
        "ids": jax.ShapeDtypeStruct((50,), jnp.int32),
        "mask": jax.ShapeDtypeStruct((50,), bool),
        "key": jax.eval_shape(lambda: jax.random.key(0)),
    }
    drawn = random_arguments(shapes)
    for ours, shape in zip(jax.tree.leaves(drawn), jax.tree.leaves(shapes), strict=True):
        assert (ours.shape, ours.dtype) == (shape.shape, shape.dtype)
    assert float(drawn["kernel"].std()) == pytest.approx(576**-0.5, rel=0.05)
    assert float(drawn["scale"].min()) >= 0.5 and float(drawn["scale"].max()) <= 1
    assert set(np.unique(drawn["ids"])) == {0, 1} == {int(x) for x in np.unique(drawn["mask"])}
    other = random_arguments(shapes, seed=1)
    assert not np.array_equal(drawn["kernel"], other["kernel"])
