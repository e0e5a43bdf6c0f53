"""Segment-recurrent attention against a plain reference; what is seen, and what gets gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.learning.layers.attention import SegmentAttention, Superposition
from tests.reference.attention import attend

WIDTH, HEADS = 8, 2


def network(segment: int, rows: int):
    net = SegmentAttention(HEADS, segment)
    params = net.init(jax.random.key(0), jnp.zeros((rows, WIDTH)), jnp.ones(rows, bool))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(scale=0.5, size=x.shape).astype(np.float32), params)
    return net, params


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4, 7, 12, 30])
@pytest.mark.parametrize("segment", [1, 4, 64])
def test_embeddings_equal_the_reference(segment, rows):
    net, params = network(segment, rows)
    ops = np.random.default_rng(2).normal(size=(rows, WIDTH)).astype(np.float32)
    for count in {1, (rows + 1) // 2, rows}:  # the rest is padding
        found = np.asarray(net.apply(params, ops, np.arange(rows) < count))
        assert found.shape == (rows, WIDTH) and np.isfinite(found).all()
        expected = attend(params, ops, count, heads=HEADS, segment=segment)
        np.testing.assert_allclose(found[:count], expected, atol=1e-4)


@pytest.mark.slow
def test_an_op_sees_its_segment_and_the_one_before():
    net, params = network(4, 16)
    ops = np.random.default_rng(2).normal(size=(16, WIDTH)).astype(np.float32)
    mask = np.ones(16, bool)
    before = np.asarray(net.apply(params, ops, mask))
    other = ops.copy()
    other[5] += 1
    change = np.abs(np.asarray(net.apply(params, other, mask)) - before).max(1)
    assert set(np.flatnonzero(change > 1e-6)) == set(range(4, 12))


@pytest.mark.slow
def test_what_is_remembered_gets_no_gradient():
    net, params = network(4, 16)
    ops = np.random.default_rng(2).normal(size=(16, WIDTH)).astype(np.float32)

    def output(ops):
        return jnp.sum(net.apply(params, ops, jnp.ones(16, bool))[9] ** 2)

    gradient = np.abs(np.asarray(jax.grad(output)(ops))).max(1)
    assert set(np.flatnonzero(gradient)) == set(range(8, 12))


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="heads is 3: expected a divisor of the width 8"):
        SegmentAttention(3, 4).init(jax.random.key(0), jnp.zeros((2, 8)), jnp.ones(2, bool))


def test_superposition_changes_nothing_at_first_then_scales_by_the_graph():
    ops = np.random.default_rng(2).normal(size=(5, WIDTH)).astype(np.float32)
    mask = np.arange(5) < 3
    net = Superposition()
    params = net.init(jax.random.key(0), ops, mask)
    np.testing.assert_array_equal(net.apply(params, ops, mask), ops)
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), params)
    dense = params["params"]["Dense_0"]
    expected = ops * (1 + ops[:3].mean(0) @ dense["kernel"] + dense["bias"])
    np.testing.assert_allclose(net.apply(params, ops, mask), expected, rtol=1e-5, atol=1e-6)
