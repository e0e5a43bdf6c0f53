"""T5: a transformer encoder and decoder that turn one text into another.

Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer,
arXiv:1910.10683, version 1.0, the smallest size. The paper gives 60 M parameters (section 3.7.2).
The released checkpoint `t5-small` has 60 506 624, and ours has exactly this number. T5-base (222
903 552) is `t5(layers=12, hidden=768, heads=12, inner=3072)`.

Texts fill their lengths, as after packing, so padding is not masked.
"""

import flax.linen as nn
import jax

from gopt.workloads.base import Workload, text_to_text
from gopt.workloads.layers import check_sizes
from gopt.workloads.norms import RMSNorm
from gopt.workloads.transformers.text_to_text import Block, ModelSizes, StackSizes


class Stack(StackSizes):
    """Blocks that share one table of position biases, then a norm.

    Without `memory` it is the encoder. With the encoder's output as `memory` it is the causal
    decoder.
    """

    @nn.compact
    def __call__(self, x: jax.Array, memory: jax.Array | None = None) -> jax.Array:
        """Return `[batch, length, hidden]`."""
        bias = self.position_bias(x.shape[1], causal=memory is not None)
        for _ in range(self.layers):
            x = Block(self.heads, self.width, self.inner)(x, bias, memory)
        return RMSNorm()(x)


class T5(ModelSizes):
    """Encoder and decoder with teacher forcing; one embedding for both texts and the output."""

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

    A batch has `batch` pairs of texts, of `source_length` and `target_length` tokens: 512 in the
    published pre-training, and 114, which span corruption of 512 leaves. The other arguments are
    the attributes of `T5`.

    Raises:
      ValueError: an argument is smaller than 1.
    """
    module = T5(vocabulary, layers, hidden, heads, width, inner)
    check_sizes(module, batch=batch, source_length=source_length, target_length=target_length)
    return text_to_text(f"t5-{layers}", module, batch, source_length, target_length)
