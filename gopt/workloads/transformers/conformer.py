"""Conformer: speech recognition by blocks of attention and convolution.

Gulati et al., Conformer: Convolution-augmented Transformer for Speech Recognition,
arXiv:2005.08100, size M. The paper's 10.3, 30.7 and 118.8 M parameters (table 1) are of
transducers, whose decoders it describes by their LSTM width only. Ours end in a linear layer and
connectionist temporal classification (Graves et al. 2006), like the Conformer-CTC of Kim et al.,
Squeezeformer, arXiv:2206.00888, which has 8.7, 27.4 and 121.5 M (table 3). Ours have 8 731 857 in
S, `conformer(hidden=144)`, 27 364 737 in M, the default, and 121 510 529 in L,
`conformer(layers=18, hidden=512, heads=8)`.

Utterances fill their lengths, so padding is not masked.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from gopt.workloads.base import Tree, Workload, tokens
from gopt.workloads.layers import check_sizes
from gopt.workloads.transformers.attention import check_heads
from gopt.workloads.transformers.relative_attention import relative_scores, sinusoids

# Mel filter bank channels of a frame.
CHANNELS = 80


_norm = partial(nn.LayerNorm, epsilon=1e-5)


class Subsampling(nn.Module):
    """Two strided convolutions of time and frequency: one vector per four frames.

    Attributes:
      hidden: width of the vectors.
    """

    hidden: int

    @nn.compact
    def __call__(self, frames: jax.Array) -> jax.Array:
        """Return `[batch, length / 4, hidden]` of `[batch, length, channels]`."""
        x = frames[..., None]
        for _ in range(2):
            x = nn.relu(nn.Conv(self.hidden, (3, 3), strides=2)(x))
        return nn.Dense(self.hidden)(x.reshape(*x.shape[:2], -1))


class FeedForward(nn.Module):
    """Half of a feed-forward network, four times as wide inside, on a normed input (figure 4)."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`."""
        hidden = x.shape[-1]
        inner = nn.swish(nn.Dense(4 * hidden)(_norm()(x)))
        return 0.5 * nn.Dense(hidden)(inner)


class Attention(nn.Module):
    """Self-attention of the normed sequence by content and relative position (figure 3).

    Attributes:
      heads: number of heads.
    """

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, distances: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`.

        Args:
          x: sequence, `[batch, length, hidden]`.
          distances: encoded distances, `[2 length - 1, hidden]`.
        """
        shape = self.heads, x.shape[-1] // self.heads
        x = _norm()(x)
        query, key, value = (
            nn.DenseGeneral(shape, name=name)(x) for name in ("query", "key", "value")
        )
        distance = nn.DenseGeneral(shape, use_bias=False, name="distance")(distances)
        content_bias = self.param("content_bias", nn.initializers.zeros, shape)
        distance_bias = self.param("distance_bias", nn.initializers.zeros, shape)
        scores = relative_scores(query, key, distance, content_bias, distance_bias)
        mixed = jnp.einsum("bhqk,bkhw->bqhw", nn.softmax(scores), value)
        return nn.DenseGeneral(x.shape[-1], axis=(-2, -1), name="out")(mixed)


class Convolution(nn.Module):
    """Gated units, a depthwise convolution over time, and a projection (figure 2).

    Attributes:
      kernel: number of taps of the convolution.
    """

    kernel: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`."""
        hidden = x.shape[-1]
        x = nn.glu(nn.Dense(2 * hidden)(_norm()(x)))
        x = nn.Conv(hidden, (self.kernel,), feature_group_count=hidden)(x)
        x = nn.swish(nn.BatchNorm(use_running_average=True, epsilon=1e-5)(x))
        return nn.Dense(hidden)(x)


class Block(nn.Module):
    """Attention and convolution between two half-step feed-forward networks (section 2.4).

    Attributes:
      heads: number of attention heads.
      kernel: number of taps of the convolution.
    """

    heads: int
    kernel: int

    @nn.compact
    def __call__(self, x: jax.Array, distances: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`."""
        x = x + FeedForward()(x)
        x = x + Attention(self.heads)(x, distances)
        x = x + Convolution(self.kernel)(x)
        return _norm()(x + FeedForward()(x))


class Conformer(nn.Module):
    """Subsampling, blocks that share the encodings of distances, and a linear layer.

    Attributes:
      vocabulary: number of word pieces, without the blank.
      layers: number of blocks.
      hidden: width of the residual stream.
      heads: number of attention heads.
      kernel: number of taps of the convolution.
    """

    vocabulary: int
    layers: int
    hidden: int
    heads: int
    kernel: int

    @nn.compact
    def __call__(self, frames: jax.Array) -> jax.Array:
        """Return logits `[batch, length / 4, 1 + vocabulary]`, the blank first."""
        x = Subsampling(self.hidden)(frames)
        distances = sinusoids(x.shape[1] - 1, 1 - x.shape[1], self.hidden)
        for _ in range(self.layers):
            x = Block(self.heads, self.kernel)(x, distances)
        return nn.Dense(1 + self.vocabulary, name="pieces")(x)


def _loss(logits: Tree, text: Tree) -> jax.Array:
    """Return the mean CTC loss; word pieces are 1 to `vocabulary`, 0 is the blank."""
    no_padding = jnp.zeros(logits.shape[:2]), jnp.zeros(text.shape)
    return optax.ctc_loss(logits, no_padding[0], text, no_padding[1]).mean()


def conformer(
    *,
    batch: int = 8,
    length: int = 1600,
    text_length: int = 80,
    layers: int = 16,
    hidden: int = 256,
    heads: int = 4,
    kernel: int = 32,
    vocabulary: int = 128,
) -> Workload:
    """Return the speech recogniser; the defaults are Conformer-CTC of size M.

    A batch has `batch` utterances of `length` frames, 100 per second and a multiple of 4. Texts
    have `text_length` word pieces. The other arguments are the attributes of `Conformer`.

    Raises:
      ValueError: an argument is smaller than 1, `heads` or 2 does not divide `hidden`, 4 does not
        divide `length`, or `text_length` exceeds `length / 4`.
    """
    module = Conformer(vocabulary, layers, hidden, heads, kernel)
    check_heads(heads, hidden)
    check_sizes(module, batch=batch, length=length, text_length=text_length)
    if hidden % 2:
        raise ValueError(f"hidden: expected an even number, got {hidden}")
    if length % 4:
        raise ValueError(f"length: expected a multiple of 4, got {length}")
    if text_length > length // 4:
        raise ValueError(
            f"text_length: expected at most length / 4 = {length // 4}, got {text_length}"
        )
    return Workload(
        name=f"conformer-{layers}",
        module=module,
        inputs=(jax.ShapeDtypeStruct((batch, length, CHANNELS), jnp.float32),),
        loss=_loss,
        targets=tokens(batch, text_length),
    )
