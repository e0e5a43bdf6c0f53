"""Graph network simulator: accelerations of particles by messages between neighbours.

Sanchez-Gonzalez et al., Learning to Simulate Complex Physics with Graph Networks,
arXiv:2002.09405. The paper gives the widths, not their sum. Counted by hand after the paper and
the authors' code (deepmind-research, `learning_to_simulate`), 10 steps in two dimensions have
1 591 826 parameters: 1 487 360 in the steps, 37 248 and 33 792 in the encoders of nodes and edges,
33 282 in the decoder, and 144 in the embedding of nine materials. Ours has this number exactly.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Tree, Workload
from gopt.workloads.layers import check_at_least

# Of each particle: this many velocities, and materials with embeddings of this width.
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
        """Returns `[rows, features]`."""
        for _ in range(2):
            x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(self.features)(x)


class NormMLP(nn.Module):
    """An MLP of one width throughout, then a layer norm.

    Attributes:
      hidden: the width.
    """

    hidden: int

    @nn.compact
    def __call__(self, *parts: jax.Array) -> jax.Array:
        """Returns `[rows, hidden]` of all parts `[rows, features]` side by side."""
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
        """Returns nodes and edges with their updates added.

        `nodes` is `[nodes, hidden]`, `edges` `[edges, hidden]`, `senders` and `receivers` are the
        nodes `[edges]` at their ends.
        """
        # All ends are nodes: by clipping, unlike by default, nothing is masked in either direction.
        ends = (jnp.take(nodes, end, axis=0, mode="clip") for end in (receivers, senders))
        messages = NormMLP(self.hidden, name="edges")(edges, *ends)
        received = jax.ops.segment_sum(messages, receivers, len(nodes), mode="clip")
        return nodes + NormMLP(self.hidden, name="nodes")(received, nodes), edges + messages


class GraphNetwork(nn.Module):
    """Encodes nodes and edges, passes messages with weights of each step's own, decodes nodes.

    Attributes:
      steps: how many times messages are passed.
      hidden: width of nodes, edges and hidden layers.
      dimensions: of space.
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
        """Returns normalised accelerations, `[nodes, dimensions]`.

        `particles` `[nodes, 7 · dimensions]` are their last five velocities and distances to the
        lower and upper walls, `materials` is `[nodes]`; `relations` `[edges, dimensions + 1]` are
        displacements of senders from receivers and their lengths.
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
    """Returns the simulator for given neighbours; the defaults have 1 591 826 parameters.

    Finding the neighbours within a radius, and the integration of accelerations, are outside the
    model.

    Args:
      nodes: particles, of all systems in a batch.
      edges: pairs of a sender and a receiver, of all systems in a batch.
      steps: how many times messages are passed.
      hidden: width of nodes, edges and hidden layers.
      dimensions: of space.

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
