"""Message passing over the uses of a graph: op embeddings for any policy."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.embedding import OpEmbedding
from gopt.learning.layers.graph import graph_network


class MLP(nn.Module):
    """Two layers with a GELU between them."""

    width: int
    outputs: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map rows `[..., *]` to `[..., outputs]`."""
        return nn.Dense(self.outputs)(nn.gelu(nn.Dense(self.width)(x)))


class MessagePassing(nn.Module):
    """Rounds of message passing with residual connections.

    Attributes:
      width: size of the embedding of an op and of a use.
      rounds: number of rounds, each one use further.
    """

    width: int = 64
    rounds: int = 4

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        """Return embeddings of ops, float32 `[N, width]`, of one `to_graphs_tuple`."""
        nodes = OpEmbedding(self.width)(graphs)
        graphs = graphs._replace(nodes=nodes, edges=nn.Dense(self.width)(graphs.edges))
        for _ in range(self.rounds):
            edge, node = MLP(self.width, self.width), MLP(self.width, self.width)
            new = graph_network(
                lambda edges, sent, received, _, edge=edge: edge(
                    jnp.concatenate([edges, sent, received], -1)
                ),
                lambda nodes, sent, received, _, node=node: node(
                    jnp.concatenate([nodes, sent, received], -1)
                ),
            )(graphs)
            nodes = nn.LayerNorm()(graphs.nodes + new.nodes)
            graphs = graphs._replace(nodes=nodes, edges=graphs.edges + new.edges)
        return graphs.nodes
