"""ResNeXt: residual bottlenecks around grouped convolutions."""

import flax.linen as nn
import jax

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import Bottleneck, ConvBN, check_at_least, check_blocks


class ResNeXt(nn.Module):
    """Stages of bottlenecks, each at half the resolution of the previous one (paper, table 1).

    Attributes:
      blocks: number of bottlenecks in each stage.
      groups: number of groups (the cardinality).
      width: channels of each group in the first stage; doubled in each later stage.
    """

    blocks: tuple[int, ...]
    groups: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = nn.relu(ConvBN(64, (7, 7), strides=2, padding=3)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for stage, count in enumerate(self.blocks):
            for block in range(count):
                x = Bottleneck(
                    features=256 << stage,
                    inner=self.groups * self.width << stage,
                    groups=self.groups,
                    strides=2 if stage > 0 and block == 0 else 1,
                )(x)
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


def resnext(
    *,
    batch: int = 1,
    size: int = 224,
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    groups: int = 32,
    width: int = 4,
) -> Workload:
    """Return a ResNeXt; by default ResNeXt-50 (32x4d), 25 028 904 parameters.

    torchvision publishes the same number for `resnext50_32x4d`; the paper, 25.0 million
    (table 1).

    Args:
      batch: number of images.
      size: height and width of an image.
      blocks: number of bottlenecks in each stage.
      groups: number of groups of the grouped convolutions.
      width: channels of each group in the first stage.

    Raises:
      ValueError: an argument is smaller than 1.

    Source: Xie et al., Aggregated Residual Transformations for Deep Neural Networks (2017).
    """
    check_at_least(1, batch=batch, size=size, groups=groups, width=width)
    check_blocks(blocks)
    return image_classifier(
        f"resnext{3 * sum(blocks) + 2}_{groups}x{width}d",
        ResNeXt(blocks, groups, width),
        batch=batch,
        size=size,
    )
