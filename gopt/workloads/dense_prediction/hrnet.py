"""HRNet: parallel branches of several resolutions that exchange features."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Shaped

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import Bottleneck, ConvBN, check_at_least


def _conv(x: jax.Array, features: int, *, strides: int = 1) -> jax.Array:
    # Explicit padding: `SAME` pads strided convolutions on one side only.
    return ConvBN(features, (3, 3), strides, padding=1)(x)


def upsample(x: Shaped[jax.Array, "batch height width channels"], factor: int) -> jax.Array:
    """Return `x` with each pixel repeated `factor` times in height and in width.

    Args:
      x: images, `[batch, height, width, channels]`.
      factor: number of repetitions.
    """
    batch, height, width, channels = x.shape
    spread = jnp.broadcast_to(
        x[:, :, None, :, None], (batch, height, factor, width, factor, channels)
    )
    return spread.reshape(batch, height * factor, width * factor, channels)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, added to the input."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the shape of `x`."""
        channels = x.shape[-1]
        return nn.relu(x + _conv(nn.relu(_conv(x, channels)), channels))


class Exchange(nn.Module):
    """A sum of all branches for each branch, at its resolution and channels (paper, figure 3).

    A branch of higher resolution passes a strided convolution per halving; the last one sets the
    channels. A branch of lower resolution passes a 1x1 convolution and is then upsampled.
    """

    @nn.compact
    def __call__(self, branches: list[jax.Array]) -> list[jax.Array]:
        """Return branches of the same shapes; each has half the resolution of the previous one."""
        exchanged = []
        for target, like in enumerate(branches):
            features = like.shape[-1]
            parts = []
            for source, x in enumerate(branches):
                for _ in range(source + 1, target):
                    x = nn.relu(_conv(x, x.shape[-1], strides=2))
                if source < target:
                    x = _conv(x, features, strides=2)
                elif source > target:
                    x = upsample(ConvBN(features)(x), 2 ** (source - target))
                parts.append(x)
            exchanged.append(nn.relu(sum(parts[1:], parts[0])))
        return exchanged


class Head(nn.Module):
    """A classifier that adds each branch to the downsampled sum of the branches above."""

    @nn.compact
    def __call__(self, branches: list[jax.Array]) -> jax.Array:
        """Return logits `[batch, 1000]`."""

        def norm_relu(x: jax.Array) -> jax.Array:
            return nn.relu(nn.BatchNorm(use_running_average=True)(x))

        # Only these convolutions have a bias before their norm.
        x = Bottleneck(128, inner=32)(branches[0])
        for level, branch in enumerate(branches[1:], start=1):
            down = norm_relu(nn.Conv(128 << level, (3, 3), 2, padding=1)(x))
            x = Bottleneck(128 << level, inner=32 << level)(branch) + down
        x = norm_relu(nn.Conv(2048, (1, 1))(x))
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


class HRNet(nn.Module):
    """Stages that each add a branch of half the resolution and twice the channels (figure 2).

    Attributes:
      width: channels of the branch of the highest resolution.
      modules: number of exchanges in each stage but the first, which has a single branch.
      blocks: residual blocks of each branch before an exchange, and of the first stage.
    """

    width: int
    modules: tuple[int, ...]
    blocks: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        for _ in range(2):
            x = nn.relu(_conv(x, 64, strides=2))
        for _ in range(self.blocks):
            x = Bottleneck(256, inner=64)(x)
        branches = [nn.relu(_conv(x, self.width))]
        for count in self.modules:
            below = nn.relu(_conv(x, self.width << len(branches), strides=2))
            branches = [*branches, below]
            for _ in range(count):
                for _ in range(self.blocks):
                    branches = [BasicBlock()(branch) for branch in branches]
                branches = Exchange()(branches)
            x = branches[-1]
        return Head()(branches)


def hrnet(
    *,
    batch: int = 1,
    size: int = 224,
    width: int = 18,
    modules: tuple[int, ...] = (1, 4, 3),
    blocks: int = 4,
) -> Workload:
    """Return an HRNet for classification; by default HRNet-W18-C, 21 299 004 parameters.

    pytorchcv publishes the same number for `hrnetv2_w18`; the authors, 21.3 million. Modules (1, 3,
    2) of 2 blocks give their HRNet-W18-C-Small-v2; width 32 gives HRNet-W32-C.

    Args:
      batch: number of images.
      size: height and width of an image, a multiple of 32 for four branches.
      width: channels of the branch of the highest resolution.
      modules: number of exchanges in each stage but the first.
      blocks: residual blocks before each exchange, and in the first stage.

    Raises:
      ValueError: an argument is smaller than 1, or `size` cannot be halved for each branch.

    Source: Wang et al., Deep High-Resolution Representation Learning for Visual Recognition (2020);
    the head is from the authors' release for classification.
    """
    check_at_least(1, batch=batch, width=width, blocks=blocks)
    check_at_least(1, **{f"modules[{stage}]": count for stage, count in enumerate(modules)})
    factor = 4 << len(modules)
    if size < 1 or size % factor:
        raise ValueError(f"size: expected a positive multiple of {factor}, got {size}")
    return image_classifier(
        f"hrnet_w{width}", HRNet(width, modules, blocks), batch=batch, size=size
    )
