"""T5: a transformer encoder and decoder that turn one text into another.

Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer,
arXiv:1910.10683, the model of version 1.0 in its smallest size. The paper gives 60 M parameters
(section 3.7.2); the released checkpoint `t5-small` has 60 506 624, and ours has this number
exactly. T5-base (222 903 552) is `t5(layers=12, hidden=768, heads=12, inner=3072)`.

Texts fill their lengths, as after packing: there is no padding mask.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, cross_entropy, tokens
from gopt.workloads.layers import check_at_least

BUCKETS = 32
FURTHEST = 128


class RMSNorm(nn.Module):
    """Division by the root mean square, and a scale. That of Flax subtracts a mean of zeros."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns `[..., hidden]`, as `x`."""
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        mean = jnp.square(x).mean(axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(mean + 1e-6) * scale


def position_buckets(length: int, *, causal: bool) -> jax.Array:
    """Returns the bucket of each key's position as a query sees it, int32 `[length, length]`.

    Half of the buckets hold one distance each, the others hold ranges that grow logarithmically
    to distance 128, and the last one all that is further (section 2.1). A causal stack has the
    32 buckets for the past, the future being masked; else 16 are for the past and 16 for the
    future.
    """
    offset = jnp.arange(length) - jnp.arange(length)[:, None]
    buckets = BUCKETS if causal else BUCKETS // 2
    distance = jnp.maximum(-offset, 0) if causal else jnp.abs(offset)
    near = buckets // 2
    growth = jnp.log(jnp.maximum(distance, near) / near) / math.log(FURTHEST / near)
    far = near + (growth * (buckets - near)).astype(jnp.int32)
    bucket = jnp.where(distance < near, distance, jnp.minimum(far, buckets - 1))
    return bucket if causal else bucket + buckets * (offset > 0)


class Attention(nn.Module):
    """Multi-head attention without biases of its layers.

    Scores are not divided by the root of the width: published initial weights make up for it.
    """

    heads: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array, memory: jax.Array, bias: jax.Array | None = None) -> jax.Array:
        """Returns what `x` reads in `memory`, `[batch, length, hidden]`.

        `bias` `[heads, queries, keys]` is added to the scores.
        """

        def split(name: str, sequence: jax.Array) -> jax.Array:
            return nn.DenseGeneral((self.heads, self.width), use_bias=False, name=name)(sequence)

        query, key, value = split("query", x), split("key", memory), split("value", memory)
        scores = jnp.einsum("bqhw,bkhw->bhqk", query, key)
        if bias is not None:
            scores = scores + bias
        mixed = jnp.einsum("bhqk,bkhw->bqhw", nn.softmax(scores), value)
        return nn.DenseGeneral(x.shape[-1], axis=(-2, -1), use_bias=False, name="out")(mixed)


class Block(nn.Module):
    """Self-attention, attention to the memory if there is one, and a feed-forward network.

    Each comes after a norm; a residual goes around both.
    """

    heads: int
    width: int
    inner: int

    @nn.compact
    def __call__(self, x: jax.Array, bias: jax.Array, memory: jax.Array | None = None) -> jax.Array:
        """Returns `[batch, length, hidden]`; `bias` is that of self-attention."""
        normed = RMSNorm()(x)
        x = x + Attention(self.heads, self.width, name="self_attention")(normed, normed, bias)
        if memory is not None:
            x = x + Attention(self.heads, self.width, name="cross_attention")(RMSNorm()(x), memory)
        inner = nn.relu(nn.Dense(self.inner, use_bias=False)(RMSNorm()(x)))
        return x + nn.Dense(x.shape[-1], use_bias=False)(inner)


class Stack(nn.Module):
    """Blocks that share one table of position biases, then a norm.

    It is the encoder, or, called with the encoder's output as `memory`, the causal decoder.
    """

    layers: int
    heads: int
    width: int
    inner: int

    @nn.compact
    def __call__(self, x: jax.Array, memory: jax.Array | None = None) -> jax.Array:
        """Returns `[batch, length, hidden]`."""
        length, causal = x.shape[1], memory is not None
        table = self.param("positions", nn.initializers.normal(0.05), (self.heads, BUCKETS))
        bias = jnp.take(table, position_buckets(length, causal=causal), axis=1, mode="clip")
        if causal:
            bias = jnp.where(jnp.tri(length, dtype=bool), bias, -1e9)
        for _ in range(self.layers):
            x = Block(self.heads, self.width, self.inner)(x, bias, memory)
        return RMSNorm()(x)


class T5(nn.Module):
    """Encoder and decoder with teacher forcing; one embedding reads both texts and writes."""

    vocabulary: int
    layers: int
    hidden: int
    heads: int
    width: int
    inner: int

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        """Returns logits `[batch, target length, vocabulary]` of the next target token."""
        embed = nn.Embed(self.vocabulary, self.hidden, name="words")
        size = (self.layers, self.heads, self.width, self.inner)
        memory = Stack(*size, name="encoder")(embed(source))
        x = Stack(*size, name="decoder")(embed(target), memory)
        return embed.attend(x * self.hidden**-0.5)


def t5(
    *,
    batch: int = 8,
    source_length: int = 512,
    target_length: int = 114,
    layers: int = 6,
    hidden: int = 512,
    heads: int = 8,
    width: int = 64,
    inner: int = 2048,
    vocabulary: int = 32_128,
) -> Workload:
    """Returns the text-to-text model; the defaults are T5-small. Dropout is not applied.

    Args:
      batch: pairs of texts in a batch.
      source_length: tokens that the encoder reads; 512 in the published pre-training.
      target_length: tokens that the decoder reads; 114 are what the corruption of 512 leaves.
      layers: blocks of the encoder, and of the decoder.
      hidden: width of the residual stream.
      heads: attention heads.
      width: width of a head.
      inner: width of the feed-forward networks.
      vocabulary: number of word pieces.

    Raises:
      ValueError: if an argument is smaller than 1.
    """
    check_at_least(
        1,
        batch=batch,
        source_length=source_length,
        target_length=target_length,
        layers=layers,
        hidden=hidden,
        heads=heads,
        width=width,
        inner=inner,
        vocabulary=vocabulary,
    )
    return Workload(
        name=f"t5-{layers}",
        module=T5(vocabulary, layers, hidden, heads, width, inner),
        inputs=(tokens(batch, source_length), tokens(batch, target_length)),
        loss=cross_entropy,
        targets=tokens(batch, target_length),
    )
