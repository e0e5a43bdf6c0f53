"""A learned cost model: it predicts a configuration's cost, and its gradient ranks flips.

This is a baseline for learned advantages: another way for a search to profit from other graphs.
The model reads decisions as numbers between 0 and 1, so that one gradient scores all flips at once.
The learned target and the guidance by gradient are our choices.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float32, Shaped

from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import FusionProblem
from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.graph import op_mask
from gopt.learning.layers.sage import GraphSAGE, sage_round
from gopt.learning.train import TrainState
from gopt.search.guided import Guide
from gopt.systems.local_advantage.network import encode
from gopt.systems.local_advantage.settings import Settings
from gopt.systems.local_advantage.training import start

__all__ = ["Configurations", "guide", "init", "loss", "predicted", "start", "step"]

Tree = Any
ROUNDS = 2  # rounds of message passing over decisions, as in the network of advantages


class Configurations(NamedTuple):
    """Configurations of one graph, from which batches are drawn. `S` configurations of `N` ops.

    Attributes:
      graphs: the graph with features, see `inputs`.
      problem: fusion problem of the graph.
      fuse: bool `[S, N]`, fused ops of each configuration.
      spread: float32 `[]`, standard deviation of their costs, in ticks.
    """

    graphs: GraphsTuple
    problem: FusionProblem
    fuse: Any
    spread: Any


class _Cost(nn.Module):
    @nn.compact
    def __call__(self, nodes: jax.Array, graphs: GraphsTuple, fused: jax.Array) -> jax.Array:
        width = nodes.shape[-1]
        value = nn.Dense(width)(jnp.stack([fused, 1 - fused], 1))
        nodes = nn.Dense(width)(nodes) + value
        for _ in range(ROUNDS):
            nodes = sage_round(nodes, graphs)
        real = op_mask(graphs)
        share = nn.Dense(1)(nn.gelu(nn.Dense(width)(nodes)))[:, 0]
        return jnp.sum(jnp.where(real, share, 0.0))


@partial(jax.jit, static_argnames="settings")  # one program, not one for each of its ops
def init(key: jax.Array, inputs: GraphsTuple, *, settings: Settings) -> Tree:
    """Return random parameters. The inputs only give shapes."""
    to_encoder, to_head = jax.random.split(key)
    count = len(inputs.nodes["kind"])
    nodes = jnp.zeros((count, settings.width), jnp.float32)
    return {
        "encoder": GraphSAGE(settings.width, settings.rounds).init(to_encoder, inputs),
        "cost": _Cost().init(to_head, nodes, inputs, jnp.zeros(count, jnp.float32)),
    }


def predicted(
    params: Tree,
    nodes: Shaped[jax.Array, "N W"],
    graphs: GraphsTuple,
    fused: Float32[jax.Array, " N"],
) -> Float32[jax.Array, ""]:
    """Return a cost, float32 `[]`; only differences between configurations have a meaning.

    Args:
      params: parameters of the model.
      nodes: embeddings `[N, W]`, see `gopt.systems.local_advantage.encode`.
      graphs: the graph with features, see `inputs`.
      fused: float32 `[N]`, decisions between 0 and 1.
    """
    return jnp.asarray(_Cost().apply(params["cost"], nodes, graphs, fused))


def loss(
    params: Tree,
    data: Configurations,
    fuse: Bool[jax.Array, "C N"],
    cost: Shaped[jax.Array, " C"],
    *,
    settings: Settings,
) -> jax.Array:
    """Return the squared error of differences from the mean, in standard deviations of the graph.

    Args:
      params: parameters of the model.
      data: the graph.
      fuse: bool `[C, N]`, configurations.
      cost: `[C]`, their costs, in ticks.
      settings: settings of the model.
    """
    nodes = encode(params, data.graphs, settings=settings)
    found = jax.vmap(lambda fuse: predicted(params, nodes, data.graphs, fuse.astype(jnp.float32)))(
        fuse
    )
    error = (
        found - (cost - cost[0]).astype(jnp.float32) / data.spread
    )  # differences first: costs are large integers
    return jnp.mean((error - jnp.mean(error)) ** 2)


def step(
    state: TrainState, key: jax.Array, batch: Configurations, *, settings: Settings
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Return the state after a step on configurations of one graph, and metrics.

    Configurations are drawn. In each, a random share of the decisions is flipped, from one decision
    to half of them. Then they are costed.
    """
    to_row, to_share, to_flips = jax.random.split(key, 3)
    count = settings.configurations
    fuse = batch.fuse[jax.random.randint(to_row, (count,), 0, len(batch.fuse), jnp.int32)]
    least = -jnp.log(jnp.maximum(batch.problem.num_choices, 2).astype(jnp.float32))
    most = jnp.log(jnp.float32(0.5))
    share = jnp.exp(jax.random.uniform(to_share, (count, 1), jnp.float32, least, most))
    flips = jax.random.uniform(to_flips, fuse.shape, jnp.float32) < share
    fuse = fuse ^ (flips & batch.problem.configurable[None])
    cost = jax.vmap(fusion_cost, (None, 0))(batch.problem, fuse)
    value, gradient = jax.value_and_grad(loss)(state.params, batch, fuse, cost, settings=settings)
    return state.apply_gradients(grads=gradient), {"loss": value}


def guide(
    params: Tree, graphs: GraphsTuple, configurable: Bool[jax.Array, " N"], *, settings: Settings
) -> Guide:
    """Return a guide that maps decisions `[N]` to the saving of each flip, by the cost's gradient.

    Args:
      params: parameters of the model.
      graphs: the graph with features, see `inputs`.
      configurable: bool `[N]`, ops that have a decision.
      settings: settings of the model.
    """
    nodes = encode(params, graphs, settings=settings)

    def scores(decisions: jax.Array) -> jax.Array:
        fused = decisions.astype(jnp.float32)
        slope = jax.grad(lambda fused: predicted(params, nodes, graphs, fused))(fused)
        return jnp.where(configurable, slope * (2 * fused - 1), -jnp.inf)

    return scores
