"""The network scores the candidates, and predicts the further gain of an episode.

A graph attention network reads the program and all candidates at once, as one graph. Pooled
embeddings of each candidate go to an actor, which scores it, and to a critic.

Source: the public code of X-RLflow; see `gopt.systems.xrlflow.settings.Settings` for our choices.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Int32

from gopt.learning.layers.graph import graph_attention
from gopt.systems.xrlflow.observation import NODE_KINDS, Observation
from gopt.systems.xrlflow.settings import Settings

Tree = Any
NEVER = -1e10  # logit of an invalid slot


class PolicyOutput(NamedTuple):
    """The policy at a program, and its value.

    Attributes:
      logits: float32 `[S]`, logits of slots; `NEVER` for invalid slots.
      value: float32 `[]`, predicted further gain of the episode, in rewards.
    """

    logits: jax.Array
    value: jax.Array


class MLP(nn.Module):
    """Hidden layers with tanh, and a linear layer with small initial weights."""

    hidden: tuple[int, ...]
    outputs: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return float32 `[..., outputs]` for `[..., F]`."""
        for width in self.hidden:
            x = nn.tanh(nn.Dense(width)(x))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(0.01))(x)


class Network(nn.Module):
    """The network; call it through `apply`."""

    settings: Settings

    @nn.compact
    def __call__(self, seen: Observation) -> PolicyOutput:
        """Return the policy and value at a program and its candidates."""
        graphs = self._graphs(self._nodes(seen), seen)
        first = jnp.broadcast_to(graphs[0], graphs.shape)
        mask = seen.mask[:, None]
        mean = jnp.sum(jnp.where(mask, graphs, 0), 0) / jnp.maximum(mask.sum(dtype=jnp.float32), 1)
        most = jnp.max(jnp.where(mask, graphs, -jnp.inf), 0)
        value = MLP(self.settings.hidden, 1)(jnp.concatenate([graphs[0], mean, most]))[0]
        if self.settings.head == "flat":
            scores = self._flat(jnp.where(mask, graphs, 0))
        else:
            both = jnp.concatenate([graphs, first], -1)
            scores = MLP(self.settings.hidden, 1)(both)[:, 0]
        if self.settings.hints:
            # An agent begins with the prediction of the cost model, and learns to correct it.
            trust = self.param("trust", nn.initializers.ones, (), jnp.float32)
            scores -= trust * _logarithm(seen.change)
        slots = jnp.arange(len(scores), dtype=jnp.int32)
        there = seen.mask & (slots < self._slots(len(scores)))
        return PolicyOutput(jnp.where(there, scores, NEVER), self.settings.unit * value)

    def _nodes(self, seen: Observation) -> jax.Array:
        """Return the embedding of each node, float32 `[N, width]`."""
        settings = self.settings
        sizes = jnp.asarray(seen.size) / settings.largest
        if settings.sizes == "log":
            sizes = jnp.log1p(seen.size) / jnp.log1p(settings.largest)
        read = jax.ops.segment_sum(sizes, seen.receiver, len(seen.kind))
        kind = nn.Embed(len(NODE_KINDS), settings.width)(seen.kind)
        nodes = nn.relu(kind + nn.Dense(settings.width)(read))
        for _ in range(settings.layers):
            query, logit = nn.Dense(settings.width, use_bias=False), nn.Dense(1, use_bias=False)
            nodes = graph_attention(nodes, seen.sender, seen.receiver, query, logit)
        return nodes

    def _graphs(self, nodes: jax.Array, seen: Observation) -> jax.Array:
        """Return pooled embeddings of the program and of each candidate, float32 `[S, summary]`."""
        slots = len(seen.mask)
        own = jax.ops.segment_sum(nodes, seen.slot, slots)
        left = jax.ops.segment_sum(nodes[seen.left], seen.left_slot, slots)
        whole, more = own[:1], (own - left).at[0].set(0)
        columns = [whole + more]
        if self.settings.pooling == "difference":
            is_whole = jnp.asarray(seen.slot) == 0
            count = jnp.maximum(jnp.sum(is_whole, dtype=jnp.float32), 1)
            columns = [more, jnp.broadcast_to(whole / count, more.shape)]
        if self.settings.hints:
            columns.append(_logarithm(seen.change)[:, None])
        graphs = jnp.concatenate(columns, -1)
        return nn.relu(nn.Dense(self.settings.summary)(graphs))

    def _slots(self, slots: int) -> int:
        return self.settings.slots if self.settings.head == "flat" else slots

    def _flat(self, graphs: jax.Array) -> jax.Array:
        """Return scores computed from all slots side by side, `[S]`; 0 beyond the limit."""
        count, most = len(graphs), self.settings.slots
        rows = jnp.pad(graphs[:most], ((0, max(most - count, 0)), (0, 0)))
        scores = MLP(self.settings.hidden, most)(rows.reshape(-1))
        return jnp.pad(scores[:count], (0, max(count - most, 0)))


def _logarithm(change: jax.Array) -> jax.Array:
    """Return changes of a cost on a log scale: a ten-thousandth is about 1, a tenth about 8."""
    return jnp.arcsinh(1e4 * jnp.asarray(change))


def apply(params: Tree, inputs: Observation, *, settings: Settings) -> PolicyOutput:
    """Return the policy at a program, and its value.

    Args:
      params: parameters of the network.
      inputs: observation of the program, see `gopt.systems.xrlflow.observation.observe`.
      settings: settings of the agent.
    """
    return cast(PolicyOutput, Network(settings).apply(params, inputs))


@partial(jax.jit, static_argnames="settings")  # one program, not one for each of its ops
def init(key: jax.Array, inputs: Observation, *, settings: Settings) -> Tree:
    """Return random parameters. The inputs only give shapes."""
    return Network(settings).init(key, inputs)


def act(
    key: jax.Array | None, params: Tree, inputs: Observation, *, settings: Settings
) -> Int32[jax.Array, ""]:
    """Return the action at a program, int32 `[]`: 0 ends the episode, k takes candidate k.

    Use `play` for episodes in an environment; it draws on the host.

    Args:
      key: random key; None for the likeliest action.
      params: parameters of the network.
      inputs: observation of the program.
      settings: settings of the agent.
    """
    logits = apply(params, inputs, settings=settings).logits
    if key is None:
        return jnp.argmax(logits).astype(jnp.int32)
    return jax.random.categorical(key, logits).astype(jnp.int32)
