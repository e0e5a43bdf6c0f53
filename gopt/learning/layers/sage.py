"""GraphSAGE over the uses of a graph: embeddings of ops and their neighbourhoods.

Source: Hamilton, Ying, Leskovec, "Inductive representation learning on large graphs", NeurIPS
2017, over all neighbours, with separate messages from readers and producers.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float32

from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.embedding import OpEmbedding
from gopt.learning.layers.graph import graph_network, max_at


def sage_round(nodes: Float32[jax.Array, "N width"], graphs: GraphsTuple) -> jax.Array:
    """Return embeddings after one round of mean aggregation over neighbours, `[N, width]`.

    Call it in a compact method, whose module gets the parameters.

    Args:
      nodes: embeddings, float32 `[N, width]`.
      graphs: graph whose edges are used.
    """
    width = nodes.shape[-1]
    update = nn.Dense(width)
    heard = graph_network(
        lambda edges, sent, received, _: jnp.concatenate([edges, sent, received], -1),
        lambda nodes, sent, received, _: update(jnp.concatenate([nodes, sent, received], -1)),
    )(graphs._replace(nodes=nodes)).nodes
    return nn.LayerNorm()(nodes + nn.gelu(heard))


def max_round(nodes: jax.Array, graphs: GraphsTuple) -> jax.Array:
    """Return embeddings after one round of max aggregation over neighbours, `[N, width]`.

    The pooling aggregator: h' = f([h, max σ(W h_u + b)]). It does not read features of uses. Call
    it like `sage_round`, with the same arguments.
    """
    width = nodes.shape[-1]
    said = nn.sigmoid(nn.Dense(2 * width)(nodes))
    to_readers, to_producers = jnp.split(said, 2, axis=-1)
    heard = [
        nodes,
        max_at(to_readers[graphs.senders], graphs.receivers, len(nodes)),
        max_at(to_producers[graphs.receivers], graphs.senders, len(nodes)),
    ]
    return nn.LayerNorm()(nodes + nn.gelu(nn.Dense(width)(jnp.concatenate(heard, -1))))


class GraphSAGE(nn.Module):
    """Rounds of neighbour aggregation, each one use further.

    Attributes:
      width: size of the embedding of an op.
      rounds: number of rounds.
      hear: function of a round, `sage_round` or `max_round`.
    """

    width: int = 64
    rounds: int = 3
    hear: Callable[[jax.Array, GraphsTuple], jax.Array] = sage_round

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        """Return embeddings of ops, float32 `[N, width]`."""
        nodes = OpEmbedding(self.width)(graphs)
        for _ in range(self.rounds):
            nodes = self.hear(nodes, graphs)
        return nodes
