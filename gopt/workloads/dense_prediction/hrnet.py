"""HRNet: branches of several resolutions side by side, which exchange what they have found."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, cross_entropy, image
from gopt.workloads.layers import Bottleneck, ConvBN, check_at_least


def _conv(x: jax.Array, features: int, *, strides: int = 1) -> jax.Array:
    # Explicit padding: `SAME` pads strided convolutions on one side only.
    return ConvBN(features, (3, 3), strides, padding=1)(x)


def upsample(x: jax.Array, factor: int) -> jax.Array:
    """Returns `x` with each place repeated `factor` times in height and in width."""
    batch, height, width, channels = x.shape
    spread = jnp.broadcast_to(
        x[:, :, None, :, None], (batch, height, factor, width, factor, channels)
    )
    return spread.reshape(batch, height * factor, width * factor, channels)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, added to the input."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns an array of the shape of `x`."""
        channels = x.shape[-1]
        return nn.relu(x + _conv(nn.relu(_conv(x, channels)), channels))


class Exchange(nn.Module):
    """Adds to each branch all others, brought to its resolution and channels (paper, figure 3).

    Down goes a strided convolution for each halving, and the last one brings the channels. Up
    goes a convolution of each place by itself, and then its neighbours are filled with it.
    """

    @nn.compact
    def __call__(self, branches: list[jax.Array]) -> list[jax.Array]:
        """Returns branches of the same shapes; each has half the resolution of the one before."""
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
    """Goes down the branches, adding each to what has come from above, and classifies."""

    @nn.compact
    def __call__(self, branches: list[jax.Array]) -> jax.Array:
        """Returns logits `[batch, 1000]`."""

        def norm_relu(x: jax.Array) -> jax.Array:
            return nn.relu(nn.BatchNorm(use_running_average=True)(x))

        # Unlike all others, these convolutions have a bias in front of their norm.
        x = Bottleneck(128, inner=32)(branches[0])
        for level, branch in enumerate(branches[1:], start=1):
            down = norm_relu(nn.Conv(128 << level, (3, 3), 2, padding=1)(x))
            x = Bottleneck(128 << level, inner=32 << level)(branch) + down
        x = norm_relu(nn.Conv(2048, (1, 1))(x))
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


class HRNet(nn.Module):
    """Each stage adds a branch of half the resolution, twice the channels (paper, figure 2).

    Attributes:
      width: channels of the branch of the highest resolution.
      modules: number of exchanges in each stage but the first, which has one branch alone.
      blocks: residual blocks of each branch before an exchange, and of the first stage.
    """

    width: int
    modules: tuple[int, ...]
    blocks: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
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
    """Returns an HRNet for classification; by default HRNet-W18-C, 21 299 004 parameters.

    pytorchcv publishes the same number for `hrnetv2_w18`; the authors, 21.3 million. Modules
    (1, 3, 2) of 2 blocks are their HRNet-W18-C-Small-v2; width 32 is HRNet-W32-C.

    Args:
      batch: number of images.
      size: height and width of an image, a multiple of 32 for four branches.
      width: channels of the branch of the highest resolution.
      modules: number of exchanges in each stage but the first.
      blocks: residual blocks before each exchange, and in the first stage.

    Raises:
      ValueError: an argument is smaller than 1, or `size` cannot be halved for each branch.

    Source: Wang et al., Deep High-Resolution Representation Learning for Visual Recognition
    (2020); the head is that of the authors' release for classification.
    """
    check_at_least(1, batch=batch, width=width, blocks=blocks)
    check_at_least(1, **{f"modules[{stage}]": count for stage, count in enumerate(modules)})
    factor = 4 << len(modules)
    if size < 1 or size % factor:
        raise ValueError(f"size: expected a positive multiple of {factor}, got {size}")
    return Workload(
        name=f"hrnet_w{width}",
        module=HRNet(width, modules, blocks),
        inputs=(image(batch, size),),
        loss=cross_entropy,
        targets=jax.ShapeDtypeStruct((batch,), jnp.int32),
    )
