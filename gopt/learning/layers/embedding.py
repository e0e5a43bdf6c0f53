"""The first layer of every network over the ops of a graph."""

import flax.linen as nn
import jax

from gopt.graph.kinds import KINDS
from gopt.learning.graphs import GraphsTuple


class OpEmbedding(nn.Module):
    """Embed kinds and features as one vector for each op."""

    width: int

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        """Return float32 `[N, width]` for one `to_graphs_tuple`."""
        kind = nn.Embed(len(KINDS), self.width)(graphs.nodes["kind"])
        return nn.LayerNorm()(kind + nn.Dense(self.width)(graphs.nodes["features"]))
