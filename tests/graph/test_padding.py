import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gopt.graph import padding
from gopt.graph.graph import Shape, check, shape_of
from tests.graph.test_graph import assert_same, sample, two_ops

pytestmark = pytest.mark.small


def test_buckets_are_few_and_not_much_larger():
    """Golden: the padding that `bucket` costs, and how many shapes it makes."""
    shapes = set()
    for n in range(1, 5000):
        graph = two_ops()._replace(
            num_ops=np.int32(n), num_tensors=np.int32(n), num_uses=np.int32(2 * n)
        )
        shape = padding.bucket(graph)
        shapes.add(shape)
        assert shape.ops == shape.tensors > n and shape.uses > 2 * n
        if n >= 16:
            assert n / shape.ops >= 2 / 3 and 2 * n / shape.uses >= 1 / 2
    ops = sorted({shape.ops for shape in shapes})
    assert ops[:7] == [16, 24, 32, 48, 64, 96, 128] and ops[-1] == 6144
    assert sorted({shape.uses for shape in shapes}) == [2**k for k in range(4, 15)]
    assert len(shapes) == 19


def test_a_bucket_leaves_a_padding_row_of_each_kind():
    graph = two_ops()
    full = graph._replace(num_ops=np.int32(16), num_tensors=np.int32(3), num_uses=np.int32(16))
    assert padding.bucket(full) == (24, 24, 32)
    almost = full._replace(num_ops=np.int32(15), num_uses=np.int32(15))
    assert padding.bucket(almost) == (16, 16, 16)
    assert padding.bucket(full._replace(num_ops=np.int32(2), num_tensors=np.int32(40))).ops == 48


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 23), st.integers(1, 3), st.integers(1, 40))
def test_pad_and_unpad_are_inverse(num_ops, extra, uses):
    graph = sample(num_ops)
    real = shape_of(graph)
    shape = Shape(real.ops + extra, real.tensors + 1, real.uses + uses)
    padded = padding.pad(graph, shape)
    assert shape_of(padded) == shape
    check(padded)
    assert (padded.producer[real.tensors :] == shape.ops - 1).all()
    assert (padded.tensor[real.uses :] == shape.tensors - 1).all()
    assert (padded.consumer[real.uses :] == shape.ops - 1).all()
    assert (np.diff(padded.producer) >= 0).all() and (np.diff(padded.tensor) >= 0).all()
    for field in ("flops", "bytes", "workspace"):
        assert not getattr(padded, field)[real.ops :].any()
    assert not padded.size[real.tensors :].any() and not padded.pinned[real.tensors :].any()
    assert_same(padding.unpad(padded), graph)
    assert_same(padding.pad(padded), padding.pad(graph))


def test_pad_needs_room():
    for axis, shape in (("ops", (2, 2, 2)), ("tensors", (3, 1, 2)), ("uses", (3, 2, 1))):
        with pytest.raises(ValueError, match=rf"shape\.{axis} is \d: expected more than the"):
            padding.pad(two_ops(), Shape(*shape))


def test_stack_and_unstack_are_inverse():
    found = [sample(n) for n in (1, 23, 9)]
    batch = padding.stack(found)
    largest = Shape(*np.max([padding.bucket(graph) for graph in found], axis=0))
    assert shape_of(batch) == largest and batch.size.shape == (3, largest.tensors)
    assert batch.num_ops.tolist() == [1, 23, 9]
    for before, after in zip(found, padding.unstack(batch), strict=True):
        assert_same(before, after)
    assert shape_of(padding.stack(found, Shape(30, 31, 99))) == (30, 31, 99)
    with pytest.raises(ValueError, match=r"shape\.ops is 20"):
        padding.stack(found, Shape(20, 31, 99))
    with pytest.raises(ValueError, match="graphs is empty"):
        padding.stack([])
