"""MobileNetV2: residuals between narrow layers, depthwise convolutions in wide ones."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, cross_entropy, image
from gopt.workloads.layers import ConvBN, InvertedResidual, check_at_least

# Expansion, output channels and first strides of each stage (paper, table 2).
STAGES = (
    (1, 16, 1),
    (6, 24, 2),
    (6, 32, 2),
    (6, 64, 2),
    (6, 96, 1),
    (6, 160, 2),
    (6, 320, 1),
)


class MobileNetV2(nn.Module):
    """Stages of inverted residuals between two convolutions.

    Attributes:
      blocks: number of inverted residuals in each stage.
    """

    blocks: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = nn.relu6(ConvBN(32, (3, 3), strides=2)(x))
        for count, (expansion, features, strides) in zip(self.blocks, STAGES, strict=True):
            for block in range(count):
                x = InvertedResidual(
                    features=features,
                    expansion=expansion,
                    kernel=3,
                    strides=strides if block == 0 else 1,
                    activation=nn.relu6,
                )(x)
        x = nn.relu6(ConvBN(1280)(x))
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


def mobilenet_v2(
    *,
    batch: int = 1,
    size: int = 224,
    blocks: tuple[int, ...] = (1, 2, 3, 4, 3, 3, 1),
) -> Workload:
    """Returns MobileNetV2 of width 1; with the default blocks, 3 504 872 parameters.

    torchvision publishes the same number for `mobilenet_v2`; the paper, 3.4 million (table 4).
    Dropout is not applied.

    Args:
      batch: number of images.
      size: height and width of an image.
      blocks: number of inverted residuals in each of the seven stages.

    Raises:
      ValueError: an argument is smaller than 1, or there are not seven stages.

    Source: Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (2018).
    """
    check_at_least(1, batch=batch, size=size)
    if len(blocks) != len(STAGES):
        raise ValueError(f"blocks: expected {len(STAGES)} stages, got {len(blocks)}")
    check_at_least(1, **{f"blocks[{stage}]": count for stage, count in enumerate(blocks)})
    return Workload(
        name="mobilenet_v2",
        module=MobileNetV2(blocks),
        inputs=(image(batch, size),),
        loss=cross_entropy,
        targets=jax.ShapeDtypeStruct((batch,), jnp.int32),
    )
