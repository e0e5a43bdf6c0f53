"""DenseNet: every layer reads the outputs of all layers before it in its block."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import ConvBN, check_at_least, check_blocks


def _norm_relu(x: jax.Array) -> jax.Array:
    return nn.relu(nn.BatchNorm(use_running_average=True)(x))


class DenseLayer(nn.Module):
    """1x1 and 3x3 convolutions, each after a norm; their output is concatenated to the input.

    Attributes:
      growth: number of channels that the layer adds.
    """

    growth: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height, width, channels + growth]`; the input comes first."""
        y = nn.Conv(4 * self.growth, (1, 1), use_bias=False)(_norm_relu(x))
        y = nn.Conv(self.growth, (3, 3), use_bias=False)(_norm_relu(y))
        return jnp.concatenate([x, y], axis=-1)


class DenseNet(nn.Module):
    """Dense blocks; channels and resolution are halved between blocks (paper, table 1).

    Attributes:
      blocks: number of layers in each block.
      growth: number of channels that a layer adds (the growth rate).
    """

    blocks: tuple[int, ...]
    growth: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        # Explicit padding: `SAME` pads strided windows on one side only.
        x = nn.relu(ConvBN(2 * self.growth, (7, 7), strides=2, padding=3)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for block, layers in enumerate(self.blocks):
            if block > 0:
                x = nn.Conv(x.shape[-1] // 2, (1, 1), use_bias=False)(_norm_relu(x))
                x = nn.avg_pool(x, (2, 2), (2, 2))
            for _ in range(layers):
                x = DenseLayer(self.growth)(x)
        return nn.Dense(1000)(_norm_relu(x).mean(axis=(1, 2)))


def densenet(
    *,
    batch: int = 1,
    size: int = 224,
    blocks: tuple[int, ...] = (6, 12, 24, 16),
    growth: int = 32,
) -> Workload:
    """Return a DenseNet-BC; by default DenseNet-121, 7 978 856 parameters.

    torchvision publishes the same number for `densenet121`.

    Args:
      batch: number of images.
      size: height and width of an image, at least 29 for four blocks.
      blocks: number of layers in each block.
      growth: number of channels that a layer adds.

    Raises:
      ValueError: an argument is too small.

    Source: Huang et al., Densely Connected Convolutional Networks (2017).
    """
    check_at_least(1, batch=batch, growth=growth)
    check_blocks(blocks)
    # A quarter of the size, rounded up, is halved between blocks, rounded down.
    check_at_least(max(1, (2 << len(blocks)) - 3), size=size)
    return image_classifier(
        f"densenet{2 * sum(blocks) + len(blocks) + 1}",
        DenseNet(blocks, growth),
        batch=batch,
        size=size,
    )
