"""EfficientNet-B0: inverted residuals that weigh their channels by what the whole image shows."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, cross_entropy, image
from gopt.workloads.layers import ConvBN, InvertedResidual, check_at_least

# Expansion, depthwise window, output channels and first strides of each stage (paper, table 1).
STAGES = (
    (1, 3, 16, 1),
    (6, 3, 24, 2),
    (6, 5, 40, 2),
    (6, 3, 80, 2),
    (6, 5, 112, 1),
    (6, 5, 192, 2),
    (6, 3, 320, 1),
)


class SqueezeExcitation(nn.Module):
    """Multiplies each channel by a number between 0 and 1, computed from the means of all.

    Attributes:
      squeezed: number of channels between the two dense layers.
    """

    squeezed: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns an array of the same shape."""
        mean = x.mean(axis=(1, 2), keepdims=True)
        hidden = nn.swish(nn.Dense(self.squeezed)(mean))
        return x * nn.sigmoid(nn.Dense(x.shape[-1])(hidden))


class EfficientNet(nn.Module):
    """Stages of inverted residuals between two convolutions.

    Attributes:
      blocks: number of inverted residuals in each stage.
    """

    blocks: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = nn.swish(ConvBN(32, (3, 3), strides=2)(x))
        for count, (expansion, kernel, features, strides) in zip(self.blocks, STAGES, strict=True):
            for block in range(count):
                # A quarter of the narrow channels; without a parent, it becomes the block's own.
                weigh = SqueezeExcitation(x.shape[-1] // 4, parent=None)
                x = InvertedResidual(
                    features=features,
                    expansion=expansion,
                    kernel=kernel,
                    strides=strides if block == 0 else 1,
                    activation=nn.swish,
                    weigh=weigh,
                )(x)
        x = nn.swish(ConvBN(1280)(x))
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


def efficientnet(
    *,
    batch: int = 1,
    size: int = 224,
    blocks: tuple[int, ...] = (1, 2, 2, 3, 3, 4, 1),
) -> Workload:
    """Returns EfficientNet-B0; with the default blocks, 5 288 548 parameters.

    torchvision publishes the same number for `efficientnet_b0`; the paper, 5.3 million (table 2).
    Dropout and stochastic depth are not applied.

    Args:
      batch: number of images.
      size: height and width of an image.
      blocks: number of inverted residuals in each of the seven stages.

    Raises:
      ValueError: an argument is smaller than 1, or there are not seven stages.

    Source: Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks
    (2019).
    """
    check_at_least(1, batch=batch, size=size)
    if len(blocks) != len(STAGES):
        raise ValueError(f"blocks: expected {len(STAGES)} stages, got {len(blocks)}")
    check_at_least(1, **{f"blocks[{stage}]": count for stage, count in enumerate(blocks)})
    return Workload(
        name="efficientnet_b0",
        module=EfficientNet(blocks),
        inputs=(image(batch, size),),
        loss=cross_entropy,
        targets=jax.ShapeDtypeStruct((batch,), jnp.int32),
    )
