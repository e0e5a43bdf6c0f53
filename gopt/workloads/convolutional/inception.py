"""Inception-v3: parallel branches of factorised convolutions."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import ConvBN, average_pool, check_at_least


def _conv(
    x: jax.Array,
    features: int,
    kernel: Sequence[int] = (1, 1),
    *,
    strides: int = 1,
    padding: str = "SAME",
) -> jax.Array:
    return nn.relu(ConvBN(features, kernel, strides, padding, epsilon=1e-3)(x))


def _halve(x: jax.Array, features: int) -> jax.Array:
    return _conv(x, features, (3, 3), strides=2, padding="VALID")


def _max_pool(x: jax.Array) -> jax.Array:
    return nn.max_pool(x, (3, 3), (2, 2))


class Block35(nn.Module):
    """Branches 1x1, 5x5, double 3x3 and pooling (paper, figure 5).

    Attributes:
      pool_features: number of channels of the pooling branch.
    """

    pool_features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the branches, concatenated by channels."""
        one = _conv(x, 64)
        five = _conv(_conv(x, 48), 64, (5, 5))
        three = _conv(_conv(_conv(x, 64), 96, (3, 3)), 96, (3, 3))
        pool = _conv(average_pool(x), self.pool_features)
        return jnp.concatenate([one, five, three, pool], axis=-1)


class Reduction35(nn.Module):
    """A reduction from 35x35 to 17x17 (paper, figure 10)."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return half the resolution, with 480 channels more."""
        three = _halve(x, 384)
        double = _halve(_conv(_conv(x, 64), 96, (3, 3)), 96)
        return jnp.concatenate([three, double, _max_pool(x)], axis=-1)


class Block17(nn.Module):
    """Branches of 7x7 convolutions factorised into 1x7 and 7x1 (paper, figure 6).

    Attributes:
      features: number of inner channels of the convolutions.
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the branches, concatenated to 768 channels."""
        n = self.features
        one = _conv(x, 192)
        seven = _conv(_conv(_conv(x, n), n, (1, 7)), 192, (7, 1))
        double = _conv(_conv(_conv(x, n), n, (7, 1)), n, (1, 7))
        double = _conv(_conv(double, n, (7, 1)), 192, (1, 7))
        pool = _conv(average_pool(x), 192)
        return jnp.concatenate([one, seven, double, pool], axis=-1)


class Reduction17(nn.Module):
    """A reduction from 17x17 to 8x8."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return half the resolution, with 512 channels more."""
        three = _halve(_conv(x, 192), 320)
        seven = _halve(_conv(_conv(_conv(x, 192), 192, (1, 7)), 192, (7, 1)), 192)
        return jnp.concatenate([three, seven, _max_pool(x)], axis=-1)


class Block8(nn.Module):
    """Branches that end in 1x3 and 3x1 convolutions side by side (paper, figure 7)."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the branches, concatenated to 2048 channels."""
        one = _conv(x, 320)
        three = _conv(x, 384)
        double = _conv(_conv(x, 448), 384, (3, 3))
        split = [_conv(y, 384, k) for y in (three, double) for k in ((1, 3), (3, 1))]
        pool = _conv(average_pool(x), 192)
        return jnp.concatenate([one, *split, pool], axis=-1)


class InceptionV3(nn.Module):
    """Inception-v3 without the auxiliary classifier (paper, table 1)."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = _halve(x, 32)
        x = _conv(x, 32, (3, 3), padding="VALID")
        x = _max_pool(_conv(x, 64, (3, 3)))
        x = _conv(x, 80)
        x = _max_pool(_conv(x, 192, (3, 3), padding="VALID"))
        for pool_features in (32, 64, 64):
            x = Block35(pool_features)(x)
        x = Reduction35()(x)
        for features in (128, 160, 160, 192):
            x = Block17(features)(x)
        x = Reduction17()(x)
        for _ in range(2):
            x = Block8()(x)
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


def inception_v3(*, batch: int = 1, size: int = 299) -> Workload:
    """Return Inception-v3 without its auxiliary classifier, 23 834 568 parameters.

    torchvision publishes 27 161 264 for `inception_v3`, 3 326 696 of them in the auxiliary
    classifier. Keras publishes 23 817 352 trainable ones: it has no auxiliary classifier and no
    scale in batch normalisation.

    Args:
      batch: number of images.
      size: height and width of an image, at least 75.

    Raises:
      ValueError: an argument is too small.

    Source: Szegedy et al., Rethinking the Inception Architecture for Computer Vision (2016).
    """
    check_at_least(1, batch=batch)
    check_at_least(75, size=size)
    return image_classifier("inception_v3", InceptionV3(), batch=batch, size=size)
