"""Stages of inverted residuals, as in MobileNetV2, EfficientNet-B0 and MNasNet-A1.

Source: Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (2018).
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import ConvBN, check_at_least, check_blocks

Activation = Callable[[jax.Array], jax.Array]


class SqueezeExcitation(nn.Module):
    """A multiplication of each channel by a number in 0..1, computed from all channel means.

    Attributes:
      squeezed: number of channels between the two dense layers.
      activation: activation after the first dense layer.
    """

    squeezed: int
    activation: Activation

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the shape of `x`."""
        mean = x.mean(axis=(1, 2), keepdims=True)
        hidden = self.activation(nn.Dense(self.squeezed)(mean))
        return x * nn.sigmoid(nn.Dense(x.shape[-1])(hidden))


class InvertedResidual(nn.Module):
    """An expansion of the channels, a depthwise convolution, and a linear projection.

    Attributes:
      features: number of output channels.
      expansion: width of the depthwise convolution, as a multiple of the input's.
      kernel: height and width of its window.
      strides: strides of the depthwise convolution.
      activation: activation after the expansion and after the depthwise convolution.
      weigh: function applied to the wide channels before the projection; none by default.
    """

    features: int
    expansion: int
    kernel: int
    strides: int
    activation: Activation
    weigh: Callable[[jax.Array], jax.Array] | None = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height / strides, width / strides, features]`, rounded up."""
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
    """Settings of the inverted residuals of a stage.

    Attributes:
      expansion: width of the depthwise convolution, as a multiple of the input's.
      kernel: height and width of its window.
      features: number of output channels.
      strides: strides of the first inverted residual; the others have 1.
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
      stages: settings of each stage.
      blocks: number of inverted residuals in each stage.
      activation: activation after all convolutions except projections.
    """

    stages: tuple[Stage, ...]
    blocks: tuple[int, ...]
    activation: Activation

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = self.activation(ConvBN(32, (3, 3), strides=2)(x))
        for count, stage in zip(self.blocks, self.stages, strict=True):
            for block in range(count):
                weigh = None
                if stage.weighed:
                    # A quarter of the narrow channels. Without a parent, the module becomes the
                    # block's.
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


def inverted_residual_network(
    name: str,
    stages: tuple[Stage, ...],
    activation: Activation,
    *,
    batch: int,
    size: int,
    blocks: tuple[int, ...],
) -> Workload:
    """Return an image classifier with these stages.

    Args:
      name: name of the workload.
      stages: settings of each stage.
      activation: activation after all convolutions except projections.
      batch: number of images.
      size: height and width of an image.
      blocks: number of inverted residuals in each stage.

    Raises:
      ValueError: a number is smaller than 1, or `blocks` and `stages` differ in length.
    """
    check_at_least(1, batch=batch, size=size)
    if len(blocks) != len(stages):
        raise ValueError(f"blocks: expected {len(stages)} stages, got {len(blocks)}")
    check_blocks(blocks)
    return image_classifier(
        name, InvertedResidualNetwork(stages, blocks, activation), batch=batch, size=size
    )
