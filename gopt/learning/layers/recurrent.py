"""Recurrent networks over ops in program order, which is a topological order."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.embedding import OpEmbedding


class Recurrent(nn.Module):
    """Bidirectional recurrent network over the ops as a sequence; it does not read uses.

    Attributes:
      width: size of the embedding of an op.
    """

    width: int = 64

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        """Return embeddings of ops, float32 `[N, width]`, of one `to_graphs_tuple`."""
        ops = OpEmbedding(self.width)(graphs)
        there = nn.RNN(nn.GRUCell(self.width))
        back = nn.RNN(nn.GRUCell(self.width), reverse=True, keep_order=True)
        count = graphs.n_node[0]
        both: list[Any] = [rnn(ops, seq_lengths=count) for rnn in (there, back)]
        return nn.LayerNorm()(ops + nn.Dense(self.width)(jnp.concatenate(both, -1)))


class Feedback(nn.Module):
    """An autoregressive head: outputs of earlier ops shift the output of an op.

    Before training it changes nothing.

    Attributes:
      width: size of the state that is carried from op to op.
    """

    width: int

    @nn.compact
    def __call__(self, base: jax.Array) -> jax.Array:
        """Return outputs of ops, `[N, L]`: the base `[N, L]`, shifted by an Elman network."""
        start = nn.initializers.lecun_normal()
        kept = self.param("kept", start, (self.width, self.width), jnp.float32)
        told = self.param("told", start, (base.shape[1], self.width), jnp.float32)
        shape = (self.width, base.shape[1])
        moves = self.param("moves", nn.initializers.zeros, shape, jnp.float32)

        def step(state: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            row = row + state @ moves
            return jnp.tanh(state @ kept + row @ told), row

        return lax.scan(step, jnp.zeros(self.width, jnp.float32), base)[1]
