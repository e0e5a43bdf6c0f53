"""Layers over `jraph` graphs."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jraph
from jaxtyping import Bool, Int32, Shaped

from gopt.learning.graphs import GraphsTuple


def op_mask(graphs: GraphsTuple) -> Bool[jax.Array, " N"]:
    """Return a mask of real ops, bool `[N]`, for one graph of `to_graphs_tuple`."""
    rows = len(jax.tree.leaves(graphs.nodes)[0])
    return jnp.arange(rows, dtype=jnp.int32) < graphs.n_node[0]


def graph_network(
    update_edge: Callable[..., jax.Array], update_node: Callable[..., jax.Array]
) -> Callable[[GraphsTuple], GraphsTuple]:
    """Return a round of message passing along uses and against them, averaged at each op.

    `update_edge(edges, senders, receivers, globals)` and `update_node(nodes, sent, received,
    globals)` map rows to rows. Source: Battaglia et al., arXiv:1806.01261, without globals.
    """
    return jraph.GraphNetwork(
        update_edge, update_node, aggregate_edges_for_nodes_fn=jraph.segment_mean
    )


def graph_attention(
    nodes: Shaped[jax.Array, "N F"],
    sender: Int32[jax.Array, " E"],
    receiver: Int32[jax.Array, " E"],
    query: Callable[[jax.Array], jax.Array],
    logit: Callable[[jax.Array], jax.Array],
) -> jax.Array:
    """Return nodes after a layer of attention to themselves and to the nodes they read, `[N, W]`.

    h'_i = σ(Σ_j α_ij W h_j), with a leaky ReLU for σ; α_ij is a softmax over j of a leaky ReLU of
    aᵀ[W h_j ‖ W h_i].

    Args:
      nodes: nodes, `[N, F]`.
      sender: int32 `[E]`, sender of each edge.
      receiver: int32 `[E]`, receiver of each edge.
      query: W, maps rows `[·, F]` to rows `[·, W]`.
      logit: aᵀ, maps rows `[·, 2 W]` to rows `[·, 1]`.

    Source: Veličković et al., "Graph attention networks", ICLR 2018, with one head.
    """
    own = jnp.arange(len(nodes), dtype=jnp.int32)
    graph = GraphsTuple(
        nodes=nodes,
        edges=None,
        senders=jnp.concatenate([sender, own]),
        receivers=jnp.concatenate([receiver, own]),
        globals=None,
        n_node=jnp.int32([len(nodes)]),
        n_edge=jnp.int32([len(nodes) + len(sender)]),
    )
    layer = jraph.GAT(
        query,
        lambda sent, received, _: jax.nn.leaky_relu(
            logit(jnp.concatenate([sent, received], -1)), 0.2
        ),
    )
    return jnp.asarray(layer(graph).nodes)


def max_at(rows: jax.Array, index: jax.Array, count: int) -> jax.Array:
    """Return the largest of the rows `[E, W]` with each index, `[count, W]`; 0 without any."""
    return jraph.segment_max_or_constant(rows, index, count)
