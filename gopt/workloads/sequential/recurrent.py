"""Cells of the recurrent workloads, and their unrolling over time."""

from collections.abc import Sequence
from typing import TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

Carry = tuple[jax.Array, jax.Array]
State = TypeVar("State")


class LSTMCell(nn.Module):
    """LSTM without peepholes; one product computes all gates (Zaremba et al. 2014, eq. 4-6).

    It has 4 · hidden · (features + hidden + 1) parameters.

    Attributes:
      hidden: width of the state.
    """

    hidden: int

    @nn.compact
    def __call__(self, carry: Carry, x: jax.Array) -> tuple[Carry, jax.Array]:
        """Return the next (cell, hidden) state, each `[batch, hidden]`, and the output."""
        cell, hidden = carry
        gates = nn.Dense(4 * self.hidden)(jnp.concatenate([x, hidden], axis=-1))
        take, keep, candidate, give = jnp.split(gates, 4, axis=-1)
        cell = nn.sigmoid(keep) * cell + nn.sigmoid(take) * jnp.tanh(candidate)
        hidden = nn.sigmoid(give) * jnp.tanh(cell)
        return (cell, hidden), hidden


class GRUCell(nn.Module):
    """GRU that resets its state before the product with it (Cho et al. 2014, eq. 5-8).

    It has 3 · hidden · (features + hidden + 1) parameters.

    Attributes:
      hidden: width of the state.
    """

    hidden: int

    @nn.compact
    def __call__(self, state: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the next state `[..., hidden]` twice, as it is also the output."""
        gates = nn.Dense(2 * self.hidden)(jnp.concatenate([x, state], axis=-1))
        reset, keep = jnp.split(nn.sigmoid(gates), 2, axis=-1)
        candidate = nn.Dense(self.hidden)(jnp.concatenate([x, reset * state], axis=-1))
        state = keep * state + (1 - keep) * jnp.tanh(candidate)
        return state, state


def zero_carry(batch: int, hidden: int) -> Carry:
    """Return the (cell, hidden) state before the first step, float32 `[batch, hidden]` each.

    Args:
      batch: number of sequences.
      hidden: width of the state.
    """
    zeros = jnp.zeros((batch, hidden), jnp.float32)
    return zeros, zeros


def unroll(
    cell: nn.Module, carry: State, steps: Sequence[jax.Array]
) -> tuple[State, list[jax.Array]]:
    """Return the last state and the output of each step.

    The loop runs while tracing, so the graph has one copy of the cell per step. A scan would hide
    the steps from placement and scheduling.

    Args:
      cell: function from (state, input) to (state, output).
      carry: initial state.
      steps: input of each step.
    """
    outputs = []
    for x in steps:
        carry, output = cell(carry, x)
        outputs.append(output)
    return carry, outputs
