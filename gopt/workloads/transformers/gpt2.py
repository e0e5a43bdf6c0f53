"""GPT-2: a causal transformer decoder that predicts the next token.

Radford et al., Language Models are Unsupervised Multitask Learners (2019), the smallest of the four
models. The paper gives 117 M parameters (table 2). The released checkpoint, with tied input and
output embeddings, has 124 439 808, and ours has exactly this number.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, language_model
from gopt.workloads.layers import check_sizes
from gopt.workloads.transformers.attention import (
    BlockSizes,
    LanguageModelSizes,
    attend,
    check_heads,
    check_length,
)

_norm = partial(nn.LayerNorm, epsilon=1e-5)


class Block(BlockSizes):
    """Causal self-attention and a feed-forward network, each after a norm."""

    @nn.compact
    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`; `bias` `[length, length]` masks later tokens."""
        hidden = x.shape[-1]
        # One product computes queries, keys and values.
        joint = nn.Dense(3 * hidden, name="query_key_value")(_norm()(x))
        mixed = attend(*jnp.split(joint, 3, axis=-1), heads=self.heads, bias=bias)
        x = x + nn.Dense(hidden, name="out")(mixed)
        inner = nn.gelu(nn.Dense(self.inner)(_norm()(x)), approximate=True)
        return x + nn.Dense(hidden)(inner)


class GPT2(LanguageModelSizes):
    """Embedded tokens and positions, blocks, and logits by the tied embedding."""

    @nn.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        """Return logits of each next token, `[batch, length, vocabulary]`."""
        length = token_ids.shape[1]
        embed = nn.Embed(self.vocabulary, self.hidden, name="words")
        table = self.param("positions", nn.initializers.normal(0.01), (self.positions, self.hidden))
        x = embed(token_ids) + table[:length]
        bias = jnp.where(jnp.tri(length, dtype=bool), 0.0, -1e9)
        for _ in range(self.layers):
            x = Block(self.heads, self.inner)(x, bias)
        return embed.attend(_norm()(x))


def gpt2(
    *,
    batch: int = 8,
    length: int = 1024,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    inner: int = 3072,
    positions: int = 1024,
    vocabulary: int = 50_257,
) -> Workload:
    """Return the language model; the defaults are GPT-2 small. Dropout is not applied.

    A batch has `batch` sequences of `length` tokens. The other arguments are the sizes of `GPT2`.

    Raises:
      ValueError: an argument is smaller than 1, `heads` does not divide `hidden`, or `length`
        exceeds `positions`.
    """
    check_heads(heads, hidden)
    module = GPT2(vocabulary, layers, hidden, heads, inner, positions)
    check_sizes(module, batch=batch, length=length)
    check_length(length, positions)
    return language_model(f"gpt2-{layers}", module, batch=batch, length=length)
