"""Multi-head attention of several transformers."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Shaped


def attend(
    query: Shaped[jax.Array, "batch queries hidden"],
    key: Shaped[jax.Array, "batch keys hidden"],
    value: Shaped[jax.Array, "batch keys hidden"],
    *,
    heads: int,
    bias: jax.Array | None = None,
) -> jax.Array:
    """Return the attended values of each query, `[batch, queries, hidden]`.

    Args:
      query: queries of all heads, concatenated, `[batch, queries, hidden]`.
      key: keys, `[batch, keys, hidden]`.
      value: values, `[batch, keys, hidden]`.
      heads: number of heads, a divisor of `hidden`.
      bias: number added to the scores `[batch, heads, queries, keys]`; very negative to mask.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.
    """
    width = query.shape[-1] // heads
    query, key, value = (x.reshape(*x.shape[:-1], heads, width) for x in (query, key, value))
    scores = jnp.einsum("bqhw,bkhw->bhqk", query, key) * width**-0.5
    if bias is not None:
        scores = scores + bias
    mixed = jnp.einsum("bhqk,bkhw->bqhw", nn.softmax(scores), value)
    return mixed.reshape(*mixed.shape[:-2], heads * width)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself.

    Attributes:
      heads: number of heads.
    """

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, bias: jax.Array | None = None) -> jax.Array:
        """Return `[batch, length, hidden]`; `bias` as in `attend`."""
        hidden = x.shape[-1]
        query, key, value = (nn.Dense(hidden, name=name)(x) for name in ("query", "key", "value"))
        mixed = attend(query, key, value, heads=self.heads, bias=bias)
        return nn.Dense(hidden, name="out")(mixed)


class BlockSizes(nn.Module):
    """Sizes of a transformer block.

    Attributes:
      heads: number of attention heads.
      inner: width of the feed-forward network.
    """

    heads: int
    inner: int


class LanguageModelSizes(nn.Module):
    """Sizes of a transformer of text.

    Attributes:
      vocabulary: number of tokens.
      layers: number of transformer blocks.
      hidden: width of the residual stream.
      heads: number of attention heads.
      inner: width of the feed-forward networks.
      positions: number of rows of the position embedding.
    """

    vocabulary: int
    layers: int
    hidden: int
    heads: int
    inner: int
    positions: int


def check_length(length: int, positions: int) -> None:
    """Check that there are enough rows of the position embedding.

    Raises:
      ValueError: `length` exceeds `positions`.
    """
    if length > positions:
        raise ValueError(f"length: expected at most positions = {positions}, got {length}")


def check_heads(heads: int, hidden: int) -> None:
    """Check that `heads` divides `hidden`.

    Args:
      heads: number of attention heads.
      hidden: width of all heads together.

    Raises:
      ValueError: `heads` does not divide `hidden`.
    """
    if heads < 1 or hidden % heads:
        raise ValueError(f"heads: expected a divisor of hidden = {hidden}, got {heads}")
