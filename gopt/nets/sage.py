"""GraphSAGE over the uses of a graph: what an op is, from itself and from what is near.

Source: Hamilton, Ying, Leskovec, "Inductive representation learning on large graphs", NeurIPS
2017, over all neighbours; readers and producers are told apart.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.nets.embedding import OpEmbedding
from gopt.nets.graphs import GraphsTuple, graph_network, max_at


class MaxSAGE(nn.Module):
    """Rounds of the pooling aggregator, h' = f([h, max σ(W h_u + b)]), over readers and producers.

    Attributes:
      width: size of the embedding of an op.
      rounds: how many uses away an op sees.
    """

    width: int = 64
    rounds: int = 3

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        """Returns embeddings of ops, float32 `[N, width]`."""
        nodes = OpEmbedding(self.width)(graphs)
        for _ in range(self.rounds):
            said = nn.sigmoid(nn.Dense(2 * self.width)(nodes))
            to_readers, to_producers = jnp.split(said, 2, axis=-1)
            heard = [
                nodes,
                max_at(to_readers[graphs.senders], graphs.receivers, len(nodes)),
                max_at(to_producers[graphs.receivers], graphs.senders, len(nodes)),
            ]
            nodes = nn.LayerNorm()(
                nodes + nn.gelu(nn.Dense(self.width)(jnp.concatenate(heard, -1)))
            )
        return nodes


class GraphSAGE(nn.Module):
    """Rounds of the mean aggregator.

    Attributes:
      width: size of the embedding of an op.
      rounds: how many uses away an op sees.
    """

    width: int = 64
    rounds: int = 3

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        """Returns embeddings of ops, float32 `[N, width]`."""
        nodes = OpEmbedding(self.width)(graphs)
        for _ in range(self.rounds):
            nodes = sage_round(nodes, graphs)
        return nodes


def sage_round(nodes: jax.Array, graphs: GraphsTuple) -> jax.Array:
    """Returns embeddings of ops that have heard what is one use away, float32 `[N, width]`.

    Call it in a compact method, whose module gets the parameters.

    Args:
      nodes: embeddings, `[N, width]`.
      graphs: whose edges are used.
    """
    width = nodes.shape[-1]
    update = nn.Dense(width)
    heard = graph_network(
        lambda edges, sent, received, _: jnp.concatenate([edges, sent, received], -1),
        lambda nodes, sent, received, _: update(jnp.concatenate([nodes, sent, received], -1)),
    )(graphs._replace(nodes=nodes)).nodes
    return nn.LayerNorm()(nodes + nn.gelu(heard))
