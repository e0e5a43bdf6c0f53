"""BERT: a bidirectional transformer encoder with its two pre-training heads.

Devlin et al., BERT, arXiv:1810.04805, BERT-base for the uncased English vocabulary. The paper gives
110 M parameters. The released checkpoint has 110 106 428 with both heads, of which 109 482 240 are
in the encoder and its pooler. Ours, with both heads, has exactly 110 106 428.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Tree, Workload, cross_entropy, tokens
from gopt.workloads.transformers.attention import (
    BlockSizes,
    LanguageModelSizes,
    SelfAttention,
    check_heads,
    check_length,
)

_norm = partial(nn.LayerNorm, epsilon=1e-12)


class Block(BlockSizes):
    """Self-attention and a feed-forward network, each followed by a residual and a norm."""

    @nn.compact
    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`; `bias` `[batch, 1, 1, length]` masks padding."""
        x = _norm()(x + SelfAttention(self.heads)(x, bias))
        inner = nn.gelu(nn.Dense(self.inner)(x), approximate=False)
        return _norm()(x + nn.Dense(x.shape[-1])(inner))


class Encoder(BlockSizes):
    """The transformer between the embedded tokens and the heads.

    Attributes:
      layers: number of blocks.
      positions: number of rows of the position embedding.
    """

    layers: int
    positions: int

    @nn.compact
    def __call__(self, words: jax.Array, segments: jax.Array, mask: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`; `mask` is 1 for tokens and 0 for padding."""
        _, length, hidden = words.shape
        table = self.param("positions", nn.initializers.normal(0.02), (self.positions, hidden))
        x = _norm()(words + table[:length] + nn.Embed(2, hidden, name="segments")(segments))
        bias = (1 - mask[:, None, None, :]) * -1e9
        for _ in range(self.layers):
            x = Block(self.heads, self.inner)(x, bias)
        return x


class BERT(LanguageModelSizes):
    """Encoder, masked-word head tied to the word embedding, and next-sentence head."""

    @nn.compact
    def __call__(
        self, token_ids: jax.Array, segments: jax.Array, mask: jax.Array, masked: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return logits of the masked words, and of the second sentence being the next.

        Args:
          token_ids: tokens, `[batch, length]`.
          segments: sentence of each token, 0 or 1, `[batch, length]`.
          mask: 1 for tokens and 0 for padding, `[batch, length]`.
          masked: positions of the masked words, `[batch, predictions]`.

        Returns:
          Logits `[batch, predictions, vocabulary]` and `[batch, 2]`.
        """
        embed = nn.Embed(self.vocabulary, self.hidden, name="words")
        encoder = Encoder(self.heads, self.inner, self.layers, self.positions)
        x = encoder(embed(token_ids), segments, mask)

        pooled = jnp.tanh(nn.Dense(self.hidden, name="pooler")(x[:, 0]))
        is_next = nn.Dense(2, name="next_sentence")(pooled)

        picked = jnp.take_along_axis(x, masked[..., None], axis=1, mode="clip")
        picked = nn.gelu(nn.Dense(self.hidden, name="transform")(picked), approximate=False)
        bias = self.param("word_bias", nn.initializers.zeros, (self.vocabulary,))
        return embed.attend(_norm()(picked)) + bias, is_next


def _loss(outputs: Tree, targets: Tree) -> jax.Array:
    words, is_next = outputs
    word_targets, next_targets = targets
    return cross_entropy(words, word_targets) + cross_entropy(is_next, next_targets)


def bert(
    *,
    batch: int = 32,
    length: int = 128,
    predictions: int = 20,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    inner: int = 3072,
    positions: int = 512,
    vocabulary: int = 30_522,
) -> Workload:
    """Return BERT with its pre-training heads; the defaults are BERT-base, uncased.

    A batch has `batch` sequences of `length` tokens, 128 in 90 % of the published pre-training.
    Each has `predictions` masked words. The other arguments are the sizes of `BERT`.

    Raises:
      ValueError: `heads` does not divide `hidden`, or `length` exceeds `positions`.
    """
    check_heads(heads, hidden)
    check_length(length, positions)
    sequence = tokens(batch, length)
    return Workload(
        name=f"bert-{layers}",
        module=BERT(vocabulary, layers, hidden, heads, inner, positions),
        inputs=(sequence, sequence, sequence, tokens(batch, predictions)),
        loss=_loss,
        targets=(tokens(batch, predictions), jax.ShapeDtypeStruct((batch,), jnp.int32)),
    )
