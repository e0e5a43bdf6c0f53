"""The layers of T5, which its sparse successor shares."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.norms import RMSNorm

BUCKETS = 32
FURTHEST = 128


def position_buckets(length: int, *, causal: bool) -> jax.Array:
    """Returns the bucket of each key's position as a query sees it, int32 `[length, length]`.

    Half of the buckets hold one distance each, the others hold ranges that grow logarithmically
    to distance 128, and the last one all that is further (Raffel et al. 2019, section 2.1). A
    causal stack has the 32 buckets for the past, the future being masked; else 16 are for the
    past and 16 for the future.
    """
    offset = jnp.arange(length) - jnp.arange(length)[:, None]
    buckets = BUCKETS if causal else BUCKETS // 2
    distance = jnp.maximum(-offset, 0) if causal else jnp.abs(offset)
    near = buckets // 2
    growth = jnp.log(jnp.maximum(distance, near) / near) / math.log(FURTHEST / near)
    far = near + (growth * (buckets - near)).astype(jnp.int32)
    bucket = jnp.where(distance < near, distance, jnp.minimum(far, buckets - 1))
    return bucket if causal else bucket + buckets * (offset > 0)


def position_bias(table: jax.Array, length: int, *, causal: bool) -> jax.Array:
    """Returns what is added to the scores of attention, `[heads, length, length]`.

    `table` `[heads, 32]` has a bias for each bucket; what a causal stack must not see is masked.
    """
    bias = jnp.take(table, position_buckets(length, causal=causal), axis=1, mode="clip")
    return jnp.where(jnp.tri(length, dtype=bool), bias, -1e9) if causal else bias


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


def attend_in_turn(
    x: jax.Array, bias: jax.Array, memory: jax.Array | None, *, heads: int, width: int
) -> jax.Array:
    """Returns `x` `[batch, length, hidden]` after self-attention and attention to the memory.

    The latter only if there is a memory. Each comes after a norm; a residual goes around both.
    `bias` is that of self-attention. The weights are those of the module that calls.
    """
    normed = RMSNorm()(x)
    x = x + Attention(heads, width, name="self_attention")(normed, normed, bias)
    if memory is not None:
        x = x + Attention(heads, width, name="cross_attention")(RMSNorm()(x), memory)
    return x


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
        x = attend_in_turn(x, bias, memory, heads=self.heads, width=self.width)
        inner = nn.relu(nn.Dense(self.inner, use_bias=False)(RMSNorm()(x)))
        return x + nn.Dense(x.shape[-1], use_bias=False)(inner)
