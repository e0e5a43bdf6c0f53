"""Transformer-XL: relative positional attention over a memory of earlier segments.

Dai et al., Transformer-XL, arXiv:1901.02860. The default is the 12-layer model of enwik8 (table 2:
41 M parameters; 41 055 436 as counted by the authors' program). The standard model of WikiText-103
(table 1: 151 M; 151 107 538) needs an adaptive softmax for its vocabulary (Grave et al. 2017). It
is `transformer_xl(batch=60, length=150, memory=150, layers=16, hidden=410, heads=10, inner=2100,
vocabulary=267_735, cutoffs=(20_000, 40_000, 200_000))`. Ours have the exact numbers.
"""

from itertools import pairwise

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Tree, Workload, tokens
from gopt.workloads.transformers.attention import check_heads
from gopt.workloads.transformers.relative_attention import relative_scores, sinusoids


class RelativeAttention(nn.Module):
    """Causal multi-head attention to a memory and a segment (section 3.3).

    Attributes:
      heads: number of heads.
    """

    heads: int

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        context: jax.Array,
        distances: jax.Array,
        content_bias: jax.Array,
        distance_bias: jax.Array,
    ) -> jax.Array:
        """Return `[batch, length, hidden]`.

        Args:
          x: segment, `[batch, length, hidden]`.
          context: memory followed by `x`, `[batch, memory + length, hidden]`.
          distances: encoded distances, `[memory + length, hidden]`.
          content_bias: see `relative_scores`, `[heads, hidden / heads]`.
          distance_bias: see `relative_scores`, `[heads, hidden / heads]`.
        """
        hidden = x.shape[-1]
        width = hidden // self.heads

        def split(name: str, value: jax.Array, parts: int = 1) -> list[jax.Array]:
            out = nn.Dense(parts * hidden, use_bias=False, name=name)(value)
            return [
                y.reshape(*y.shape[:-1], self.heads, width) for y in jnp.split(out, parts, axis=-1)
            ]

        (query,), (key, value) = split("query", x), split("key_value", context, 2)
        (distance,) = split("distance", distances)
        scores = relative_scores(query, key, distance, content_bias, distance_bias)
        seen = jnp.tri(x.shape[1], context.shape[1], context.shape[1] - x.shape[1], dtype=bool)
        weights = nn.softmax(jnp.where(seen, scores, -1e30))
        mixed = jnp.einsum("bhqk,bkhw->bqhw", weights, value).reshape(x.shape)
        return nn.Dense(hidden, use_bias=False, name="out")(mixed)


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities by clusters of falling frequency; without cut-offs a plain softmax.

    Attributes:
      cutoffs: first token of each cluster after the first.
    """

    cutoffs: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array, table: jax.Array) -> jax.Array:
        """Return log-probabilities, `[..., vocabulary]`.

        All clusters are computed for all positions, so that shapes do not depend on the targets.

        Args:
          x: hidden states, `[..., hidden]`.
          table: tied embedding, `[vocabulary, hidden]`.
        """
        vocabulary, hidden = table.shape
        bias = self.param("bias", nn.initializers.zeros, (vocabulary,))

        def logits(rows: jax.Array, offset: jax.Array) -> jax.Array:
            return jnp.einsum("...h,vh->...v", x, rows) + offset

        if not self.cutoffs:
            return nn.log_softmax(logits(table, bias))
        clusters, shortlist = len(self.cutoffs), self.cutoffs[0]
        gate = self.param("gate", nn.initializers.normal(0.02), (clusters, hidden))
        gate_bias = self.param("gate_bias", nn.initializers.zeros, (clusters,))
        head = nn.log_softmax(
            logits(
                jnp.concatenate([table[:shortlist], gate]),
                jnp.concatenate([bias[:shortlist], gate_bias]),
            )
        )
        parts = [head[..., :shortlist]]
        for cluster, (start, stop) in enumerate(pairwise((*self.cutoffs, vocabulary))):
            within = nn.log_softmax(logits(table[start:stop], bias[start:stop]))
            parts.append(head[..., shortlist + cluster, None] + within)
        return jnp.concatenate(parts, axis=-1)


class TransformerXL(nn.Module):
    """Tied embedding, post-norm blocks that share the attention biases, adaptive softmax.

    Attributes:
      vocabulary: number of tokens.
      cutoffs: see `AdaptiveSoftmax`.
      layers: number of transformer blocks.
      hidden: width of the residual stream.
      heads: number of attention heads.
      inner: width of the feed-forward networks.
    """

    vocabulary: int
    cutoffs: tuple[int, ...]
    layers: int
    hidden: int
    heads: int
    inner: int

    @nn.compact
    def __call__(
        self, token_ids: jax.Array, *memories: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """Return log-probabilities `[batch, length, vocabulary]` and the next memories.

        Args:
          token_ids: tokens of the segment, `[batch, length]`.
          *memories: inputs of each block at earlier positions, `[batch, memory, hidden]` each.
        """
        shape = self.heads, self.hidden // self.heads
        content_bias = self.param("content_bias", nn.initializers.normal(0.02), shape)
        distance_bias = self.param("distance_bias", nn.initializers.normal(0.02), shape)
        table = self.param(
            "embedding", nn.initializers.normal(0.02), (self.vocabulary, self.hidden)
        )
        x = table[token_ids] * self.hidden**0.5
        distances = sinusoids(memories[0].shape[1] + x.shape[1] - 1, 0, self.hidden)
        kept = []
        for memory in memories:
            context = jnp.concatenate([memory, x], axis=1)
            kept.append(context[:, x.shape[1] :])
            attention = RelativeAttention(self.heads)
            x = nn.LayerNorm(epsilon=1e-5)(
                x + attention(x, context, distances, content_bias, distance_bias)
            )
            inner = nn.relu(nn.Dense(self.inner)(x))
            x = nn.LayerNorm(epsilon=1e-5)(x + nn.Dense(self.hidden)(inner))
        return AdaptiveSoftmax(self.cutoffs)(x, table), tuple(kept)


def _loss(outputs: Tree, targets: Tree) -> jax.Array:
    log_probabilities, _ = outputs
    picked = jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1, mode="clip")
    return -picked.mean()


def transformer_xl(
    *,
    batch: int = 22,
    length: int = 512,
    memory: int = 512,
    layers: int = 12,
    hidden: int = 512,
    heads: int = 8,
    inner: int = 2048,
    vocabulary: int = 204,
    cutoffs: tuple[int, ...] = (),
) -> Workload:
    """Return the language model; the defaults are the 12-layer model of enwik8.

    A batch has `batch` segments of `length` tokens, and a memory of `memory` earlier positions for
    each. The other arguments are the attributes of `TransformerXL`.

    Raises:
      ValueError: `heads` or 2 does not divide `hidden`, `layers` is not positive, or the cut-offs
        do not rise between 0 and `vocabulary`.
    """
    check_heads(heads, hidden)
    if hidden % 2:
        raise ValueError(f"hidden: expected an even number, got {hidden}")
    if not layers >= 1:
        raise ValueError(f"layers: expected at least 1, got {layers}")
    bounds = (0, *cutoffs, vocabulary)
    for index, cutoff in enumerate(cutoffs):
        if not bounds[index] < cutoff < vocabulary:
            raise ValueError(
                f"cutoffs[{index}]: expected between {bounds[index]} and {vocabulary}, got {cutoff}"
            )
    kept = jax.ShapeDtypeStruct((batch, memory, hidden), jnp.float32)
    return Workload(
        name=f"transformer-xl-{layers}",
        module=TransformerXL(vocabulary, cutoffs, layers, hidden, heads, inner),
        inputs=(tokens(batch, length), *[kept] * layers),
        loss=_loss,
        targets=tokens(batch, length),
    )
