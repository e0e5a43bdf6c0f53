"""AmoebaNet-A: cells found by evolution, in the search space of NASNet."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.architecture_search.cells import (
    EPSILON,
    Cell,
    CellNetwork,
    SeparableConv,
    adjust,
)
from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import ConvBN, average_pool, check_at_least, max_pool


class RowColumnConv(nn.Module):
    """1x7 and 7x1 convolutions between two 1x1 ones that narrow and widen; ReLU before each.

    Attributes:
      features: number of output channels; the inner convolutions have a quarter of it.
      strides: horizontal stride of the 1x7 and vertical stride of the 7x1 convolution.
    """

    features: int
    strides: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height / strides, width / strides, features]`, rounded up."""
        inner = self.features // 4
        for features, kernel, strides in (
            (inner, (1, 1), (1, 1)),
            (inner, (1, 7), (1, self.strides)),
            (inner, (7, 1), (self.strides, 1)),
            (self.features, (1, 1), (1, 1)),
        ):
            x = ConvBN(features, kernel, strides, epsilon=EPSILON)(nn.relu(x))
        return x


class NormalCell(Cell):
    """A cell at constant resolution, with 4 x `features` output channels (figure 6, middle)."""

    @nn.compact
    def __call__(self, x: jax.Array, previous: jax.Array) -> jax.Array:
        """Return the cell's output; `x` and `previous` are the outputs of the last two cells."""
        h, p = adjust(x, previous, self.features)

        def separable(y: jax.Array, kernel: int) -> jax.Array:
            return SeparableConv(self.features, kernel)(y)

        first = average_pool(h) + max_pool(h)
        second = separable(p, 3) + p
        third = h + average_pool(p)
        fourth = separable(h, 3) + separable(first, 5)
        fifth = average_pool(fourth) + separable(h, 3)
        return jnp.concatenate([p, second, third, fifth], axis=-1)


class ReductionCell(Cell):
    """A cell that halves the resolution, with 5 x `features` output channels (figure 6, right)."""

    @nn.compact
    def __call__(self, x: jax.Array, previous: jax.Array | None) -> jax.Array:
        """Return the cell's output; `x` and `previous` are the outputs of the last two cells."""
        h, p = adjust(x, previous, self.features)

        def separable(y: jax.Array, kernel: int, strides: int = 1) -> jax.Array:
            return SeparableConv(self.features, kernel, strides)(y)

        def project(y: jax.Array) -> jax.Array:
            # Pools keep the channels, and the stem has fewer or more than the first cell's
            # features.
            if y.shape[-1] == self.features:
                return y
            return ConvBN(self.features, epsilon=EPSILON)(y)

        first = separable(p, 3, strides=2) + average_pool(h, strides=2)
        second = max_pool(h, strides=2) + separable(first, 7)
        third = project(max_pool(p, strides=2)) + max_pool(h, strides=2)
        fourth = separable(third, 3) + RowColumnConv(self.features, strides=2)(h)
        fifth = project(average_pool(p, strides=2)) + separable(h, 7, strides=2)
        return jnp.concatenate([first, second, third, fourth, fifth], axis=-1)


def amoebanet(
    *,
    batch: int = 1,
    size: int = 224,
    cells: int = 4,
    filters: int = 50,
    stem: int = 32,
) -> Workload:
    """Return AmoebaNet-A (N = cells, F = filters); by default mobile, 5 086 930 parameters.

    The large model is `amoebanet(size=331, cells=6, filters=190)`, 86 718 797 parameters. Published
    for the mobile one are 5.1 million parameters and 555 million multiplications (Liu et al.,
    DARTS, 2019, table 3). Published for the large one are 86.7 million and 23.1 billion (the paper,
    table 2). As in the authors' code (tensorflow/tpu, amoeba_net), a reduction returns all its five
    sums, although it uses two of them itself. The auxiliary classifier, dropout and path dropping
    are left out.

    Args:
      batch: number of images.
      size: height and width of an image, at least 19.
      cells: number of normal cells in each of the three stages.
      filters: channels of the convolutions in the first stage, at least 16; doubled in each later
        stage.
      stem: channels of the first convolution.

    Raises:
      ValueError: an argument is too small.

    Source: Real et al., Regularized Evolution for Image Classifier Architecture Search (AAAI 2019).
    """
    check_at_least(1, batch=batch, cells=cells, stem=stem)
    check_at_least(19, size=size)
    check_at_least(16, filters=filters)
    return image_classifier(
        f"amoebanet_a_{cells}_{filters}",
        CellNetwork(NormalCell, ReductionCell, cells, filters, stem),
        batch=batch,
        size=size,
    )
