"""ShuffleNetV2: units that convolve half of the channels, then shuffle all."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import ConvBN, check_at_least, check_blocks


def shuffle(x: jax.Array) -> jax.Array:
    """Return `x` with the first and second half of its channels interleaved, same shape."""
    halves = x.reshape(*x.shape[:-1], 2, -1)
    return halves.swapaxes(-1, -2).reshape(x.shape)


def _depthwise(x: jax.Array, strides: int) -> jax.Array:
    # Explicit padding: `SAME` pads strided convolutions on one side only.
    return ConvBN(x.shape[-1], (3, 3), strides, padding=1, groups=x.shape[-1])(x)


class Unit(nn.Module):
    """A branch of three convolutions beside an identity or a short branch (paper, figure 3c, d).

    At stride 1 the branch reads half of the channels, and the others are passed on. At larger
    strides both branches read and convolve all channels.

    Attributes:
      features: number of output channels, even; equal to the input's at stride 1.
      strides: strides of the depthwise convolutions.
    """

    features: int
    strides: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height / strides, width / strides, features]`, rounded up."""
        half = self.features // 2
        if self.strides == 1:
            beside, x = jnp.split(x, 2, axis=-1)
        else:
            beside = nn.relu(ConvBN(half)(_depthwise(x, self.strides)))
        x = nn.relu(ConvBN(half)(x))
        x = nn.relu(ConvBN(half)(_depthwise(x, self.strides)))
        return shuffle(jnp.concatenate([beside, x], axis=-1))


class ShuffleNetV2(nn.Module):
    """Stages of units, each at half the resolution of the previous one (paper, table 5).

    Attributes:
      blocks: number of units in each stage.
      width: channels of the first stage; doubled in each later stage.
    """

    blocks: tuple[int, ...]
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = nn.relu(ConvBN(24, (3, 3), strides=2, padding=1)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for stage, count in enumerate(self.blocks):
            for block in range(count):
                x = Unit(self.width << stage, strides=2 if block == 0 else 1)(x)
        x = nn.relu(ConvBN(1024)(x))
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


def shufflenet_v2(
    *,
    batch: int = 1,
    size: int = 224,
    blocks: tuple[int, ...] = (4, 8, 4),
    width: int = 116,
) -> Workload:
    """Return a ShuffleNetV2; by default of width 1, 2 278 604 parameters.

    torchvision publishes the same number for `shufflenet_v2_x1_0`; the paper, 2.3 million (table
    5). Widths 48 and 176 give `x0_5` and `x1_5`.

    Args:
      batch: number of images.
      size: height and width of an image.
      blocks: number of units in each stage.
      width: channels of the first stage, even.

    Raises:
      ValueError: an argument is smaller than 1, or `width` is odd.

    Source: Ma et al., ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design
    (2018).
    """
    check_at_least(1, batch=batch, size=size)
    check_blocks(blocks)
    if width < 2 or width % 2:
        raise ValueError(f"width: expected a positive even number, got {width}")
    return image_classifier("shufflenet_v2", ShuffleNetV2(blocks, width), batch=batch, size=size)
