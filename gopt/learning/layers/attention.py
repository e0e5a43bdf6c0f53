"""Segment attention over ops in program order: memory grows linearly with the ops."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from gopt.learning.layers.message_passing import MLP


class SegmentAttention(nn.Module):
    """A transformer layer in which an op attends to its segment and to the one before.

    In the segment before, it attends to this layer's input, without a gradient: the recurrence of
    Transformer-XL. Positions are not embedded, and attention is not causal: all ops of a segment
    attend to each other.

    Source: Dai et al., "Transformer-XL", arXiv:1901.02860, section 3.2.

    Attributes:
      heads: number of attention heads, a divisor of the width.
      segment: number of ops in a segment.
    """

    heads: int = 4
    segment: int = 128

    @nn.compact
    def __call__(self, ops: jax.Array, mask: jax.Array) -> jax.Array:
        """Return embeddings of ops, float32 `[N, width]`.

        Args:
          ops: embeddings, `[N, width]`.
          mask: bool `[N]`, real rows; others are not attended to.
        """
        count, width = ops.shape
        if width % self.heads:
            raise ValueError(f"heads is {self.heads}: expected a divisor of the width {width}")
        length = min(self.segment, count)
        more = -count % length
        blocks = jnp.pad(ops, ((0, more), (0, 0))).reshape(-1, length, width)
        real = jnp.pad(mask, (0, more)).reshape(-1, length)
        before = lax.stop_gradient(jnp.pad(blocks[:-1], ((1, 0), (0, 0), (0, 0))))
        real_before = jnp.pad(real[:-1], ((1, 0), (0, 0)))

        query, key_value = nn.Dense(width, use_bias=False), nn.Dense(2 * width, use_bias=False)
        shape = (self.heads, width // self.heads)
        queries = query(blocks).reshape(*blocks.shape[:2], *shape)
        keys, values = jnp.split(key_value(jnp.concatenate([before, blocks], 1)), 2, axis=-1)
        keys, values = (x.reshape(*x.shape[:2], *shape) for x in (keys, values))

        @jax.checkpoint  # keeps the scores of one segment in memory at a time, also backwards
        def attend(rows: tuple[jax.Array, ...]) -> jax.Array:
            query, key, value, seen = rows
            scores = jnp.einsum("qhw,khw->hqk", query, key) / shape[1] ** 0.5
            weights = nn.softmax(jnp.where(seen[None, None], scores, -1e30))
            return jnp.einsum("hqk,khw->qhw", weights, value)

        seen = jnp.concatenate([real_before, real], 1)
        mixed = lax.map(attend, (queries, keys, values, seen))
        mixed = nn.Dense(width)(mixed.reshape(-1, width)[:count])
        ops = nn.LayerNorm()(ops + mixed)
        return nn.LayerNorm()(ops + MLP(2 * width, width)(ops))


class Superposition(nn.Module):
    """Scale the inputs of a layer by an embedding of the whole graph: x' = m(h_G) ⊙ x.

    Before training it changes nothing. Source: Zhou et al., "Transferable graph optimizers for ML
    compilers", NeurIPS 2020, after Cheung et al., "Superposition of many models into one".
    """

    @nn.compact
    def __call__(self, ops: jax.Array, mask: jax.Array) -> jax.Array:
        """Return embeddings of ops, `[N, width]`; `mask` `[N]` marks real rows."""
        real = mask.astype(jnp.float32)[:, None]
        whole = jnp.sum(ops * real, 0, keepdims=True) / jnp.maximum(real.sum(), 1)
        scale = nn.Dense(ops.shape[1], kernel_init=nn.initializers.zeros)(whole)
        return ops * (1 + scale)
