"""What NASNet-A and AmoebaNet-A share: the search space that their cells were found in.

A network stacks normal cells, which keep the resolution, and reduction cells, which halve it.
Each is fed by the two cells before it. Source: Zoph et al., Learning Transferable Architectures
for Scalable Image Recognition (2018).
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.layers import ConvBN

EPSILON = 1e-3  # of every batch normalisation


class SeparableConv(nn.Module):
    """ReLU, depthwise and pointwise convolution, batch normalisation: all applied twice.

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
        """Returns `[batch, height / strides, width / strides, features]`, rounded up."""
        window = (self.kernel, self.kernel)
        for strides in (self.strides, 1):
            channels = x.shape[-1]
            depthwise = nn.Conv(
                channels, window, strides, feature_group_count=channels, use_bias=False
            )
            x = ConvBN(self.features, epsilon=EPSILON)(depthwise(nn.relu(x)))
        return x


class FactorizedReduction(nn.Module):
    """Halves the resolution without losing pixels: two subsamplings, one of them shifted."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns `[batch, height / 2, width / 2, features]`, rounded up."""
        shifted = jnp.pad(x[:, 1:, 1:], ((0, 0), (0, 1), (0, 1), (0, 0)))
        half = self.features // 2
        halves = [
            nn.Conv(features, (1, 1), use_bias=False)(nn.avg_pool(y, (1, 1), (2, 2)))
            for y, features in ((x, half), (shifted, self.features - half))
        ]
        x = jnp.concatenate(halves, axis=-1)
        return nn.BatchNorm(use_running_average=True, epsilon=EPSILON)(x)


def adjust(x: jax.Array, previous: jax.Array | None, features: int) -> tuple[jax.Array, jax.Array]:
    """Returns the two inputs of a cell, at the resolution of `x` and with `features` channels."""
    h = ConvBN(features, epsilon=EPSILON)(nn.relu(x))
    if previous is None:  # the first cell: its second input keeps the channels of the stem
        return h, x
    if previous.shape[1] != x.shape[1]:
        return h, FactorizedReduction(features)(nn.relu(previous))
    return h, ConvBN(features, epsilon=EPSILON)(nn.relu(previous))


class CellNetwork(nn.Module):
    """A stem, three stages of normal cells and a classifier.

    Attributes:
      normal: makes a cell of a number of features. It is called with the outputs of the last two
        cells, the last first, and returns its own.
      reduction: the same; the first of these cells gets None for the second of its inputs.
      cells: normal cells in each stage.
      features: features of the cells of the first stage, at least 4; they double from stage to
        stage.
      stem: channels of the first convolution.
      skip_reduction: the cell after a reduction takes as its second input that of the
        reduction, rather than the reduction's first.
    """

    normal: Callable[[int], nn.Module]
    reduction: Callable[[int], nn.Module]
    cells: int
    features: int
    stem: int
    skip_reduction: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
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
