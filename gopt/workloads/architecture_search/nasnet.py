"""NASNet-A: cells found by architecture search, each reading the two cells before it."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.architecture_search.cells import Cell, CellNetwork, SeparableConv, adjust
from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import average_pool, check_at_least, max_pool


class NormalCell(Cell):
    """A cell at constant resolution, with 6 x `features` output channels (figure 4, left)."""

    @nn.compact
    def __call__(self, x: jax.Array, previous: jax.Array) -> jax.Array:
        """Return the cell's output; `x` and `previous` are the outputs of the last two cells."""
        h, p = adjust(x, previous, self.features)
        blocks = [
            SeparableConv(self.features, 5)(h) + SeparableConv(self.features, 3)(p),
            SeparableConv(self.features, 5)(p) + SeparableConv(self.features, 3)(p),
            average_pool(h) + p,
            average_pool(p) + average_pool(p),
            SeparableConv(self.features, 3)(h) + h,
        ]
        return jnp.concatenate([p, *blocks], axis=-1)


class ReductionCell(Cell):
    """A cell that halves the resolution, with 4 x `features` output channels (figure 4, right)."""

    @nn.compact
    def __call__(self, x: jax.Array, previous: jax.Array | None) -> jax.Array:
        """Return the cell's output; `x` and `previous` are the outputs of the last two cells."""
        h, p = adjust(x, previous, self.features)

        def separable(y: jax.Array, kernel: int) -> jax.Array:
            return SeparableConv(self.features, kernel, strides=2)(y)

        first = separable(h, 5) + separable(p, 7)
        second = max_pool(h, strides=2) + separable(p, 7)
        third = average_pool(h, strides=2) + separable(p, 5)
        fourth = second + average_pool(first)
        fifth = SeparableConv(self.features, 3)(first) + max_pool(h, strides=2)
        return jnp.concatenate([second, third, fourth, fifth], axis=-1)


def nasnet_a(
    *,
    batch: int = 1,
    size: int = 224,
    cells: int = 4,
    filters: int = 1056,
    stem: int = 32,
    skip_reduction: bool = False,
) -> Workload:
    """Return NASNet-A (cells @ filters); by default mobile, 4 @ 1056, 5 289 978 parameters.

    NASNet-A large, 6 @ 4032, is `nasnet_a(size=331, cells=6, filters=4032, stem=96,
    skip_reduction=True)`, 88 753 150 parameters. Keras publishes the same two numbers of trainable
    parameters; the paper, 5.3 and 88.9 million (tables 3 and 2). The auxiliary classifier, dropout
    and path dropping are left out.

    Args:
      batch: number of images.
      size: height and width of an image, at least 19.
      cells: number of normal cells in each of the three stages.
      filters: channels of the last cell, a multiple of 96.
      stem: channels of the first convolution.
      skip_reduction: whether the cell after a reduction reads the reduction's second input instead
        of its first.

    Raises:
      ValueError: an argument is too small, or `filters` is not a multiple of 96.

    Source: Zoph et al., Learning Transferable Architectures for Scalable Image Recognition (2018).
    """
    check_at_least(1, batch=batch, cells=cells, stem=stem)
    check_at_least(19, size=size)
    if filters < 96 or filters % 96:
        raise ValueError(f"filters: expected a positive multiple of 96, got {filters}")
    # The last normal cells have 4 x 6 times the features of the first ones as channels.
    return image_classifier(
        f"nasnet_a_{cells}_{filters}",
        CellNetwork(NormalCell, ReductionCell, cells, filters // 24, stem, skip_reduction),
        batch=batch,
        size=size,
    )
