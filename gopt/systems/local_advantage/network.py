"""The network: predict the change of cost by each decision, given all the others.

GraphSAGE embeds the ops, once for a graph. Two more rounds of message passing embed the decisions
near each op. They leave out messages that the op sent itself, so that its own decision does not
count.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float32, Int32, Shaped

from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.sage import GraphSAGE
from gopt.systems.local_advantage.settings import Settings, check_two_values

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

        ones = jnp.ones((len(edges), 1), jnp.float32)
        reads, readers = total(ones, receiver), total(ones, sender)

        def mean(total: jax.Array, number: jax.Array) -> jax.Array:
            return total / jnp.maximum(number, 1)

        decided = nn.Dense(self.width)(nodes) + nn.Embed(self.values, self.width)(decisions)
        made, read = nn.Dense(self.width)(decided), nn.Dense(self.width)(decided)
        down = nn.gelu(made[sender] + edges)  # to readers
        up = nn.gelu(read[receiver] + edges)  # to producers
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


def encode(params: Tree, graphs: GraphsTuple, *, settings: Settings) -> Float32[jax.Array, "N W"]:
    """Return op embeddings, which do not depend on decisions, float32 `[N, W]`; `N` includes
    padding.

    Args:
      params: parameters of the network.
      graphs: the graph with features, see `inputs`.
      settings: settings of the network.
    """
    found = GraphSAGE(settings.width, settings.rounds).apply(params["encoder"], graphs)
    return jnp.asarray(found)


def predicted(
    params: Tree,
    nodes: Shaped[jax.Array, "N W"],
    graphs: GraphsTuple,
    decisions: Int32[jax.Array, " N"],
    *,
    settings: Settings,
) -> jax.Array:
    """Return the change of cost by each decision's values other than 0, float32 `[N, K - 1]`.

    `N` includes padding, for which the result has no meaning.

    Args:
      params: parameters of the network.
      nodes: embeddings `[N, W]`, see `encode`.
      graphs: the graph with features, see `inputs`.
      decisions: int32 `[N]`; the prediction for an op ignores its own decision.
      settings: settings of the network.
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


def predictor(
    params: Tree, graphs: GraphsTuple, *, settings: Settings
) -> Callable[[jax.Array], jax.Array]:
    """Return a function from decisions int32 `[N]` to predicted targets, float32 `[N]`.

    Args:
      params: parameters of the network.
      graphs: the graph with features, see `inputs`. Its ops are embedded once.
      settings: settings of the network.

    Raises:
      ValueError: decisions do not have two values.
    """
    check_two_values(settings)
    nodes = encode(params, graphs, settings=settings)
    return lambda decisions: predicted(params, nodes, graphs, decisions, settings=settings)[:, 0]
