"""Vision transformer: an encoder over the patches of an image.

Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv:2010.11929, ViT-B/16 with the single dense
layer of fine-tuning as its head. The paper gives 86 M parameters (table 1). torchvision publishes
86 567 656 for `vit_b_16`, and ours has exactly this number.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, image_classifier
from gopt.workloads.layers import check_multiple, check_sizes
from gopt.workloads.transformers.attention import BlockSizes, SelfAttention, check_heads

_norm = partial(nn.LayerNorm, epsilon=1e-6)


class Block(BlockSizes):
    """Self-attention and a feed-forward network, each after a norm (equations 2 and 3)."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`."""
        x = x + SelfAttention(self.heads)(_norm()(x))
        inner = nn.gelu(nn.Dense(self.inner)(_norm()(x)), approximate=False)
        return x + nn.Dense(x.shape[-1])(inner)


class ViT(nn.Module):
    """Embedded patches after a class token, blocks, and a head that reads the token.

    Attributes:
      patch: height and width of a patch.
      layers: number of transformer blocks.
      hidden: width of the residual stream.
      heads: number of attention heads.
      inner: width of the feed-forward networks.
    """

    patch: int
    layers: int
    hidden: int
    heads: int
    inner: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, 1000]` of images `[batch, size, size, 3]`."""
        batch = x.shape[0]
        x = nn.Conv(self.hidden, (self.patch, self.patch), self.patch, "VALID")(x)
        x = x.reshape(batch, -1, self.hidden)
        token = self.param("token", nn.initializers.zeros, (1, 1, self.hidden))
        x = jnp.concatenate([jnp.broadcast_to(token, (batch, 1, self.hidden)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        for _ in range(self.layers):
            x = Block(self.heads, self.inner)(x)
        return nn.Dense(1000, name="head")(_norm()(x)[:, 0])


def vit(
    *,
    batch: int = 1,
    size: int = 224,
    patch: int = 16,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    inner: int = 3072,
) -> Workload:
    """Return a vision transformer; the defaults are ViT-B/16.

    A batch has `batch` images of `size` x `size` pixels; `size` is a multiple of `patch`. The other
    arguments are the attributes of `ViT`.

    Raises:
      ValueError: an argument is smaller than 1, `patch` does not divide `size`, or `heads` does not
        divide `hidden`.
    """
    module = ViT(patch, layers, hidden, heads, inner)
    check_heads(heads, hidden)
    check_sizes(module, batch=batch, size=size)
    check_multiple(size=size, patch=patch)
    return image_classifier(f"vit-{layers}", module, batch=batch, size=size)
