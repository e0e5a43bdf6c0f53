"""Layers of T5, shared with its sparse successor."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Int32, Shaped

from gopt.workloads.norms import RMSNorm

BUCKETS = 32
FURTHEST = 128


def position_buckets(length: int, *, causal: bool) -> Int32[jax.Array, "length length"]:
    """Return the bucket of each key's position relative to each query, int32 `[length, length]`.

    Half of the buckets hold one distance each. The others hold ranges that grow logarithmically up
    to distance 128; the last one also holds all larger distances (Raffel et al. 2019, section 2.1).

    Args:
      length: length of the sequence.
      causal: whether all 32 buckets are for the past, the future being masked; otherwise 16 are for
        the past and 16 for the future.
    """
    offset = jnp.arange(length) - jnp.arange(length)[:, None]
    buckets = BUCKETS if causal else BUCKETS // 2
    distance = jnp.maximum(-offset, 0) if causal else jnp.abs(offset)
    near = buckets // 2
    growth = jnp.log(jnp.maximum(distance, near) / near) / math.log(FURTHEST / near)
    far = near + (growth * (buckets - near)).astype(jnp.int32)
    bucket = jnp.where(distance < near, distance, jnp.minimum(far, buckets - 1))
    return bucket if causal else bucket + buckets * (offset > 0)


def position_bias(table: Shaped[jax.Array, "heads 32"], length: int, *, causal: bool) -> jax.Array:
    """Return the bias of the attention scores, `[heads, length, length]`.

    Args:
      table: bias of each bucket, `[heads, 32]`.
      length: length of the sequence.
      causal: whether the future is masked.
    """
    bias = jnp.take(table, position_buckets(length, causal=causal), axis=1, mode="clip")
    return jnp.where(jnp.tri(length, dtype=bool), bias, -1e9) if causal else bias


class Attention(nn.Module):
    """Multi-head attention without biases of its layers.

    Scores are not divided by the root of the width: the published initial weights compensate.

    Attributes:
      heads: number of heads.
      width: width of a head.
    """

    heads: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array, memory: jax.Array, bias: jax.Array | None = None) -> jax.Array:
        """Return the values that `x` attends to in `memory`, `[batch, length, hidden]`.

        Args:
          x: queries, `[batch, length, hidden]`.
          memory: keys and values, `[batch, keys, hidden]`.
          bias: number added to the scores, `[heads, queries, keys]`.
        """

        def split(name: str, sequence: jax.Array) -> jax.Array:
            return nn.DenseGeneral((self.heads, self.width), use_bias=False, name=name)(sequence)

        query, key, value = split("query", x), split("key", memory), split("value", memory)
        scores = jnp.einsum("bqhw,bkhw->bhqk", query, key)
        if bias is not None:
            scores = scores + bias
        mixed = jnp.einsum("bhqk,bkhw->bqhw", nn.softmax(scores), value)
        return nn.DenseGeneral(x.shape[-1], axis=(-2, -1), use_bias=False, name="out")(mixed)


def attend_in_turn(
    x: Shaped[jax.Array, "batch length hidden"],
    bias: Shaped[jax.Array, "heads length length"],
    memory: jax.Array | None,
    *,
    heads: int,
    width: int,
) -> jax.Array:
    """Apply self-attention, then attention to the memory if there is one, both pre-norm residual.

    The weights belong to the calling module.

    Args:
      x: sequence, `[batch, length, hidden]`.
      bias: bias of self-attention, `[heads, length, length]`.
      memory: output of the encoder, or None.
      heads: number of heads.
      width: width of a head.
    """
    normed = RMSNorm()(x)
    x = x + Attention(heads, width, name="self_attention")(normed, normed, bias)
    if memory is not None:
        x = x + Attention(heads, width, name="cross_attention")(RMSNorm()(x), memory)
    return x


class BlockSizes(nn.Module):
    """Sizes of a block.

    Attributes:
      heads: number of attention heads.
      width: width of a head.
      inner: width of the feed-forward network, or of each expert.
    """

    heads: int
    width: int
    inner: int


class StackSizes(nn.Module):
    """Sizes of an encoder or decoder.

    Attributes:
      layers: number of blocks.
      heads: number of attention heads.
      width: width of a head.
      inner: width of the feed-forward networks, and of each expert.
    """

    layers: int
    heads: int
    width: int
    inner: int

    def position_bias(self, length: int, *, causal: bool) -> jax.Array:
        """Return the bias of the attention scores, which all blocks share, as `position_bias`."""
        table = self.param("positions", nn.initializers.normal(0.05), (self.heads, BUCKETS))
        return position_bias(table, length, causal=causal)


class ModelSizes(nn.Module):
    """Sizes of a model.

    Attributes:
      vocabulary: number of word pieces.
      layers: number of blocks of the encoder, and of the decoder.
      hidden: width of the residual stream.
      heads: number of attention heads.
      width: width of a head.
      inner: width of the feed-forward networks, and of each expert.
    """

    vocabulary: int
    layers: int
    hidden: int
    heads: int
    width: int
    inner: int


class Block(BlockSizes):
    """Self-attention, attention to the memory if there is one, and a feed-forward network.

    Each comes after a norm and has a residual connection.
    """

    @nn.compact
    def __call__(self, x: jax.Array, bias: jax.Array, memory: jax.Array | None = None) -> jax.Array:
        """Return `[batch, length, hidden]`; `bias` is the bias of self-attention."""
        x = attend_in_turn(x, bias, memory, heads=self.heads, width=self.width)
        inner = nn.relu(nn.Dense(self.inner, use_bias=False)(RMSNorm()(x)))
        return x + nn.Dense(x.shape[-1], use_bias=False)(inner)
