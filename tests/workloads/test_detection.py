"""SSD is the published model: sizes, default boxes, and the loss with its hard negatives."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gopt.workloads.dense_prediction.ssd import (
    BOXES,
    Features,
    Rescale,
    hardest_negatives,
    loss,
    ssd,
)
from tests.workloads.equations import convolutions, forward_jaxpr, size
from tests.workloads.tiny import TINY, compiled, stepped

SETTING = TINY["ssd"].make.keywords


def test_the_size_is_the_published_one():
    parameters, multiplications = size(ssd())  # torchvision
    assert parameters == 35_641_826
    assert multiplications == pytest.approx(34.858e9, rel=2e-4)


def test_feature_maps_are_those_of_the_paper():
    model, images = Features((2, 2, 3, 3, 3), 64), jnp.zeros((1, 300, 300, 3))
    maps, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), images)
    assert [x.shape[1:] for x in maps] == [
        *((38, 38, 512), (19, 19, 1024), (10, 10, 512)),
        *((5, 5, 256), (3, 3, 256), (1, 1, 256)),
    ]
    assert sum(x.shape[1] ** 2 * count for x, count in zip(maps, BOXES, strict=True)) == 8732


def test_one_convolution_reads_every_sixth_place():
    dilated = [
        (e.outvars[0].aval.shape, e.params["padding"])
        for e in convolutions(forward_jaxpr(ssd()))
        if e.params["rhs_dilation"] != (1, 1)
    ]
    assert dilated == [((1, 19, 19, 1024), ((6, 6), (6, 6)))]


@pytest.mark.parametrize("size", [268, 299, 300, 301, 333, 512])
def test_every_box_has_a_target(size):
    workload = ssd(**{**SETTING, "size": size})
    fn, args = workload.forward()
    offsets, logits = jax.eval_shape(fn, *args)
    target_offsets, labels = workload.targets
    assert offsets.shape == target_offsets.shape
    assert logits.shape == (*labels.shape, 3)


@pytest.mark.slow
def test_boxes_go_by_map_row_column_and_shape():
    apply, variables, (images,) = compiled("ssd")
    outputs = dict(zip(("offsets", "logits"), apply(variables, images), strict=True))
    params = variables["params"]
    maps = Features(SETTING["blocks"], SETTING["width"]).apply(
        {"params": params["Features_0"]}, images
    )
    first = 0
    for index, (features, count) in enumerate(zip(maps, BOXES, strict=True)):
        side = features.shape[1]
        padded = np.pad(features, ((0, 0), (1, 1), (1, 1), (0, 0)))
        row, column, shape = side // 2, side // 3, 1
        window = padded[:, row : row + 3, column : column + 3]
        box = first + (row * side + column) * count + shape
        for name, columns in (("offsets", 4), ("logits", 3)):
            head = params[f"{name}_{index}"]
            read = np.einsum("byxc,yxcf->bf", window, head["kernel"]) + head["bias"]
            expected = read[:, shape * columns : (shape + 1) * columns]
            np.testing.assert_allclose(outputs[name][:, box], expected, rtol=1e-4, atol=1e-5)
            assert np.ptp(expected) > 1e-2
        first += side**2 * count
    assert first == outputs["logits"].shape[1] == TINY["ssd"].targets[1][1]


@pytest.mark.slow
def test_a_train_step_starts_with_a_loss_of_moderate_size():
    assert 0.1 < stepped("ssd").loss < 100


def test_rescaling_leaves_each_place_a_direction():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 3, 5), np.float32)
    x[0, 1, 2] = 0
    variables = {"params": {"scale": rng.random(5, np.float32)}}
    lengths = np.linalg.norm(x, axis=-1, keepdims=True)
    expected = variables["params"]["scale"] * x / np.where(lengths > 0, lengths, 1)
    y = Rescale().apply(variables, x)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    gradient = jax.grad(lambda x: Rescale().apply(variables, x).sum())(x)
    assert np.isfinite(gradient).all()
    start = Rescale().init(jax.random.key(0), x)["params"]["scale"]
    np.testing.assert_array_equal(start, np.full(5, 20.0))  # paper, section 3.1


def batch(positives, boxes=12, classes=4):
    """Random outputs and targets with some positive boxes in each image."""
    rng = np.random.default_rng(0)
    images = len(positives)
    labels = np.zeros((images, boxes), np.int32)
    for row, count in zip(labels, positives, strict=True):
        row[rng.choice(boxes, count, replace=False)] = rng.integers(1, classes, count)
    offsets, target_offsets = 2 * rng.standard_normal((2, images, boxes, 4), np.float32)
    logits = 2 * rng.standard_normal((images, boxes, classes), np.float32)
    return (offsets, logits), (target_offsets, labels)


def reference(outputs, targets):
    """The loss, and which boxes it keeps, box by box."""
    (offsets, logits), (target_offsets, labels) = outputs, targets
    kept = np.zeros(labels.shape, bool)
    total, matched = 0.0, 0
    for image in range(len(labels)):
        losses = []
        for box, label in enumerate(labels[image]):
            scores = np.exp(logits[image, box].astype(float))
            losses.append(-math.log(scores[label] / scores.sum()))
        positive = [box for box, label in enumerate(labels[image]) if label > 0]
        negative = [box for box, label in enumerate(labels[image]) if label == 0]
        negative.sort(key=lambda box: -losses[box])
        chosen = positive + negative[: 3 * len(positive)]
        kept[image, chosen] = True
        total += sum(losses[box] for box in chosen)
        for box in positive:
            for error in np.abs(offsets[image, box] - target_offsets[image, box]):
                total += error**2 / 2 if error < 1 else error - 0.5
        matched += len(positive)
    return total / max(matched, 1), kept


# In two images: none, few, so many that there are too few negatives, and all.
POSITIVES = [(0, 0), (1, 0), (2, 3), (5, 1), (12, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("positives", POSITIVES)
def test_the_loss_is_that_of_the_paper(positives):
    outputs, targets = batch(positives)
    expected, kept = reference(outputs, targets)
    np.testing.assert_allclose(loss(outputs, targets), expected, rtol=1e-5)
    assert (expected > 0) == (sum(positives) > 0)

    offsets, logits = jax.grad(loss)(outputs, targets)
    np.testing.assert_array_equal(np.any(offsets != 0, axis=-1), targets[1] > 0)
    np.testing.assert_array_equal(np.any(logits != 0, axis=-1), kept)


@pytest.mark.parametrize("positives", POSITIVES)
def test_hard_negatives_are_three_for_each_positive(positives):
    (_, logits), (_, labels) = batch(positives)
    confidence = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    chosen = np.asarray(hardest_negatives(confidence, labels > 0))
    assert chosen.sum(axis=1).tolist() == [min(3 * n, 12 - n) for n in positives]
    assert not chosen[labels > 0].any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(ssd, batch=0), "batch: expected at least 1, got 0"),
        (partial(ssd, width=0), "width: expected at least 1, got 0"),
        (partial(ssd, size=267), "size: expected at least 268, got 267"),
        (partial(ssd, classes=1), "classes: expected at least 2, got 1"),
        (partial(ssd, blocks=(2, 2, 3, 3)), "blocks: expected 5 stages, got 4"),
        (partial(ssd, blocks=(2, 2, 0, 3, 3)), r"blocks\[2\]: expected at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
