"""Flop of products against counts of single products of two elements."""

import itertools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import sparse

from gopt.graph.op_costs import flops
from gopt.graph.tracing import trace
from gopt.program.program import trace_program


def array(*shape, dtype="f4"):
    return jax.ShapeDtypeStruct(shape, dtype)


def flop_of(name, fn, *args):
    return sum(flops(e) for e in trace_program(fn, *args).equations if e.primitive.name == name)


def convolution_pairs(size, kernel, stride, padding, holes, dilation):
    """Count the pairs of a kernel element and an input element along one axis, one by one."""
    dilated = (size - 1) * holes + 1 if size else 0
    span = (kernel - 1) * dilation + 1
    count = 0
    for start in range(-padding[0], dilated + padding[1] - span + 1, stride):
        for k in range(kernel):
            at = start + k * dilation
            count += 0 <= at < dilated and at % holes == 0
    return count


@pytest.mark.parametrize("seed", range(40))
def test_convolutions_count_products_with_input_elements(seed):
    rng = np.random.default_rng(seed)
    draw = lambda low, high: int(rng.integers(low, high))  # noqa: E731
    rank = draw(1, 4)
    groups, batch_groups = ((draw(1, 4), 1), (1, draw(1, 4)))[draw(0, 2)]
    batch, features, outputs = draw(0, 3) * batch_groups, draw(1, 4), draw(1, 4)
    axes = []
    while len(axes) < rank:
        size, kernel = draw(0, 9), draw(1, 4)
        stride, holes, dilation = draw(1, 4), draw(1, 4), draw(1, 4)
        padding = (draw(-1, 4), draw(-1, 4))
        dilated = (size - 1) * holes + 1 if size else 0
        if dilated + sum(padding) >= (kernel - 1) * dilation + 1:
            axes.append((size, kernel, stride, padding, holes, dilation))
    sizes, kernels, strides, padding, holes, dilation = zip(*axes, strict=True)
    outputs *= groups * batch_groups
    flop = flop_of(
        "conv_general_dilated",
        lambda x, w: lax.conv_general_dilated(
            x,
            w,
            strides,
            padding,
            lhs_dilation=holes,
            rhs_dilation=dilation,
            feature_group_count=groups,
            batch_group_count=batch_groups,
        ),
        array(batch, features * groups, *sizes),
        array(outputs, features, *kernels),
    )
    pairs = math.prod(convolution_pairs(*axis) for axis in axes)
    assert flop == 2 * (batch // batch_groups) * features * outputs * pairs


def test_transposed_convolution_does_not_count_holes():
    flop = flop_of(
        "conv_general_dilated",
        lambda x, w: lax.conv_transpose(x, w, (2,), "VALID"),
        array(1, 8, 3),
        array(4, 3, 5),
    )
    assert flop == 2 * 8 * 4 * 3 * 5  # each input element meets each kernel element once


@pytest.mark.parametrize("batch", [(), (5,), (2, 5)])
def test_batched_products(batch):
    x, y = array(*batch, 6, 7), array(*batch, 7, 9)
    assert flop_of("dot_general", jnp.matmul, x, y) == 2 * math.prod(batch) * 6 * 7 * 9


def test_products_with_an_empty_axis():
    for m, k, n in itertools.product((0, 3), repeat=3):
        assert flop_of("dot_general", jnp.matmul, array(m, k), array(k, n)) == 2 * m * k * n


def test_scaled_matmul():
    x = array(1, 128, 256, dtype=jnp.float8_e4m3fn)
    scales = array(1, 128, 8, dtype=jnp.float8_e8m0fnu)
    graph = trace(jax.nn.scaled_matmul, x, x, scales, scales).graph
    assert graph.flops.sum() == 2 * 128 * 128 * 256
    assert graph.bytes.sum() == 2 * (128 * 256 + 128 * 8) + 4 * 128 * 128


def test_scaled_dot():
    flop = flop_of(
        "scaled_dot",
        lambda a, b, c, d: lax.scaled_dot(a, b, lhs_scale=c, rhs_scale=d),
        array(2, 16, 64, dtype=jnp.float8_e4m3fn),
        array(2, 64, 32, dtype=jnp.float8_e4m3fn),
        array(2, 16, 2, dtype=jnp.float8_e8m0fnu),
        array(2, 2, 32, dtype=jnp.float8_e8m0fnu),
    )
    assert flop == 2 * 2 * 16 * 64 * 32


def ragged(contracted, batch, ragged_axes, groups):
    numbers = lax.RaggedDotDimensionNumbers((contracted, batch), ragged_axes, groups)
    return lambda a, b, sizes: lax.ragged_dot_general(a, b, sizes, numbers)


@pytest.mark.parametrize(
    ("fn", "lhs", "rhs", "flop"),
    [
        (lax.ragged_dot, (10, 4), (3, 4, 5), 2 * 10 * 4 * 5),
        # One product [10, 4] @ [4, 5] for each group, over the rows of the group.
        (ragged(([0], [0]), ([], []), [0], []), (10, 4), (10, 5), 2 * 10 * 4 * 5),
        (ragged(([2], [1]), ([0], [0]), [0], []), (6, 10, 4), (6, 4, 5), 2 * 6 * 10 * 4 * 5),
    ],
)
def test_ragged_products_count_each_row_in_its_group(fn, lhs, rhs, flop):
    found = flop_of("ragged_dot_general", fn, array(*lhs), array(*rhs), array(3, dtype="i4"))
    assert found == flop


@pytest.mark.parametrize(
    ("dense", "stored", "contracted", "batch", "rhs"),
    [
        ((8, 6), 5, ([1], [0]), ([], []), (6, 3)),
        ((8, 6), 5, ([0], [1]), ([], []), (3, 8, 2)),
        ((8, 6), 0, ([1], [0]), ([], []), (6,)),
        ((4, 8, 6), 5, ([2], [1]), ([0], [0]), (4, 6, 3)),
    ],
)
def test_sparse_products_count_what_is_stored(dense, stored, contracted, batch, rhs):
    lead = dense[: len(batch[0])]
    data, places = array(*lead, stored), array(*lead, stored, 2, dtype="i4")

    def product(data, places, x):
        matrix = sparse.BCOO((data, places), shape=dense)
        return sparse.bcoo_dot_general(matrix, x, dimension_numbers=(contracted, batch))

    free = [n for k, n in enumerate(rhs) if k not in (*contracted[1], *batch[1])]
    each = math.prod(lead) * stored
    found = flop_of("bcoo_dot_general", product, data, places, array(*rhs))
    assert found == 2 * each * math.prod(free)


@pytest.mark.parametrize(("name", "products"), [("fwd", 2), ("bwd", 5)])
@pytest.mark.parametrize(("layout", "heads_first"), [(0, False), (1, True)])
def test_fused_attention_counts_its_products(name, products, layout, heads_first):
    # JAX builds these equations only where it finds cuDNN.
    batch, heads, queries, keys, features = 2, 4, 16, 24, 8
    shape = lambda t: (batch, heads, t, features) if heads_first else (batch, t, heads, features)  # noqa: E731
    operands = [SimpleNamespace(aval=array(*shape(t))) for t in (queries, keys, keys)]
    equation = SimpleNamespace(
        primitive=SimpleNamespace(name=f"dot_product_attention_{name}_wrapper"),
        invars=operands,
        params={"layout": layout},
    )
    assert flops(equation) == products * 2 * batch * heads * queries * keys * features
