"""Layers and checks of several convolutional workloads. Images are NHWC."""

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax
from jaxtyping import Shaped


class ConvBN(nn.Module):
    """A convolution without bias, then batch normalisation by running averages.

    Attributes:
      features: number of output channels.
      kernel: height and width of the window.
      strides: one stride for both directions, or one for each.
      padding: padding, as in `flax.linen.Conv`.
      groups: number of channel groups.
      epsilon: number added to the variance.
    """

    features: int
    kernel: Sequence[int] = (1, 1)
    strides: int | Sequence[int] = 1
    padding: str | int = "SAME"
    groups: int = 1
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height, width, features]`."""
        x = nn.Conv(
            self.features,
            self.kernel,
            self.strides,
            self.padding,
            feature_group_count=self.groups,
            use_bias=False,
        )(x)
        return nn.BatchNorm(use_running_average=True, epsilon=self.epsilon)(x)


class Bottleneck(nn.Module):
    """1x1, grouped 3x3 and 1x1 convolutions, added to the input.

    Attributes:
      features: number of output channels.
      inner: number of channels of the 3x3 convolution.
      groups: number of groups of the 3x3 convolution.
      strides: strides of the 3x3 convolution.

    Source: Xie et al., Aggregated Residual Transformations for Deep Neural Networks (2017), figure
    3c; with one group, the bottleneck of He et al. (2016).
    """

    features: int
    inner: int
    groups: int = 1
    strides: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height / strides, width / strides, features]`, rounded up."""
        y = nn.relu(ConvBN(self.inner)(x))
        # Explicit padding: `SAME` pads strided convolutions on one side only.
        y = nn.relu(ConvBN(self.inner, (3, 3), self.strides, padding=1, groups=self.groups)(y))
        y = ConvBN(self.features)(y)
        if x.shape != y.shape:
            x = ConvBN(self.features, strides=self.strides)(x)
        return nn.relu(x + y)


def average_pool(
    x: Shaped[jax.Array, "batch height width channels"], *, strides: int = 1
) -> jax.Array:
    """Average over 3x3 windows with `SAME` padding, which the average excludes.

    Args:
      x: images, `[batch, height, width, channels]`.
      strides: stride in both directions.
    """
    return nn.avg_pool(x, (3, 3), (strides, strides), "SAME", count_include_pad=False)


def max_pool(x: Shaped[jax.Array, "batch height width channels"], *, strides: int = 1) -> jax.Array:
    """Take maxima over 3x3 windows with `SAME` padding.

    Args:
      x: images, `[batch, height, width, channels]`.
      strides: stride in both directions.
    """
    return nn.max_pool(x, (3, 3), (strides, strides), "SAME")


def check_sizes(module: nn.Module, **sizes: int) -> None:
    """Check that the whole numbers among a module's attributes, and more sizes, are at least 1.

    Raises:
      ValueError: a number is smaller; the message names the first one.
    """
    own = {field.name: getattr(module, field.name) for field in dataclasses.fields(module)}
    whole = {name: value for name, value in own.items() if isinstance(value, int)}
    check_at_least(1, **sizes, **whole)


def check_multiple(**sizes: int) -> None:
    """Check that the first of two sizes is a multiple of the second.

    Raises:
      ValueError: it is not.
    """
    (name, value), (divisor, number) = sizes.items()
    if value % number:
        raise ValueError(f"{name}: expected a multiple of {divisor} = {number}, got {value}")


def check_blocks(blocks: Sequence[int]) -> None:
    """Check that there is at least one block in each stage.

    Raises:
      ValueError: a stage has none; the message names the first one.
    """
    check_at_least(1, **{f"blocks[{stage}]": count for stage, count in enumerate(blocks)})


def check_at_least(minimum: int, **settings: int) -> None:
    """Check that all settings are at least `minimum`.

    Raises:
      ValueError: a setting is smaller; the message names the first one.
    """
    for name, value in settings.items():
        if not value >= minimum:
            raise ValueError(f"{name}: expected at least {minimum}, got {value}")
