"""Recurrent networks over ops in the order of the program, which is a topological one."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from gopt.nets.embedding import OpEmbedding
from gopt.nets.graphs import GraphsTuple


class Recurrent(nn.Module):
    """A graph as a sequence: recurrent units over the ops, forwards and backwards; no uses.

    Attributes:
      width: size of the embedding of an op.
    """

    width: int = 64

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        """Returns embeddings of ops, float32 `[N, width]`, of one `to_graphs_tuple`."""
        ops = OpEmbedding(self.width)(graphs)
        there = nn.RNN(nn.GRUCell(self.width))
        back = nn.RNN(nn.GRUCell(self.width), reverse=True, keep_order=True)
        count = graphs.n_node[0]
        both: list[Any] = [rnn(ops, seq_lengths=count) for rnn in (there, back)]
        return nn.LayerNorm()(ops + nn.Dense(self.width)(jnp.concatenate(both, -1)))


class Feedback(nn.Module):
    """An autoregressive head: what earlier ops took moves the means of an op.

    Before it is trained it moves nothing.

    Attributes:
      width: size of the state that is carried from op to op.
      outputs: how many numbers an op takes, `L`.
    """

    width: int
    outputs: int

    def setup(self) -> None:
        """Makes the weights of an Elman network."""
        start = nn.initializers.lecun_normal()
        self.kept = self.param("kept", start, (self.width, self.width))
        self.told = self.param("told", start, (self.outputs, self.width))
        self.moves = self.param("moves", nn.initializers.zeros, (self.width, self.outputs))

    def __call__(self, base: jax.Array, noise: jax.Array) -> jax.Array:
        """Returns what ops take: the base `[N, L]`, moved, and noise `[..., N, L]`."""

        def step(state: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            taken = row[0] + state @ self.moves + row[1]
            return self._after(state, taken), taken

        return self._scan(step, base, noise)

    def means(self, base: jax.Array, taken: jax.Array) -> jax.Array:
        """Returns the means, `[..., N, L]`, around which ops took what they have taken."""

        def step(state: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return self._after(state, row[1]), row[0] + state @ self.moves

        return self._scan(step, base, taken)

    def _after(self, state: jax.Array, taken: jax.Array) -> jax.Array:
        return jnp.tanh(state @ self.kept + taken @ self.told)

    def _scan(self, step: Any, base: jax.Array, rows: jax.Array) -> jax.Array:
        state = jnp.zeros((*rows.shape[:-2], self.width), rows.dtype)
        _, found = lax.scan(step, state, (base, jnp.moveaxis(rows, -2, 0)))
        return jnp.moveaxis(found, 0, -2)
