from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.extend
import numpy as np
import pytest

from gopt.workloads.architecture_search.amoebanet import NormalCell, ReductionCell, amoebanet
from gopt.workloads.architecture_search.cells import EPSILON, FactorizedReduction
from gopt.workloads.architecture_search.nasnet import nasnet_a
from gopt.workloads.architecture_search.randwire import Node, Stage, randwire
from gopt.workloads.base import Tree, Workload
from gopt.workloads.convolutional.densenet import DenseLayer, densenet
from gopt.workloads.convolutional.efficientnet import efficientnet
from gopt.workloads.convolutional.inception import inception_v3
from gopt.workloads.convolutional.inverted_residuals import InvertedResidual, SqueezeExcitation
from gopt.workloads.convolutional.mnasnet import mnasnet
from gopt.workloads.convolutional.mobilenet_v2 import mobilenet_v2
from gopt.workloads.convolutional.resnext import resnext
from gopt.workloads.convolutional.shufflenet_v2 import Unit, shuffle, shufflenet_v2
from gopt.workloads.convolutional.squeezenet import squeezenet
from gopt.workloads.dense_prediction.hrnet import hrnet
from gopt.workloads.dense_prediction.unet import unet
from gopt.workloads.transformers.mlp_mixer import Block, mlp_mixer
from gopt.workloads.transformers.vit import vit
from tests.workloads.equations import convolutions, forward_jaxpr, size
from tests.workloads.tiny import random_like

nasnet_large = partial(nasnet_a, size=331, cells=6, filters=4032, stem=96, skip_reduction=True)


def output_shape(workload: Workload) -> tuple[int, ...]:
    fn, args = workload.forward()
    return jax.eval_shape(fn, *args).shape


# With the parameters and the multiplications that are published, and where they are. Parameters
# do not depend on strides, padding and resolutions; multiplications do.
PUBLISHED: dict[str, tuple[Callable[[], Workload], int | None, float | None]] = {
    # torchvision, its parameters less the auxiliary classifier: two convolutions with batch
    # normalisation, one dense layer.
    "inception": (
        inception_v3,
        27_161_264 - (768 + 2) * 128 - (128 * 25 + 2) * 768 - (768 + 1) * 1000,
        5.713e9,
    ),
    "resnext": (resnext, 25_028_904, 4.23e9),  # torchvision
    "squeezenet": (squeezenet, 1_235_496, 0.349e9),  # torchvision
    # zhixuhao/unet, its two output convolutions replaced by the one of the paper.
    "unet": (unet, 31_031_685 - (64 * 9 + 1) * 2 - 3 + (64 + 1) * 2, None),
    "nasnet-mobile": (nasnet_a, 5_289_978, 564e6),  # Keras, trainable; the paper, table 3
    "nasnet-large": (nasnet_large, 88_753_150, 23.8e9),  # Keras, trainable; the paper, table 2
    "densenet": (densenet, 7_978_856, 2.834e9),  # torchvision
    # torchvision; the paper, 300 M (table 4)
    "mobilenet": (mobilenet_v2, 3_504_872, 0.301e9),
    # torchvision; the paper, 0.39 B (table 2)
    "efficientnet": (efficientnet, 5_288_548, 0.386e9),
    # pytorchcv; the paper, 312 M (table 1)
    "mnasnet": (mnasnet, 3_887_038, 0.312e9),
    # torchvision; the paper, 146 M (table 5)
    "shufflenet": (shufflenet_v2, 2_278_604, 0.145e9),
    "shufflenet-wide": (partial(shufflenet_v2, width=176), 3_503_624, None),  # torchvision
    "vit": (vit, None, 17.564e9),  # torchvision
    # The paper, 59 million (table 1); timm, 59.88. OpenMMLab.
    "mixer": (mlp_mixer, 59_880_472, 12.61e9),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "parameters", "multiplications"), PUBLISHED.values(), ids=PUBLISHED.keys()
)
def test_the_size_is_the_published_one(
    make: Callable[[], Workload], parameters: int | None, multiplications: float | None
) -> None:
    found = size(make())
    assert parameters is None or found.parameters == parameters
    assert multiplications is None or found.multiplications == pytest.approx(
        multiplications, rel=2e-3
    )


@pytest.mark.slow
def test_the_size_of_amoebanet_is_the_published_one() -> None:
    found = size(amoebanet())  # Liu et al., DARTS, table 3
    assert round(found.parameters / 1e6, 1) == 5.1
    assert found.multiplications == pytest.approx(555e6, rel=2e-3)


@pytest.mark.slow
def test_randwire_is_as_large_as_published_whatever_its_wiring() -> None:
    # The paper, table 2, over wirings: 5.6 ± 0.1 million parameters, 583 ± 6 million products.
    for seed in range(2):
        parameters, multiplications = size(randwire(seed=seed))
        assert parameters == pytest.approx(5.6e6, abs=0.15e6)
        assert multiplications == pytest.approx(583e6, abs=12e6)


def test_a_dense_layer_keeps_what_came_before() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 5, 6), np.float32)
    layer = DenseLayer(growth=4)
    variables = random_like(0, jax.eval_shape(layer.init, jax.random.key(0), x))
    y = np.asarray(layer.apply(variables, x))
    assert y.shape == (2, 5, 5, 10)
    np.testing.assert_array_equal(y[..., :6], x)
    assert (np.ptp(y[..., 6:], axis=(0, 1, 2)) > 0.1).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": 3, "activation": nn.relu6},
        {"kernel": 5, "activation": nn.swish, "weigh": SqueezeExcitation(1, nn.swish)},
    ],
    ids=["mobilenet", "efficientnet"],
)
@pytest.mark.parametrize(
    ("features", "strides", "kept"), [(6, 1, True), (6, 2, False), (8, 1, False)]
)
def test_an_inverted_residual_adds_its_input_if_shapes_agree(
    settings: dict[str, Any], features: int, strides: int, kept: bool
) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 4, 6), np.float32)
    block = InvertedResidual(features, expansion=3, strides=strides, **settings)
    shapes = jax.eval_shape(block.init, jax.random.key(0), x)
    silent = jax.tree.map(lambda v: np.zeros(v.shape, v.dtype), shapes)
    y = block.apply(silent, x)
    assert y.shape == (2, 4 // strides, 4 // strides, features)
    np.testing.assert_array_equal(y, x if kept else np.zeros_like(y))
    # The projection is linear: without its activation it takes both signs.
    assert np.asarray(block.apply(random_like(0, shapes), x) - y).min() < -0.1


def test_mobilenet_convolves_each_expanded_channel_by_itself() -> None:
    depthwise = [
        (e.params["feature_group_count"], e.outvars[0].aval.shape[1])
        for e in convolutions(forward_jaxpr(mobilenet_v2(blocks=(1,) * 7)))
        if e.params["feature_group_count"] > 1
    ]
    # Channels before each stage, six times expanded but in the first (paper, table 2).
    channels = [32, 6 * 16, 6 * 24, 6 * 32, 6 * 64, 6 * 96, 6 * 160]
    assert depthwise == list(zip(channels, [112, 56, 28, 14, 14, 7, 7], strict=True))


def test_efficientnet_convolves_each_expanded_channel_by_itself() -> None:
    depthwise = [
        (e.params["feature_group_count"], e.invars[1].aval.shape[0], e.outvars[0].aval.shape[1])
        for e in convolutions(forward_jaxpr(efficientnet(blocks=(1,) * 7)))
        if e.params["feature_group_count"] > 1
    ]
    # Channels before each stage, six times expanded but in the first (paper, table 1).
    channels = [32, 6 * 16, 6 * 24, 6 * 40, 6 * 80, 6 * 112, 6 * 192]
    windows, sizes = [3, 3, 5, 3, 5, 5, 3], [112, 56, 28, 14, 14, 7, 7]
    assert depthwise == list(zip(channels, windows, sizes, strict=True))


def test_mnasnet_weighs_channels_where_published() -> None:
    jaxpr = forward_jaxpr(mnasnet(blocks=(1,) * 7))
    depthwise = [
        (e.params["feature_group_count"], e.invars[1].aval.shape[0], e.outvars[0].aval.shape[1])
        for e in convolutions(jaxpr)
        if e.params["feature_group_count"] > 1
    ]
    # Channels before each stage, expanded (paper, figure 7).
    channels = [32, 6 * 16, 3 * 24, 6 * 40, 6 * 80, 6 * 112, 6 * 160]
    windows, sizes = [3, 3, 5, 3, 3, 5, 3], [112, 56, 28, 14, 14, 7, 7]
    assert depthwise == list(zip(channels, windows, sizes, strict=True))
    dense = [e for e in jaxpr.eqns if e.primitive is jax.lax.dot_general_p]
    kernels = [e.invars[1].aval.shape for e in dense]
    weighed = [(3 * 24, 24 // 4), (6 * 80, 80 // 4), (6 * 112, 112 // 4)]
    assert kernels == [*(k for w in weighed for k in (w, w[::-1])), (1280, 1000)]


def sigmoid(y: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-y))


@pytest.mark.parametrize(
    ("activation", "expected_activation"),
    [(nn.swish, lambda y: y * sigmoid(y)), (nn.relu, lambda y: np.maximum(y, 0))],
    ids=["efficientnet", "mnasnet"],
)
def test_squeeze_and_excitation_weighs_channels_by_their_means(
    activation: Callable[[jax.Array], jax.Array],
    expected_activation: Callable[[np.ndarray], np.ndarray],
) -> None:
    rng = np.random.default_rng(0)
    x = 1 + rng.standard_normal((2, 3, 4, 6), np.float32)
    layer = SqueezeExcitation(squeezed=5, activation=activation)
    shapes = jax.eval_shape(layer.init, jax.random.key(0), x)
    variables = jax.tree.map(lambda v: rng.standard_normal(v.shape, v.dtype), shapes)
    first, second = (variables["params"][f"Dense_{i}"] for i in range(2))
    expected = np.empty_like(x)
    for image in range(2):
        hidden = x[image].mean((0, 1)) @ first["kernel"] + first["bias"]
        weights = sigmoid(expected_activation(hidden) @ second["kernel"] + second["bias"])
        for channel in range(6):
            expected[image, :, :, channel] = weights[channel] * x[image, :, :, channel]
    np.testing.assert_allclose(layer.apply(variables, x), expected, rtol=1e-4)


def test_shuffling_lets_both_halves_take_turns() -> None:
    x = np.arange(2 * 3 * 6).reshape(2, 3, 6)
    np.testing.assert_array_equal(shuffle(x), x[..., [0, 3, 1, 4, 2, 5]])


def test_a_unit_of_shufflenet_convolves_half_of_its_channels() -> None:
    rng = np.random.default_rng(0)
    x, other = rng.standard_normal((2, 1, 5, 5, 6), np.float32)
    unit = Unit(6, strides=1)
    variables = random_like(0, jax.eval_shape(unit.init, jax.random.key(0), x))
    y = np.asarray(unit.apply(variables, x))
    np.testing.assert_array_equal(y[..., ::2], x[..., :3])
    assert (y[..., 1::2] >= 0).all()
    assert (np.ptp(y[..., 1::2], axis=(0, 1, 2)) > 0.1).all()
    # The channels that wait have no part in what is convolved.
    mixed = np.concatenate([other[..., :3], x[..., 3:]], axis=-1)
    np.testing.assert_array_equal(unit.apply(variables, mixed)[..., 1::2], y[..., 1::2])


def test_shufflenet_convolves_all_channels_where_it_halves_the_resolution() -> None:
    depthwise = [
        (e.params["feature_group_count"], e.params["window_strides"], e.outvars[0].aval.shape[1])
        for e in convolutions(forward_jaxpr(shufflenet_v2(blocks=(2, 1, 1))))
        if e.params["feature_group_count"] > 1
    ]
    # The waiting branch first, with all channels of the stage before (paper, table 5).
    strided = [(24, 28), (58, 28), (116, 14), (116, 14), (232, 7), (232, 7)]
    expected = [(channels, (2, 2), side) for channels, side in strided]
    expected.insert(2, (58, (1, 1), 28))
    assert depthwise == expected


def test_a_block_of_mixer_mixes_patches_and_then_channels() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 4), np.float32)
    block = Block(patches_inner=3, channels_inner=6)
    shapes = jax.eval_shape(block.init, jax.random.key(0), x)
    variables = jax.tree.map(lambda v: rng.standard_normal(v.shape, v.dtype), shapes)
    params = variables["params"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean()
        return centred / np.sqrt(x.var() + 1e-6) * params[name]["scale"] + params[name]["bias"]

    def network(x: np.ndarray, name: str) -> np.ndarray:
        first, second = params[name]["Dense_0"], params[name]["Dense_1"]
        inner = x @ first["kernel"] + first["bias"]
        cubic = np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)
        return (inner * (1 + np.tanh(cubic)) / 2) @ second["kernel"] + second["bias"]

    expected = x.astype(float)
    for image in expected:
        normed = np.array([norm(patch, "LayerNorm_0") for patch in image])
        for channel in range(4):
            image[:, channel] += network(normed[:, channel], "over_patches")
        for patch in image:
            patch += network(norm(patch, "LayerNorm_1"), "over_channels")
    np.testing.assert_allclose(block.apply(variables, x), expected, rtol=1e-4, atol=1e-4)


def test_randwire_wires_a_stage_as_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a node makes tells which one it is and what it read.
    def node(self: Node, inputs: list[jax.Array]) -> jax.Array:
        assert self.name is not None
        return int(self.name.removeprefix("Node_")) + 2 * sum(inputs[1:], inputs[0])

    monkeypatch.setattr(Node, "__call__", node)
    edges = ((0, 2), (1, 2), (1, 3), (2, 4), (0, 4))
    x = np.arange(24.0).reshape(2, 2, 2, 3)
    zero, one = 0 + 2 * x, 1 + 2 * x
    two, three = 2 + 2 * (zero + one), 3 + 2 * one
    four = 4 + 2 * (two + zero)
    made = Stage(edges, nodes=5, features=3).apply({}, x)
    np.testing.assert_allclose(made, (three + four) / 2)


def test_a_node_of_randwire_weighs_its_inputs() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 1, 4, 4, 3)).astype(np.float32)
    variables = random_like(0, jax.eval_shape(Node(5).init, jax.random.key(0), [x, y]))
    weights = np.float32([-1, 2])
    variables["params"]["weights"] = weights
    both = Node(5).apply(variables, [x, y])
    share = 1 / (1 + np.exp(-weights))
    del variables["params"]["weights"]
    np.testing.assert_allclose(
        both, Node(5).apply(variables, [share[0] * x + share[1] * y]), atol=1e-5
    )


def test_randwire_is_drawn_from_its_seed() -> None:
    same, again, other = (
        str(forward_jaxpr(randwire(stages=2, nodes=8, seed=seed))) for seed in (1, 1, 2)
    )
    assert same == again
    assert same != other


@pytest.mark.parametrize(
    ("size", "depth", "out"), [(572, 4, 388), (188, 4, 4), (44, 2, 4), (18, 1, 2)]
)
def test_unet_loses_a_border(size: int, depth: int, out: int) -> None:
    workload = unet(size=size, depth=depth, width=1)
    assert output_shape(workload) == (1, out, out, 2)
    assert workload.targets.shape == (1, out, out)


@pytest.mark.slow
def test_nasnet_cells_apply_five_separable_convolutions_twice() -> None:
    jaxpr = forward_jaxpr(nasnet_a(size=35, cells=1, filters=96 * 2))
    depthwise = [e for e in convolutions(jaxpr) if e.params["feature_group_count"] > 1]
    assert len(depthwise) == (4 + 3) * 5 * 2  # four reduction cells, three normal ones


@pytest.mark.parametrize(
    ("skip_reduction", "channels"),
    [(False, 6 * 4), (True, 2 * 4)],  # from the normal cell; from the stem, two cells back
)
def test_nasnet_cell_after_a_reduction_skips_it(skip_reduction: bool, channels: int) -> None:
    workload = nasnet_a(size=19, cells=1, filters=4 * 24, skip_reduction=skip_reduction)
    adjust = workload.variables()["params"]["NormalCell_1"]["FactorizedReduction_0"]
    assert adjust["Conv_0"]["kernel"].shape == (1, 1, channels, 4)


@pytest.mark.slow
def test_nasnet_cells_have_the_published_shapes() -> None:
    workload = nasnet_large(cells=1)
    apply = partial(workload.module.apply, capture_intermediates=True, mutable="intermediates")
    _, state = jax.eval_shape(apply, *workload.forward()[1])
    cells = [*(f"ReductionCell_{i}" for i in range(4)), "NormalCell_2"]
    outputs = [state["intermediates"][cell]["__call__"][0] for cell in cells]
    expected = [(83, 168), (42, 336), (21, 1344), (11, 2688), (11, 4032)]
    assert [(x.shape[1], x.shape[3]) for x in outputs] == expected


def transparent(variables: Tree) -> Tree:
    """Variables with which convolutions and norms pass on what they get.

    A convolution takes the middle of its window, and the channels that it has room for.
    """

    def draw(path: tuple[jax.tree_util.DictKey, ...], x: jax.ShapeDtypeStruct) -> np.ndarray:
        if path[-1].key != "kernel":
            values = {"scale": 1, "bias": 0, "mean": 0, "var": 1 - EPSILON}
            return np.full(x.shape, values[path[-1].key], x.dtype)
        height, width, channels, features = x.shape
        depthwise = height == width > 1
        kernel = np.zeros(x.shape, x.dtype)
        kernel[height // 2, width // 2] = 1 if depthwise else np.eye(channels, features)
        return kernel

    return jax.tree_util.tree_map_with_path(draw, variables)


def apply_transparent(layer: nn.Module, *inputs: np.ndarray | None) -> np.ndarray:
    variables = transparent(jax.eval_shape(layer.init, jax.random.key(0), *inputs))
    return np.asarray(layer.apply(variables, *inputs))


def pool(x: np.ndarray, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    """Reduces 3x3 windows, cut off at the borders."""
    y = np.empty_like(x)
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            window = x[:, max(0, i - 1) : i + 2, max(0, j - 1) : j + 2]
            y[:, i, j] = reduce(window, axis=(1, 2))
    return y


def test_an_amoebanet_normal_cell_is_wired_as_published() -> None:
    rng = np.random.default_rng(0)
    x, previous = rng.standard_normal((2, 1, 5, 5, 4), np.float32)
    h, p = np.maximum(x, 0), np.maximum(previous, 0)
    # Hidden states of the paper's figure 6, where separable convolutions are identities.
    two = pool(h, np.mean) + pool(h, np.max)
    three = p + p
    four = h + pool(p, np.mean)
    five = h + two
    six = pool(five, np.mean) + h
    expected = np.concatenate([p, three, four, six], axis=-1)
    cell = apply_transparent(NormalCell(4), x, previous)
    np.testing.assert_allclose(cell, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("first", [True, False])
def test_an_amoebanet_reduction_cell_is_wired_as_published(first: bool) -> None:
    rng = np.random.default_rng(0)
    x, previous = rng.standard_normal((2, 1, 5, 5, 4), np.float32)
    h, p = np.maximum(x, 0), x if first else np.maximum(previous, 0)

    def halve(y: np.ndarray) -> np.ndarray:
        return y[:, ::2, ::2]

    # As above; the 1x7 and 7x1 convolutions have room for one channel of four.
    two = halve(np.maximum(p, 0)) + halve(pool(h, np.mean))
    three = halve(pool(h, np.max)) + two
    four = halve(pool(p, np.max)) + halve(pool(h, np.max))
    five = np.maximum(four, 0) + halve(h) * [1, 0, 0, 0]
    six = halve(pool(p, np.mean)) + halve(h)
    expected = np.concatenate([two, three, four, five, six], axis=-1)
    cell = apply_transparent(ReductionCell(4), x, None if first else previous)
    np.testing.assert_allclose(cell, expected, rtol=1e-5, atol=1e-6)


def test_amoebanet_cells_have_separable_convolutions_of_the_published_windows() -> None:
    jaxpr = forward_jaxpr(amoebanet(size=35, cells=1))
    windows = Counter(
        e.invars[1].aval.shape[0]
        for e in convolutions(jaxpr)
        if e.params["feature_group_count"] > 1
    )
    # Four reduction cells with 3, 3, 7 and 7; three normal ones with 3, 3, 3 and 5; all twice.
    assert windows == {3: 2 * (4 * 2 + 3 * 3), 5: 2 * 3, 7: 2 * 4 * 2}


@pytest.mark.parametrize("size", [4, 5])
def test_a_factorized_reduction_shares_an_odd_number_of_features(size: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, size, size, 3), np.float32)
    y = apply_transparent(FactorizedReduction(5), x)
    shifted = np.zeros((1, size + 1, size + 1, 3))
    shifted[:, :-2, :-2] = x[:, 1:, 1:]
    shifted = shifted[:, :size:2, :size:2]
    np.testing.assert_allclose(y[..., :2], x[:, ::2, ::2, :2], rtol=1e-5)
    np.testing.assert_allclose(y[..., 2:], shifted, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(inception_v3, size=74), "size: expected at least 75, got 74"),
        (partial(inception_v3, batch=0), "batch: expected at least 1, got 0"),
        (partial(resnext, blocks=(3, 0)), r"blocks\[1\]: expected at least 1, got 0"),
        (partial(squeezenet, size=30), "size: expected at least 31, got 30"),
        (partial(unet, size=570), "size: expected even sizes before all 4 poolings, got 570"),
        (partial(unet, size=140), "size: expected a larger one for depth 4, got 140"),
        (partial(nasnet_a, filters=1000), "filters: expected a positive multiple of 96"),
        (partial(nasnet_a, size=18), "size: expected at least 19, got 18"),
        (partial(amoebanet, filters=15), "filters: expected at least 16, got 15"),
        (partial(amoebanet, size=18), "size: expected at least 19, got 18"),
        (partial(amoebanet, cells=0), "cells: expected at least 1, got 0"),
        (partial(densenet, size=28), "size: expected at least 29, got 28"),
        (partial(densenet, growth=0), "growth: expected at least 1, got 0"),
        (partial(densenet, blocks=(3, 0)), r"blocks\[1\]: expected at least 1, got 0"),
        (partial(randwire, nodes=4), "nodes: expected at least 5, got 4"),
        (partial(randwire, stages=0), "stages: expected at least 1, got 0"),
        (partial(randwire, width=1), "width: expected at least 2, got 1"),
        (partial(mobilenet_v2, blocks=(1, 2)), "blocks: expected 7 stages, got 2"),
        (partial(mobilenet_v2, blocks=(1,) * 6 + (0,)), r"blocks\[6\]: expected at least 1"),
        (partial(efficientnet, blocks=(1, 2)), "blocks: expected 7 stages, got 2"),
        (partial(efficientnet, blocks=(1, 0) + (1,) * 5), r"blocks\[1\]: expected at least 1"),
        (partial(efficientnet, size=0), "size: expected at least 1, got 0"),
        (partial(mnasnet, blocks=(1, 2)), "blocks: expected 7 stages, got 2"),
        (partial(mnasnet, batch=0), "batch: expected at least 1, got 0"),
        (partial(shufflenet_v2, width=7), "width: expected a positive even number, got 7"),
        (partial(shufflenet_v2, width=0), "width: expected a positive even number, got 0"),
        (partial(shufflenet_v2, blocks=(4, 0, 4)), r"blocks\[1\]: expected at least 1, got 0"),
        (partial(shufflenet_v2, size=0), "size: expected at least 1, got 0"),
        (partial(mlp_mixer, size=225), "size: expected a multiple of patch = 16, got 225"),
        (partial(mlp_mixer, patches_inner=0), "patches_inner: expected at least 1, got 0"),
        (partial(hrnet, size=48), "size: expected a positive multiple of 32, got 48"),
        (partial(hrnet, size=0, modules=(1,)), "size: expected a positive multiple of 8, got 0"),
        (partial(hrnet, modules=(1, 0)), r"modules\[1\]: expected at least 1, got 0"),
        (partial(hrnet, width=0), "width: expected at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(make: Callable[[], Workload], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
