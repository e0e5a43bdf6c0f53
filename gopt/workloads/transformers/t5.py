"""T5: a transformer encoder and decoder that turn one text into another.

Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer,
arXiv:1910.10683, version 1.0, the smallest size. The paper gives 60 M parameters (section 3.7.2).
The released checkpoint `t5-small` has 60 506 624, and ours has exactly this number. T5-base (222
903 552) is `t5(layers=12, hidden=768, heads=12, inner=3072)`.

Texts fill their lengths, as after packing, so padding is not masked.
"""

import flax.linen as nn
import jax

from gopt.workloads.base import Workload, cross_entropy, tokens
from gopt.workloads.layers import check_at_least
from gopt.workloads.norms import RMSNorm
from gopt.workloads.transformers.text_to_text import BUCKETS, Block, position_bias


class Stack(nn.Module):
    """Blocks that share one table of position biases, then a norm.

    Without `memory` it is the encoder. With the encoder's output as `memory` it is the causal
    decoder.

    Attributes:
      layers: number of blocks.
      heads: number of attention heads.
      width: width of a head.
      inner: width of the feed-forward networks.
    """

    layers: int
    heads: int
    width: int
    inner: int

    @nn.compact
    def __call__(self, x: jax.Array, memory: jax.Array | None = None) -> jax.Array:
        """Return `[batch, length, hidden]`."""
        table = self.param("positions", nn.initializers.normal(0.05), (self.heads, BUCKETS))
        bias = position_bias(table, x.shape[1], causal=memory is not None)
        for _ in range(self.layers):
            x = Block(self.heads, self.width, self.inner)(x, bias, memory)
        return RMSNorm()(x)


class T5(nn.Module):
    """Encoder and decoder with teacher forcing; one embedding for both texts and the output.

    Attributes:
      vocabulary: number of word pieces.
      layers: number of blocks of the encoder, and of the decoder.
      hidden: width of the residual stream.
      heads: number of attention heads.
      width: width of a head.
      inner: width of the feed-forward networks.
    """

    vocabulary: int
    layers: int
    hidden: int
    heads: int
    width: int
    inner: int

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        """Return logits `[batch, target length, vocabulary]` of the next target token."""
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
    """Return the text-to-text model; the defaults are T5-small. Dropout is not applied.

    Args:
      batch: number of text pairs in a batch.
      source_length: number of encoder tokens; 512 in the published pre-training.
      target_length: number of decoder tokens; span corruption of 512 leaves 114.
      layers: number of blocks of the encoder, and of the decoder.
      hidden: width of the residual stream.
      heads: number of attention heads.
      width: width of a head.
      inner: width of the feed-forward networks.
      vocabulary: number of word pieces.

    Raises:
      ValueError: an argument is smaller than 1.
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
