"""SqueezeNet 1.1: a small network of squeezing and expanding convolutions."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import check_at_least


class Fire(nn.Module):
    """A squeezing 1x1 convolution, then 1x1 and 3x3 expanding ones side by side.

    Attributes:
      squeeze: number of channels after squeezing.
      expand: number of channels of each of the two expanding convolutions.
    """

    squeeze: int
    expand: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, height, width, 2 * expand]`."""
        x = nn.relu(nn.Conv(self.squeeze, (1, 1))(x))
        one = nn.relu(nn.Conv(self.expand, (1, 1))(x))
        three = nn.relu(nn.Conv(self.expand, (3, 3))(x))
        return jnp.concatenate([one, three], axis=-1)


class SqueezeNet(nn.Module):
    """Eight fire modules between two convolutions, without a dense layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = nn.relu(nn.Conv(64, (3, 3), 2, "VALID")(x))
        for squeezes in ((16, 16), (32, 32), (48, 48, 64, 64)):
            x = nn.max_pool(x, (3, 3), (2, 2))
            for squeeze in squeezes:
                x = Fire(squeeze, 4 * squeeze)(x)
        x = nn.relu(nn.Conv(1000, (1, 1))(x))
        return x.mean(axis=(1, 2))


def squeezenet(*, batch: int = 1, size: int = 224) -> Workload:
    """Return SqueezeNet 1.1, 1 235 496 parameters, the number of torchvision's `squeezenet1_1`.

    Args:
      batch: number of images.
      size: height and width of an image, at least 31.

    Raises:
      ValueError: an argument is too small.

    Source: Iandola et al., SqueezeNet (2016); version 1.1 is the authors' later release.
    """
    check_at_least(1, batch=batch)
    check_at_least(31, size=size)
    return image_classifier("squeezenet1_1", SqueezeNet(), batch=batch, size=size)
