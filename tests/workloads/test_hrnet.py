"""HRNet is the published model: sizes, and what goes from branch to branch."""

from functools import partial

import jax
import numpy as np
import pytest

from gopt.workloads.dense_prediction.hrnet import Exchange, Head, hrnet, upsample
from tests.workloads.equations import size

small = partial(hrnet, modules=(1, 3, 2), blocks=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "parameters", "billions"),
    [
        (hrnet, 21_299_004, 3.99),
        (small, 15_597_464, 2.42),
        (partial(hrnet, width=32), 41_232_680, None),
    ],
    ids=["w18", "w18-small-v2", "w32"],
)
def test_the_size_is_the_published_one(make, parameters, billions):
    found = size(make())
    assert found.parameters == parameters  # pytorchcv
    # The authors' release; they count in units of 2^30.
    assert billions is None or round(found.multiplications / 2**30, 2) == billions


def test_every_exchange_keeps_the_branches_of_its_stage():
    workload = hrnet(modules=(1, 2, 1), blocks=1)
    apply = partial(workload.module.apply, capture_intermediates=True, mutable="intermediates")
    _, state = jax.eval_shape(apply, *workload.forward()[1])
    outputs = [state["intermediates"][f"Exchange_{i}"]["__call__"][0] for i in range(4)]
    branches = [(56, 56, 18), (28, 28, 36), (14, 14, 72), (7, 7, 144)]
    assert [[x.shape[1:] for x in out] for out in outputs] == [
        branches[:2],
        branches[:3],
        branches[:3],
        branches,
    ]


def test_upsampling_repeats_each_place():
    x = np.random.default_rng(0).random((2, 3, 5, 4), np.float32)
    np.testing.assert_array_equal(upsample(x, 4), x.repeat(4, axis=1).repeat(4, axis=2))


def draw_branches(rng, channels, side):
    return [
        rng.standard_normal((2, side >> level, side >> level, count), np.float32)
        for level, count in enumerate(channels)
    ]


def transparent(variables):
    """Variables with which a convolution passes on the middle of its window.

    It takes as many channels as it has room for; norms change nothing.
    """

    def draw(path, x):
        if path[-1].key != "kernel":
            values = {"scale": 1, "bias": 0, "mean": 0, "var": 1 - 1e-5}
            return np.full(x.shape, values[path[-1].key], x.dtype)
        kernel = np.zeros(x.shape, x.dtype)
        kernel[tuple(side // 2 for side in x.shape[:-2])] = np.eye(*x.shape[-2:])
        return kernel

    return jax.tree_util.tree_map_with_path(draw, variables)


@pytest.mark.slow
def test_an_exchange_is_wired_as_published():
    channels = (2, 3, 5, 4)
    branches = draw_branches(np.random.default_rng(0), channels, side=16)
    layer = Exchange()
    variables = transparent(jax.eval_shape(layer.init, jax.random.key(0), branches))
    exchanged = layer.apply(variables, branches)

    for target, count in enumerate(channels):
        expected = np.zeros_like(branches[target])
        for source, x in enumerate(branches):
            if source < target:
                x = x[:, :: 2 ** (target - source), :: 2 ** (target - source)]
                # Between two halvings what is negative is cut off; after the last it is not.
                x = np.maximum(x, 0) if target - source > 1 else x
            else:
                x = x.repeat(2 ** (source - target), axis=1).repeat(2 ** (source - target), axis=2)
            room = min(count, x.shape[-1])
            expected[..., :room] += x[..., :room]
        np.testing.assert_allclose(exchanged[target], np.maximum(expected, 0), atol=1e-4)


def test_the_head_reads_every_branch():
    rng = np.random.default_rng(0)
    branches = draw_branches(rng, (4, 8, 16), side=8)
    shapes = jax.eval_shape(Head().init, jax.random.key(0), branches)
    apply = jax.jit(partial(Head().apply, transparent(shapes)))
    before = np.asarray(apply(branches))
    assert before.shape == (2, 1000)
    for level, branch in enumerate(branches):
        changed = [*branches[:level], branch + 1, *branches[level + 1 :]]
        assert np.abs(apply(changed) - before).max() > 0.1
