"""MLP-Mixer: alternating dense layers over image patches and over channels."""

import flax.linen as nn
import jax

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import check_multiple, check_sizes


class MLP(nn.Module):
    """Two dense layers with a GELU between them; the last axis keeps its size.

    Attributes:
      inner: width between the two layers.
    """

    inner: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return an array of the shape of `x`."""
        inner = nn.gelu(nn.Dense(self.inner)(x))
        return nn.Dense(x.shape[-1])(inner)


class Block(nn.Module):
    """A network over the patches of each channel, then one over each patch's channels (equation 1).

    Attributes:
      patches_inner: width of the network over patches.
      channels_inner: width of the network over channels.
    """

    patches_inner: int
    channels_inner: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, patches, hidden]`."""
        mixed = MLP(self.patches_inner, name="over_patches")(nn.LayerNorm()(x).swapaxes(1, 2))
        x = x + mixed.swapaxes(1, 2)
        return x + MLP(self.channels_inner, name="over_channels")(nn.LayerNorm()(x))


class Mixer(nn.Module):
    """Embedded patches, blocks, and a classifier of the mean over patches.

    Attributes:
      patch: height and width of a patch.
      layers: number of blocks.
      hidden: channels of an embedded patch.
      patches_inner: width of the networks over patches.
      channels_inner: width of the networks over channels.
    """

    patch: int
    layers: int
    hidden: int
    patches_inner: int
    channels_inner: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        x = nn.Conv(self.hidden, (self.patch, self.patch), self.patch, "VALID")(x)
        x = x.reshape(x.shape[0], -1, self.hidden)
        for _ in range(self.layers):
            x = Block(self.patches_inner, self.channels_inner)(x)
        return nn.Dense(1000)(nn.LayerNorm()(x).mean(axis=1))


def mlp_mixer(
    *,
    batch: int = 1,
    size: int = 224,
    patch: int = 16,
    layers: int = 12,
    hidden: int = 768,
    patches_inner: int = 384,
    channels_inner: int = 3072,
) -> Workload:
    """Return an MLP-Mixer; by default Mixer-B/16, 59 880 472 parameters.

    The paper gives 59 million (table 1); timm, 59.88 for `mixer_b16_224`. Dropout and stochastic
    depth are not applied.

    A batch has `batch` images of `size` x `size` pixels; `size` is a multiple of `patch`. The other
    arguments are the attributes of `Mixer`.

    Raises:
      ValueError: an argument is smaller than 1, or `patch` does not divide `size`.

    Source: Tolstikhin et al., MLP-Mixer: An all-MLP Architecture for Vision (2021).
    """
    module = Mixer(patch, layers, hidden, patches_inner, channels_inner)
    check_sizes(module, batch=batch, size=size)
    check_multiple(size=size, patch=patch)
    return image_classifier(f"mlp_mixer-{layers}", module, batch=batch, size=size)
