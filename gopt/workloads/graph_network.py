"""Graph network simulator: particle accelerations by message passing between neighbours.

Sanchez-Gonzalez et al., Learning to Simulate Complex Physics with Graph Networks, arXiv:2002.09405.
The paper gives the widths, not the number of parameters. Counted by hand from the paper and the
authors' code (deepmind-research, `learning_to_simulate`), 10 steps in two dimensions have 1 591 826
parameters. The steps have 1 487 360, the encoders of nodes and edges 37 248 and 33 792, the decoder
33 282, and the embedding of nine materials 144. Ours has exactly this number.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Tree, Workload
from gopt.workloads.layers import check_at_least

# Velocities per particle, number of materials, and width of a material's embedding.
HISTORY = 5
MATERIALS = 9
EMBEDDING = 16


class MLP(nn.Module):
    """Two hidden layers and a linear one.

    Attributes:
      hidden: width of the hidden layers.
      features: width of the output.
    """

    hidden: int
    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return `[rows, features]`."""
        for _ in range(2):
            x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(self.features)(x)


class NormMLP(nn.Module):
    """An MLP of constant width, then a layer norm.

    Attributes:
      hidden: width of all layers.
    """

    hidden: int

    @nn.compact
    def __call__(self, *parts: jax.Array) -> jax.Array:
        """Return `[rows, hidden]` of all concatenated parts `[rows, features]`."""
        x = jnp.concatenate(parts, axis=-1)
        return nn.LayerNorm(epsilon=1e-5)(MLP(self.hidden, self.hidden)(x))


class MessagePassing(nn.Module):
    """One step: a message along each edge, and an update of each node from their sum.

    Attributes:
      hidden: width of nodes and edges.
    """

    hidden: int

    @nn.compact
    def __call__(
        self, nodes: jax.Array, edges: jax.Array, senders: jax.Array, receivers: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return nodes and edges with their updates added.

        Args:
          nodes: node states, `[nodes, hidden]`.
          edges: edge states, `[edges, hidden]`.
          senders: index of each edge's sender, `[edges]`.
          receivers: index of each edge's receiver, `[edges]`.
        """
        # All indices are valid: unlike the default mode, clipping adds no masks to either
        # direction.
        ends = (jnp.take(nodes, end, axis=0, mode="clip") for end in (receivers, senders))
        messages = NormMLP(self.hidden, name="edges")(edges, *ends)
        received = jax.ops.segment_sum(messages, receivers, len(nodes), mode="clip")
        return nodes + NormMLP(self.hidden, name="nodes")(received, nodes), edges + messages


class GraphNetwork(nn.Module):
    """Encoders of nodes and edges, message-passing steps with separate weights, and a decoder.

    Attributes:
      steps: number of message-passing steps.
      hidden: width of nodes, edges and hidden layers.
      dimensions: number of space dimensions.
    """

    steps: int
    hidden: int
    dimensions: int

    @nn.compact
    def __call__(
        self,
        particles: jax.Array,
        materials: jax.Array,
        relations: jax.Array,
        senders: jax.Array,
        receivers: jax.Array,
    ) -> jax.Array:
        """Return normalised accelerations, `[nodes, dimensions]`.

        Args:
          particles: last five velocities of each particle and distances to the lower and upper
            walls, `[nodes, 7 · dimensions]`.
          materials: material of each particle, `[nodes]`.
          relations: displacements of senders from receivers, and their lengths, `[edges, dimensions
            + 1]`.
          senders: index of each edge's sender, `[edges]`.
          receivers: index of each edge's receiver, `[edges]`.
        """
        embedded = nn.Embed(MATERIALS, EMBEDDING, name="materials")(materials)
        nodes = NormMLP(self.hidden, name="encode_nodes")(particles, embedded)
        edges = NormMLP(self.hidden, name="encode_edges")(relations)
        for _ in range(self.steps):
            nodes, edges = MessagePassing(self.hidden)(nodes, edges, senders, receivers)
        return MLP(self.hidden, self.dimensions, name="decode")(nodes)


def _loss(outputs: Tree, targets: Tree) -> jax.Array:
    return jnp.square(outputs - targets).sum(axis=-1).mean()


def graph_network(
    *,
    nodes: int = 2000,
    edges: int = 30_000,
    steps: int = 10,
    hidden: int = 128,
    dimensions: int = 2,
) -> Workload:
    """Return the simulator for given neighbours; the defaults have 1 591 826 parameters.

    The model excludes the search for neighbours within a radius, and the integration of
    accelerations.

    Args:
      nodes: number of particles, over all systems of a batch.
      edges: number of (sender, receiver) pairs, over all systems of a batch.
      steps: number of message-passing steps.
      hidden: width of nodes, edges and hidden layers.
      dimensions: number of space dimensions.

    Raises:
      ValueError: an argument is smaller than 1.
    """
    check_at_least(1, nodes=nodes, edges=edges, steps=steps, hidden=hidden, dimensions=dimensions)

    def floats(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    ends = jax.ShapeDtypeStruct((edges,), jnp.int32)
    return Workload(
        name=f"graph_network-{steps}",
        module=GraphNetwork(steps, hidden, dimensions),
        inputs=(
            floats(nodes, (HISTORY + 2) * dimensions),
            jax.ShapeDtypeStruct((nodes,), jnp.int32),
            floats(edges, dimensions + 1),
            ends,
            ends,
        ),
        loss=_loss,
        targets=floats(nodes, dimensions),
    )
