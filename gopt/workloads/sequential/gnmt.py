"""GNMT: LSTM translation with a bidirectional first encoder layer and attention, unrolled.

Wu et al., Google's Neural Machine Translation System, arXiv:1609.08144, in the configuration of the
MLPerf v0.5 training benchmark (the PyTorch reference). It has 4 encoder and 4 decoder layers of
1024, and a vocabulary of 32 320 sub-words with an embedding shared by source and target. The output
layer is untied. Normalised additive attention is queried by the first decoder layer at the same
step and fed to all later ones. That model has 160 671 297 parameters. Ours has 36 864 (0.02 %)
fewer, because its LSTM cells add one bias where cuDNN adds two.

Sentences of a batch have one length, as after bucketing, so padding is not masked.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, text_to_text
from gopt.workloads.layers import check_at_least
from gopt.workloads.sequential.recurrent import LSTMCell, unroll, zero_carry


class Sizes(nn.Module):
    """Sizes of an encoder or decoder.

    Attributes:
      layers: number of layers.
      hidden: width of each layer.
    """

    layers: int
    hidden: int


class Encoder(Sizes):
    """One bidirectional LSTM layer, then forward ones; residual from the third layer on."""

    @nn.compact
    def __call__(self, steps: list[jax.Array]) -> list[jax.Array]:
        """Return the annotation `[batch, hidden]` of each source position."""
        start = zero_carry(steps[0].shape[0], self.hidden)
        _, ahead = unroll(LSTMCell(self.hidden, name="forward"), start, steps)
        _, behind = unroll(LSTMCell(self.hidden, name="backward"), start, steps[::-1])
        steps = [jnp.concatenate(both, axis=-1) for both in zip(ahead, behind[::-1], strict=True)]
        for layer in range(1, self.layers):
            _, outputs = unroll(LSTMCell(self.hidden), start, steps)
            steps = _residual(steps, outputs) if layer > 1 else outputs
        return steps


def _residual(steps: list[jax.Array], outputs: list[jax.Array]) -> list[jax.Array]:
    return [y + x for x, y in zip(steps, outputs, strict=True)]


class Attention(nn.Module):
    """Additive attention with a normalised score vector (Luong et al. 2017, tf-nmt).

    Attributes:
      hidden: width of queries, keys and values.
    """

    hidden: int

    @nn.compact
    def __call__(self, queries: list[jax.Array], memory: jax.Array) -> list[jax.Array]:
        """Return the context `[batch, hidden]` that each query attends to.

        Args:
          queries: queries, `[batch, hidden]` each; each has its own ops in the graph.
          memory: outputs of the encoder, `[batch, source, hidden]`.
        """
        vector = self.param("vector", nn.initializers.normal(0.1), (self.hidden,))
        scale = self.param("scale", nn.initializers.constant(self.hidden**-0.5), (1,))
        bias = self.param("bias", nn.initializers.zeros, (self.hidden,))
        direction = scale * vector / jnp.linalg.norm(vector)
        project = nn.Dense(self.hidden, use_bias=False, name="query")
        keys = nn.Dense(self.hidden, use_bias=False, name="key")(memory) + bias
        contexts = []
        for query in queries:
            scores = jnp.tanh(keys + project(query)[:, None]) @ direction
            contexts.append(jnp.einsum("bs,bsh->bh", nn.softmax(scores), memory))
        return contexts


class Decoder(Sizes):
    """LSTM layers; all but the first also read the context; residual from the third layer on."""

    @nn.compact
    def __call__(self, steps: list[jax.Array], memory: jax.Array) -> list[jax.Array]:
        """Return the last layer's output `[batch, hidden]` at each target position."""
        start = zero_carry(steps[0].shape[0], self.hidden)
        _, steps = unroll(LSTMCell(self.hidden), start, steps)
        contexts = Attention(self.hidden)(steps, memory)
        for layer in range(1, self.layers):
            inputs = [jnp.concatenate(both, axis=-1) for both in zip(steps, contexts, strict=True)]
            _, outputs = unroll(LSTMCell(self.hidden), start, inputs)
            steps = _residual(steps, outputs) if layer > 1 else outputs
        return steps


class GNMT(nn.Module):
    """Encoder and decoder with teacher forcing; both languages share the embedding.

    Attributes:
      vocabulary: number of sub-words.
      layers: number of layers of the encoder, and of the decoder.
      hidden: width of the embedding and of each layer.
    """

    vocabulary: int
    layers: int
    hidden: int

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        """Return logits `[batch, target length, vocabulary]` of the next target token."""
        embed = nn.Embed(self.vocabulary, self.hidden)
        source_steps, target_steps = (
            list(jnp.unstack(embed(sentence), axis=1)) for sentence in (source, target)
        )
        memory = jnp.stack(Encoder(self.layers, self.hidden)(source_steps), axis=1)
        outputs = Decoder(self.layers, self.hidden)(target_steps, memory)
        return nn.Dense(self.vocabulary)(jnp.stack(outputs, axis=1))


def gnmt(
    *,
    batch: int = 128,
    source_length: int = 50,
    target_length: int = 50,
    layers: int = 4,
    hidden: int = 1024,
    vocabulary: int = 32_320,
) -> Workload:
    """Return the translation model; the defaults are from the MLPerf v0.5 benchmark.

    A batch has `batch` pairs of sentences, unrolled for `source_length` and `target_length` steps.
    The other arguments are the attributes of `GNMT`.

    Raises:
      ValueError: a length is not positive, or there are fewer than 2 layers.
    """
    check_at_least(1, source_length=source_length, target_length=target_length)
    check_at_least(2, layers=layers)
    module, sizes = GNMT(vocabulary, layers, hidden), (batch, source_length, target_length)
    return text_to_text(f"gnmt-{layers}", module, *sizes)
