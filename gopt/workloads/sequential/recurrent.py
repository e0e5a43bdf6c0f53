"""The cells of the recurrent workloads, and their unrolling over time."""

from collections.abc import Sequence
from typing import TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

Carry = tuple[jax.Array, jax.Array]
State = TypeVar("State")


class LSTMCell(nn.Module):
    """LSTM without peepholes; one product makes all four gates (Zaremba et al. 2014, eq. 4-6).

    Has 4 · hidden · (features + hidden + 1) parameters.
    """

    hidden: int

    @nn.compact
    def __call__(self, carry: Carry, x: jax.Array) -> tuple[Carry, jax.Array]:
        """Returns the next (cell, hidden) state, each `[batch, hidden]`, and the output."""
        cell, hidden = carry
        gates = nn.Dense(4 * self.hidden)(jnp.concatenate([x, hidden], axis=-1))
        take, keep, candidate, give = jnp.split(gates, 4, axis=-1)
        cell = nn.sigmoid(keep) * cell + nn.sigmoid(take) * jnp.tanh(candidate)
        hidden = nn.sigmoid(give) * jnp.tanh(cell)
        return (cell, hidden), hidden


class GRUCell(nn.Module):
    """GRU that resets its state before the product with it (Cho et al. 2014, eq. 5-8).

    Has 3 · hidden · (features + hidden + 1) parameters.
    """

    hidden: int

    @nn.compact
    def __call__(self, state: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the next state `[..., hidden]`, twice: it is the output too."""
        gates = nn.Dense(2 * self.hidden)(jnp.concatenate([x, state], axis=-1))
        reset, keep = jnp.split(nn.sigmoid(gates), 2, axis=-1)
        candidate = nn.Dense(self.hidden)(jnp.concatenate([x, reset * state], axis=-1))
        state = keep * state + (1 - keep) * jnp.tanh(candidate)
        return state, state


def zero_carry(batch: int, hidden: int) -> Carry:
    """Returns the (cell, hidden) state before the first step, each `[batch, hidden]`."""
    zeros = jnp.zeros((batch, hidden), jnp.float32)
    return zeros, zeros


def unroll(
    cell: nn.Module, carry: State, steps: Sequence[jax.Array]
) -> tuple[State, list[jax.Array]]:
    """Returns the last state and the output of each step.

    The loop runs while tracing, so the graph gets one copy of the cell for each step: a scan would
    hide the steps from placement and scheduling.
    """
    outputs = []
    for x in steps:
        carry, output = cell(carry, x)
        outputs.append(output)
    return carry, outputs
