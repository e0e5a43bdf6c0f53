"""WaveNet: stacks of dilated causal convolutions with gated units and skip connections.

van den Oord et al., WaveNet, arXiv:1609.03499, as a vocoder: an autoregressive model of the
waveform given a mel spectrogram, with a Gaussian for the next sample (Ping et al., ClariNet,
arXiv:1807.07281). The default is the WaveNet that DiffWave (Kong et al., arXiv:2009.09761, table 1)
and WaveFlow (Ping et al., arXiv:1912.01219) compare with: 30 layers of 128 channels, 4.57 M
parameters. With filters of 3 taps, inferred from that number, ours has 4 570 308.

GO (arXiv:2010.12438) places a WaveNet of 2 stacks and 18 layers and one of 4 stacks and 36 layers.
We read both numbers of layers as totals over all stacks, 9 per stack: `wavenet(stacks=2,
layers=18)`.
"""

import math
from functools import reduce
from operator import add

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Tree, Workload


class Upsample(nn.Module):
    """Transposed convolutions that stretch a spectrogram to the rate of the waveform.

    Attributes:
      factors: factor of each convolution; their product is the hop size.
    """

    factors: tuple[int, ...]

    @nn.compact
    def __call__(self, mel: jax.Array) -> jax.Array:
        """Return `[batch, frames · hop, bands]` from `[batch, frames, bands]`."""
        x = mel[..., None]
        for factor in self.factors:
            x = nn.ConvTranspose(1, kernel_size=(2 * factor, 3), strides=(factor, 1))(x)
            x = nn.leaky_relu(x, 0.4)
        return x[..., 0]


class Layer(nn.Module):
    """One gated, dilated, causal convolution with its residual and skip outputs.

    Attributes:
      channels: number of channels.
      taps: number of samples that the convolution reads.
      dilation: distance between these samples.
    """

    channels: int
    taps: int
    dilation: int

    @nn.compact
    def __call__(self, x: jax.Array, condition: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the gated units and their part of the skip sum, `[batch, length, channels]`."""
        convolution = nn.Conv(
            2 * self.channels, (self.taps,), kernel_dilation=self.dilation, padding="CAUSAL"
        )
        both = convolution(x) + nn.Dense(2 * self.channels, name="condition")(condition)
        signal, gate = jnp.split(both, 2, axis=-1)
        gated = jnp.tanh(signal) * nn.sigmoid(gate)
        return gated, nn.Dense(self.channels, name="skip")(gated)


class WaveNet(nn.Module):
    """Layers with dilations 1, 2, 4, ... in each stack, and a head that reads the skip sum.

    Attributes:
      stacks: number of stacks.
      layers: number of layers in all stacks.
      channels: width of the residual, gated and skip paths.
      taps: number of samples that a convolution reads.
      upsampling: factors of the spectrogram's upsampling.
    """

    stacks: int
    layers: int
    channels: int
    taps: int
    upsampling: tuple[int, ...]

    @nn.compact
    def __call__(self, audio: jax.Array, mel: jax.Array) -> jax.Array:
        """Return mean and log scale of the next sample, `[batch, length, 2]`.

        Args:
          audio: waveform, `[batch, length]`.
          mel: mel spectrogram, `[batch, length / hop, bands]`.
        """
        condition = Upsample(self.upsampling)(mel)
        x = nn.Dense(self.channels, name="entry")(audio[..., None])
        skips = []
        for index in range(self.layers):
            dilation = 2 ** (index % (self.layers // self.stacks))
            gated, skip = Layer(self.channels, self.taps, dilation)(x, condition)
            skips.append(skip)
            if index < self.layers - 1:  # the last residual would be unread
                x = x + nn.Dense(self.channels, name=f"residual_{index}")(gated)
        x = nn.relu(nn.Dense(self.channels, name="head")(nn.relu(reduce(add, skips))))
        return nn.Dense(2, name="distribution")(x)


def _loss(outputs: Tree, targets: Tree) -> jax.Array:
    mean, log_scale = outputs[..., 0], jnp.maximum(outputs[..., 1], -7.0)
    error = (targets - mean) * jnp.exp(-log_scale)
    return (0.5 * error**2 + log_scale).mean() + 0.5 * math.log(2 * math.pi)


def wavenet(
    *,
    batch: int = 8,
    length: int = 16_384,
    stacks: int = 3,
    layers: int = 30,
    channels: int = 128,
    taps: int = 3,
    bands: int = 80,
    upsampling: tuple[int, ...] = (16, 16),
) -> Workload:
    """Return the vocoder; the defaults are the 30-layer WaveNet of 4.57 M parameters.

    Args:
      batch: number of waveforms in a batch.
      length: number of samples of a waveform.
      stacks: number of times that the dilations start again at 1.
      layers: number of dilated convolutions in all stacks.
      channels: width of the residual, gated and skip paths.
      taps: number of samples that a convolution reads.
      bands: number of mel bands of the spectrogram.
      upsampling: factors of its upsampling; their product is the hop size.

    Raises:
      ValueError: `stacks` does not divide `layers`, or the hop size does not divide `length`.
    """
    hop = math.prod(upsampling)
    if layers < 1 or layers % stacks:
        raise ValueError(f"layers: expected a multiple of stacks = {stacks}, got {layers}")
    if length < 1 or length % hop:
        raise ValueError(f"length: expected a multiple of the hop size {hop}, got {length}")
    audio = jax.ShapeDtypeStruct((batch, length), jnp.float32)
    mel = jax.ShapeDtypeStruct((batch, length // hop, bands), jnp.float32)
    return Workload(
        name=f"wavenet-{stacks}x{layers}",
        module=WaveNet(stacks, layers, channels, taps, upsampling),
        inputs=(audio, mel),
        loss=_loss,
        targets=audio,
    )
