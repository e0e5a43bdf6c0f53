"""Mamba: a language model of state spaces with input-dependent dynamics.

Gu and Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces, arXiv:2312.00752, the
smallest released model. The checkpoint `state-spaces/mamba-130m` has 129 135 360 parameters, and
ours has exactly this number. `mamba(layers=48, hidden=1024)` has the 371 516 416 of `mamba-370m`.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Shaped

from gopt.workloads.base import Workload, language_model
from gopt.workloads.layers import check_multiple, check_sizes
from gopt.workloads.norms import RMSNorm

STATE = 16
TAPS = 4


def selective_scan(
    x: Shaped[jax.Array, "batch length inner"],
    step: Shaped[jax.Array, "batch length inner"],
    rates: Shaped[jax.Array, "inner state"],
    enter: Shaped[jax.Array, "batch length state"],
    leave: Shaped[jax.Array, "batch length state"],
    *,
    chunk: int,
) -> jax.Array:
    """Return the outputs `[batch, length, inner]` of the state spaces of all channels.

    The state of a channel is h = exp(step · rates) h + step · enter · x; its output is leave · h.
    One scan runs over chunks, with an associative scan inside each. The gradient recomputes the
    states of a chunk, so only the states between chunks are stored (section 3.3.2).

    Args:
      x: inputs, `[batch, length, inner]`.
      step: time steps, `[batch, length, inner]`.
      rates: growth rates, negative, `[inner, state]`.
      enter: input weights of the state, `[batch, length, state]`.
      leave: output weights of the state, `[batch, length, state]`.
      chunk: number of states stored at the same time, a divisor of `length`.

    Source: equations 2 and 4, with the simpler discretisation of the input in the authors' program.
    """
    batch, length, _ = x.shape

    def split(sequence: jax.Array) -> jax.Array:
        return jnp.moveaxis(sequence.reshape(batch, length // chunk, chunk, -1), 1, 0)

    def compose(
        first: tuple[jax.Array, jax.Array], second: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    @jax.checkpoint
    def advance(state: jax.Array, chunks: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        x, step, enter, leave = chunks
        decay = jnp.exp(step[..., None] * rates)
        drive = (step * x)[..., None] * enter[:, :, None]
        decays, states = jax.lax.associative_scan(compose, (decay, drive), axis=1)
        states = states + decays * state[:, None]
        return states[:, -1], jnp.einsum("bcds,bcs->bcd", states, leave)

    start = jnp.zeros((batch, *rates.shape), x.dtype)
    _, outputs = jax.lax.scan(advance, start, tuple(map(split, (x, step, enter, leave))))
    return jnp.moveaxis(outputs, 0, 1).reshape(x.shape)


class Mixer(nn.Module):
    """A causal convolution and a selective state space per channel, with a gate (figure 3).

    Attributes:
      inner: number of channels.
      chunk: number of states stored at the same time.
    """

    inner: int
    chunk: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[batch, length, hidden]`."""
        hidden = x.shape[-1]
        rank = math.ceil(hidden / 16)
        both = nn.Dense(2 * self.inner, use_bias=False, name="expand")(x)
        x, gate = jnp.split(both, 2, axis=-1)
        convolution = nn.Conv(self.inner, (TAPS,), padding="CAUSAL", feature_group_count=self.inner)
        x = nn.swish(convolution(x))

        selection = nn.Dense(rank + 2 * STATE, use_bias=False, name="select")(x)
        step, enter, leave = jnp.split(selection, (rank, rank + STATE), axis=-1)
        init = nn.initializers.constant(math.log(math.expm1(0.01)))  # initial steps are 0.01
        step = nn.softplus(nn.Dense(self.inner, bias_init=init, name="step")(step))
        log_rates = self.param("log_rates", _log_rates, (self.inner, STATE))
        skip = self.param("skip", nn.initializers.ones, (self.inner,))
        y = selective_scan(x, step, -jnp.exp(log_rates), enter, leave, chunk=self.chunk)
        return nn.Dense(hidden, use_bias=False, name="out")((y + skip * x) * nn.swish(gate))


def _log_rates(_: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """Return the logarithms of 1, ..., state for each channel (section 3.6)."""
    return jnp.broadcast_to(jnp.log(jnp.arange(1, shape[1] + 1, dtype=jnp.float32)), shape)


class Mamba(nn.Module):
    """A tied embedding, pre-norm residual mixers, and a norm.

    Attributes:
      vocabulary: number of tokens.
      layers: number of mixers.
      hidden: width of the residual stream.
      chunk: number of states stored at the same time.
    """

    vocabulary: int
    layers: int
    hidden: int
    chunk: int

    @nn.compact
    def __call__(self, token_ids: jax.Array) -> jax.Array:
        """Return logits of the next token, `[batch, length, vocabulary]`."""
        embed = nn.Embed(self.vocabulary, self.hidden, name="words")
        x = embed(token_ids)
        for _ in range(self.layers):
            x = x + Mixer(2 * self.hidden, self.chunk)(RMSNorm(1e-5)(x))
        return embed.attend(RMSNorm(1e-5)(x))


def mamba(
    *,
    batch: int = 8,
    length: int = 2048,
    chunk: int = 64,
    layers: int = 24,
    hidden: int = 768,
    vocabulary: int = 50_280,
) -> Workload:
    """Return the language model; the defaults are Mamba-130M.

    A batch has `batch` sequences of `length` tokens, 2048 in the published training; `length` is a
    multiple of `chunk`. The other arguments are the attributes of `Mamba`.

    Raises:
      ValueError: an argument is smaller than 1, or `chunk` does not divide `length`.
    """
    module = Mamba(vocabulary, layers, hidden, chunk)
    check_sizes(module, batch=batch, length=length)
    check_multiple(length=length, chunk=chunk)
    return language_model(f"mamba-{layers}", module, batch=batch, length=length)
