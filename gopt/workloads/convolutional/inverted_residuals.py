"""What MobileNetV2, EfficientNet-B0 and MNasNet-A1 share: stages of inverted residuals.

Source: Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (2018).
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, cross_entropy, image
from gopt.workloads.layers import ConvBN, check_at_least

Activation = Callable[[jax.Array], jax.Array]


class SqueezeExcitation(nn.Module):
    """Multiplies each channel by a number between 0 and 1, computed from the means of all.

    Attributes:
      squeezed: number of channels between the two dense layers.
      activation: after the first of them.
    """

    squeezed: int
    activation: Activation

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns an array of the same shape."""
        mean = x.mean(axis=(1, 2), keepdims=True)
        hidden = self.activation(nn.Dense(self.squeezed)(mean))
        return x * nn.sigmoid(nn.Dense(x.shape[-1])(hidden))


class InvertedResidual(nn.Module):
    """Expands the channels, convolves each by itself, and projects them without an activation.

    Attributes:
      features: number of output channels.
      expansion: how many times wider than its input the depthwise convolution is.
      kernel: height and width of its window.
      strides: its strides.
      activation: after the expansion and after the depthwise convolution.
      weigh: what is done with the wide channels before they are projected; nothing by default.
    """

    features: int
    expansion: int
    kernel: int
    strides: int
    activation: Activation
    weigh: Callable[[jax.Array], jax.Array] | None = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns `[batch, height / strides, width / strides, features]`, rounded up."""
        inner = self.expansion * x.shape[-1]
        window = (self.kernel, self.kernel)
        y = x
        if self.expansion > 1:
            y = self.activation(ConvBN(inner)(y))
        y = self.activation(ConvBN(inner, window, self.strides, groups=inner)(y))
        if self.weigh is not None:
            y = self.weigh(y)
        y = ConvBN(self.features)(y)
        return x + y if x.shape == y.shape else y


class Stage(NamedTuple):
    """What the inverted residuals of a stage have in common.

    Attributes:
      expansion: how many times wider than its input the depthwise convolution is.
      kernel: height and width of its window.
      features: number of output channels.
      strides: strides of the first of them, 1 for all others.
      weighed: whether channels are weighed by `SqueezeExcitation`.
    """

    expansion: int
    kernel: int
    features: int
    strides: int
    weighed: bool = False


class InvertedResidualNetwork(nn.Module):
    """Stages of inverted residuals between two convolutions.

    Attributes:
      stages: what each stage consists of.
      blocks: number of inverted residuals in each stage.
      activation: after all convolutions but the projections.
    """

    stages: tuple[Stage, ...]
    blocks: tuple[int, ...]
    activation: Activation

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = self.activation(ConvBN(32, (3, 3), strides=2)(x))
        for count, stage in zip(self.blocks, self.stages, strict=True):
            for block in range(count):
                weigh = None
                if stage.weighed:
                    # A quarter of the narrow channels; without a parent, it becomes the block's.
                    weigh = SqueezeExcitation(x.shape[-1] // 4, self.activation, parent=None)
                x = InvertedResidual(
                    features=stage.features,
                    expansion=stage.expansion,
                    kernel=stage.kernel,
                    strides=stage.strides if block == 0 else 1,
                    activation=self.activation,
                    weigh=weigh,
                )(x)
        x = self.activation(ConvBN(1280)(x))
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


def image_classifier(
    name: str,
    stages: tuple[Stage, ...],
    activation: Activation,
    *,
    batch: int,
    size: int,
    blocks: tuple[int, ...],
) -> Workload:
    """Returns a network of these stages as a classifier of images.

    Args:
      name: what the workload is called.
      stages: what each stage consists of.
      activation: after all convolutions but the projections.
      batch: number of images.
      size: height and width of an image.
      blocks: number of inverted residuals in each stage.

    Raises:
      ValueError: a number is smaller than 1, or there are not as many `blocks` as `stages`.
    """
    check_at_least(1, batch=batch, size=size)
    if len(blocks) != len(stages):
        raise ValueError(f"blocks: expected {len(stages)} stages, got {len(blocks)}")
    check_at_least(1, **{f"blocks[{stage}]": count for stage, count in enumerate(blocks)})
    return Workload(
        name=name,
        module=InvertedResidualNetwork(stages, blocks, activation),
        inputs=(image(batch, size),),
        loss=cross_entropy,
        targets=jax.ShapeDtypeStruct((batch,), jnp.int32),
    )
