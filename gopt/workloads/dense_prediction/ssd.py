"""SSD: object boxes and classes, predicted from feature maps of falling resolution."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Bool, Shaped

from gopt.workloads.base import Tree, Workload, image
from gopt.workloads.layers import check_at_least, check_blocks

# Channels of the stages of VGG-16, as multiples of the width.
STAGES = (1, 2, 4, 8, 8)

# Narrow and wide channels, as multiples of the width, strides and padding of each pair of extra
# layers (paper, figure 2).
EXTRAS = ((4, 8, 2, 1), (2, 4, 2, 1), (2, 4, 1, 0), (2, 4, 1, 0))

# Default boxes per pixel of each feature map (paper, section 3.1).
BOXES = (4, 6, 6, 6, 4, 4)

# Negative boxes that the loss keeps per positive one (paper, section 2.2).
NEGATIVES = 3


class Rescale(nn.Module):
    """A scaling of each pixel's channels to length 1, then of each channel by a learned factor."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the shape of `x`."""
        scale = self.param("scale", nn.initializers.constant(20.0), (x.shape[-1],))
        # A pixel whose units are all off has length zero, and no direction.
        squares = jnp.square(x).sum(axis=-1, keepdims=True)
        return scale * (x * jax.lax.rsqrt(squares + 1e-12))


class Features(nn.Module):
    """VGG-16 with its dense layers as convolutions, then pairs of extra layers.

    Attributes:
      blocks: number of convolutions in each stage of VGG-16.
      width: channels of the first stage.
    """

    blocks: tuple[int, ...]
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> list[jax.Array]:
        """Return six maps `[batch, side, side, channels]`; `side` falls from 38 to 1 by default."""

        def conv(x: jax.Array, features: int, kernel: int = 3, **settings: Any) -> jax.Array:
            return nn.relu(nn.Conv(features * self.width, (kernel, kernel), **settings)(x))

        maps = []
        for stage, (count, features) in enumerate(zip(self.blocks, STAGES, strict=True)):
            if stage > 0:
                # The paper's sizes require the third pooling to round up: 75 pixels become 38.
                x = nn.max_pool(x, (2, 2), (2, 2), "SAME" if stage == 3 else "VALID")
            for _ in range(count):
                x = conv(x, features)
            if stage == 3:
                maps.append(Rescale()(x))
        # Dilation replaces the stride that this pooling lacks.
        x = conv(nn.max_pool(x, (3, 3), padding="SAME"), 16, kernel_dilation=6)
        maps.append(conv(x, 16, kernel=1))
        for narrow, wide, strides, padding in EXTRAS:
            x = conv(maps[-1], narrow, kernel=1)
            maps.append(conv(x, wide, strides=strides, padding=padding))
        return maps


class SSD(nn.Module):
    """Convolutions that predict boxes and classes at each pixel of all feature maps.

    Attributes:
      blocks: number of convolutions in each stage of VGG-16.
      width: channels of the first stage.
      classes: number of classes, the background included.
    """

    blocks: tuple[int, ...]
    width: int
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return offsets `[batch, boxes, 4]` and logits `[batch, boxes, classes]`.

        Args:
          x: images `[batch, size, size, 3]`. Boxes are ordered by map, row, column and shape.
        """
        maps = Features(self.blocks, self.width)(x)

        def head(name: str, columns: int) -> jax.Array:
            parts = [
                nn.Conv(count * columns, (3, 3), name=f"{name}_{index}")(features)
                for index, (features, count) in enumerate(zip(maps, BOXES, strict=True))
            ]
            return jnp.concatenate([p.reshape(len(x), -1, columns) for p in parts], axis=1)

        return head("offsets", 4), head("logits", self.classes)


def hardest_negatives(
    confidence: Shaped[jax.Array, "batch boxes"], positive: Bool[jax.Array, "batch boxes"]
) -> Bool[jax.Array, "batch boxes"]:
    """Return True for the negative boxes that the loss keeps, bool `[batch, boxes]`.

    In each image, the kept boxes are the negative ones with the largest loss. Their number is
    `NEGATIVES` times the number of positive boxes, or all if there are fewer.

    Args:
      confidence: classification loss of each box, `[batch, boxes]`.
      positive: whether a box is matched with an object, bool `[batch, boxes]`.

    Source: the paper, section 2.2, hard negative mining.
    """
    order = jnp.argsort(jnp.where(positive, jnp.inf, -confidence), axis=1)
    rank = jnp.argsort(order, axis=1)
    return (rank < NEGATIVES * positive.sum(axis=1, keepdims=True)) & ~positive


def loss(outputs: Tree, targets: Tree) -> jax.Array:
    """Return the loss of boxes and classes per positive box (paper, equation 1).

    Args:
      outputs: offsets `[batch, boxes, 4]` and logits `[batch, boxes, classes]`.
      targets: offsets `[batch, boxes, 4]`, and labels `[batch, boxes]`, 0 for the background.
    """
    offsets, logits = outputs
    target_offsets, labels = targets
    positive = labels > 0
    confidence = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    kept = positive | hardest_negatives(confidence, positive)
    # Huber loss with threshold 1 is the smooth L1 loss.
    localisation = optax.huber_loss(offsets, target_offsets).sum(axis=-1)
    total = jnp.where(kept, confidence, 0).sum() + jnp.where(positive, localisation, 0).sum()
    return total / jnp.maximum(positive.sum(), 1)


def _num_boxes(size: int) -> int:
    """Return the number of default boxes in all six maps of an image."""
    sides = [-(-(size // 4) // 2)]
    sides.append(sides[-1] // 2)
    for _, _, strides, padding in EXTRAS:
        sides.append((sides[-1] + 2 * padding - 3) // strides + 1)
    return sum(count * side**2 for count, side in zip(BOXES, sides, strict=True))


def ssd(
    *,
    batch: int = 1,
    size: int = 300,
    blocks: tuple[int, ...] = (2, 2, 3, 3, 3),
    width: int = 64,
    classes: int = 91,
) -> Workload:
    """Return SSD on VGG-16; by default SSD300, 35 641 826 parameters, 8732 default boxes.

    torchvision publishes the same number for `ssd300_vgg16`, with 91 classes. The targets give the
    matched class and offsets of each default box. The model excludes the matching of boxes with
    objects, and non-maximum suppression.

    Args:
      batch: number of images.
      size: height and width of an image, at least 268, so that the last map is not empty.
      blocks: number of convolutions in each of the five stages of VGG-16.
      width: channels of the first stage; all others are multiples of it.
      classes: number of classes, the background included.

    Raises:
      ValueError: an argument is too small, or there are not five stages.

    Source: Liu et al., SSD: Single Shot MultiBox Detector (2016).
    """
    check_at_least(1, batch=batch, width=width)
    check_at_least(2, classes=classes)
    check_at_least(268, size=size)
    if len(blocks) != len(STAGES):
        raise ValueError(f"blocks: expected {len(STAGES)} stages, got {len(blocks)}")
    check_blocks(blocks)
    boxes = _num_boxes(size)
    return Workload(
        name="ssd",
        module=SSD(blocks, width, classes),
        inputs=(image(batch, size),),
        loss=loss,
        targets=(
            jax.ShapeDtypeStruct((batch, boxes, 4), jnp.float32),
            jax.ShapeDtypeStruct((batch, boxes), jnp.int32),
        ),
    )
