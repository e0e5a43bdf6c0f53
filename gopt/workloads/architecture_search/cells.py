"""The cell search space of NASNet-A and AmoebaNet-A.

A network stacks normal cells, which keep the resolution, and reduction cells, which halve it. Each
cell reads the two cells before it. Source: Zoph et al., Learning Transferable Architectures for
Scalable Image Recognition (2018).
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.layers import ConvBN

EPSILON = 1e-3  # of every batch normalisation


class Cell(nn.Module):
    """Base of normal and reduction cells.

    Attributes:
      features: number of channels of each inner op.
    """

    features: int


class SeparableConv(nn.Module):
    """ReLU, depthwise convolution, pointwise convolution and batch normalisation, applied twice.

    Attributes:
      features: number of output channels.
      kernel: height and width of the depthwise window.
      strides: strides of the first depthwise convolution.
    """

    features: int
    kernel: int
    strides: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height / strides, width / strides, features]`, rounded up."""
        window = (self.kernel, self.kernel)
        for strides in (self.strides, 1):
            channels = x.shape[-1]
            depthwise = nn.Conv(
                channels, window, strides, feature_group_count=channels, use_bias=False
            )
            x = ConvBN(self.features, epsilon=EPSILON)(depthwise(nn.relu(x)))
        return x


class FactorizedReduction(nn.Module):
    """A halving of the resolution that uses all pixels: two subsamplings, one of them shifted.

    Attributes:
      features: number of output channels.
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height / 2, width / 2, features]`, rounded up."""
        shifted = jnp.pad(x[:, 1:, 1:], ((0, 0), (0, 1), (0, 1), (0, 0)))
        half = self.features // 2
        halves = [
            nn.Conv(features, (1, 1), use_bias=False)(nn.avg_pool(y, (1, 1), (2, 2)))
            for y, features in ((x, half), (shifted, self.features - half))
        ]
        x = jnp.concatenate(halves, axis=-1)
        return nn.BatchNorm(use_running_average=True, epsilon=EPSILON)(x)


def adjust(x: jax.Array, previous: jax.Array | None, features: int) -> tuple[jax.Array, jax.Array]:
    """Return the two inputs of a cell, at the resolution of `x` and with `features` channels.

    Args:
      x: output of the last cell.
      previous: output of the cell before; None for the first cell, whose second input is `x`
        itself.
      features: number of channels.
    """
    h = ConvBN(features, epsilon=EPSILON)(nn.relu(x))
    if previous is None:  # the first cell's second input keeps the stem's channels
        return h, x
    if previous.shape[1] != x.shape[1]:
        return h, FactorizedReduction(features)(nn.relu(previous))
    return h, ConvBN(features, epsilon=EPSILON)(nn.relu(previous))


class CellNetwork(nn.Module):
    """A stem, three stages of normal cells and a classifier.

    Attributes:
      normal: constructor of a normal cell from its features. The cell reads the outputs of the last
        two cells, the last first.
      reduction: constructor of a reduction cell from its features. The first one gets None as its
        second input.
      cells: number of normal cells in each stage.
      features: features of the cells in the first stage, at least 4; doubled in each later stage.
      stem: channels of the first convolution.
      skip_reduction: whether the cell after a reduction reads the reduction's second input instead
        of its first.
    """

    normal: Callable[[int], nn.Module]
    reduction: Callable[[int], nn.Module]
    cells: int
    features: int
    stem: int
    skip_reduction: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = ConvBN(self.stem, (3, 3), 2, "VALID", epsilon=EPSILON)(x)
        y, previous = self.reduction(self.features // 4)(x, None), x
        x, previous = self.reduction(self.features // 2)(y, previous), y
        for stage in range(3):
            features = self.features << stage
            if stage > 0:
                y = self.reduction(features)(x, previous)
                x, previous = y, previous if self.skip_reduction else x
            for _ in range(self.cells):
                x, previous = self.normal(features)(x, previous), x
        return nn.Dense(1000)(nn.relu(x).mean(axis=(1, 2)))
