"""The network: how much each decision changes the cost, given all the others.

GraphSAGE says what an op is, once for a graph. Two rounds more say what the decisions near it are;
what an op hears in them leaves out what it said itself, so that its own decision does not count.
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.sage import GraphSAGE
from gopt.systems.local_advantage.settings import Settings

Tree = Any


class _Advantages(nn.Module):
    width: int
    values: int

    @nn.compact
    def __call__(self, nodes: jax.Array, graphs: GraphsTuple, decisions: jax.Array) -> jax.Array:
        sender, receiver, edges = (
            graphs.senders,
            graphs.receivers,
            nn.Dense(self.width)(graphs.edges),
        )
        count = len(nodes)

        def total(messages: jax.Array, op: jax.Array) -> jax.Array:
            return jax.ops.segment_sum(messages, op, count)

        ones = jnp.ones((len(edges), 1))
        reads, readers = total(ones, receiver), total(ones, sender)

        def mean(total: jax.Array, number: jax.Array) -> jax.Array:
            return total / jnp.maximum(number, 1)

        decided = nn.Dense(self.width)(nodes) + nn.Embed(self.values, self.width)(decisions)
        made, read = nn.Dense(self.width)(decided), nn.Dense(self.width)(decided)
        down = nn.gelu(made[sender] + edges)  # to who reads
        up = nn.gelu(read[receiver] + edges)  # to who makes
        above, below = total(down, receiver), total(up, sender)
        others_above = mean(above[receiver] - down, reads[receiver] - 1)
        others_below = mean(below[sender] - up, readers[sender] - 1)
        above, below = mean(above, reads), mean(below, readers)
        from_reader = [decided[receiver], edges, others_above, below[receiver]]
        from_maker = [decided[sender], edges, above[sender], others_below]
        up = nn.gelu(nn.Dense(self.width)(jnp.concatenate(from_reader, -1)))
        down = nn.gelu(nn.Dense(self.width)(jnp.concatenate(from_maker, -1)))
        heard = [nodes, mean(total(up, sender), readers), mean(total(down, receiver), reads)]
        hidden = nn.gelu(nn.Dense(2 * self.width)(jnp.concatenate(heard, -1)))
        return nn.Dense(self.values - 1)(hidden)


def encode(params: Tree, graphs: GraphsTuple, *, settings: Settings) -> jax.Array:
    """Returns what each op is, float32 `[N, W]`: the part that no decision changes.

    `N` counts ops with padding.

    Args:
      params: of the network.
      graphs: see `inputs`.
      settings: of the network.
    """
    found = GraphSAGE(settings.width, settings.rounds).apply(params["encoder"], graphs)
    return jnp.asarray(found)


def predicted(
    params: Tree,
    nodes: jax.Array,
    graphs: GraphsTuple,
    decisions: jax.Array,
    *,
    settings: Settings,
) -> jax.Array:
    """Returns what each value but 0 of each decision adds to the cost, float32 `[N, K - 1]`.

    `N` counts ops with padding, for which the result means nothing.

    Args:
      params: of the network.
      nodes: see `encode`, `[N, W]`.
      graphs: see `inputs`.
      decisions: int32 `[N]`; of each op, its own does not count.
      settings: of the network.
    """
    head = _Advantages(settings.width, settings.values)
    return jnp.asarray(head.apply(params["advantages"], nodes, graphs, decisions))


@partial(jax.jit, static_argnames="settings")  # one program, not one for each of its ops
def init(key: jax.Array, inputs: GraphsTuple, *, settings: Settings) -> Tree:
    """Return random parameters. The inputs only give shapes."""
    graphs = inputs
    to_encoder, to_head = jax.random.split(key)
    count = len(graphs.nodes["kind"])
    encoder = GraphSAGE(settings.width, settings.rounds).init(to_encoder, graphs)
    head = _Advantages(settings.width, settings.values).init(
        to_head, jnp.zeros((count, settings.width)), graphs, jnp.zeros(count, jnp.int32)
    )
    return {"encoder": encoder, "advantages": head}
