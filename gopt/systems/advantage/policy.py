"""A policy that is shared by graphs: how likely each op is fused, by REINFORCE.

Another way to profit from other graphs, which learned advantages are compared with: it is sampled
as it is (zero-shot), or trained on the graph itself with what is evaluated there (fine-tuned).
Decisions are independent given the graph; that and the training are our choices.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax

from gopt.cost.fusion import cloned_cost
from gopt.losses import leave_one_out, reinforce
from gopt.nets.graphs import GraphsTuple
from gopt.nets.sage import GraphSAGE
from gopt.search.decisions import Cost, Result
from gopt.systems.advantage.cost_model import Configurations
from gopt.systems.advantage.settings import Settings
from gopt.systems.advantage.training import TrainState, optimizer

Tree = Any
FINE_TUNING = 1e-3  # learning rate


class Batch(NamedTuple):
    """Configurations that were drawn, and their costs."""

    fuse: jax.Array  # bool [C, N]
    cost: jax.Array  # [C]


class _Policy(nn.Module):
    width: int
    rounds: int

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        nodes = GraphSAGE(self.width, self.rounds)(graphs)
        return nn.Dense(1)(nn.gelu(nn.Dense(self.width)(nodes)))[:, 0]


def init(key: jax.Array, graphs: GraphsTuple, *, settings: Settings) -> TrainState:
    """Returns the state before the first step; `graphs` is one graph, for its shapes."""
    params = _Policy(settings.width, settings.rounds).init(key, graphs)
    return TrainState(params, optimizer(settings).init(params))


def logits(params: Tree, graphs: GraphsTuple, *, settings: Settings) -> jax.Array:
    """Returns the log-odds that each op is fused, float32 `[N]`."""
    return jnp.asarray(_Policy(settings.width, settings.rounds).apply(params, graphs))


def sample(
    key: jax.Array, logits: jax.Array, configurable: jax.Array, cost: Cost, *, count: int
) -> Batch:
    """Returns configurations drawn from log-odds `[N]`, with their costs."""
    shape = (count, len(logits))
    fuse = (jax.random.uniform(key, shape) < jax.nn.sigmoid(logits)) & configurable
    return Batch(fuse, cost(fuse.astype(jnp.int32)))


def loss(
    params: Tree,
    graphs: GraphsTuple,
    configurable: jax.Array,
    batch: Batch,
    *,
    settings: Settings,
) -> jax.Array:
    """Returns the loss of REINFORCE, with rewards in standard deviations of the batch.

    Args:
      params: of the policy.
      graphs: see `to_graphs_tuple`.
      configurable: which ops have a decision, bool `[N]`.
      batch: drawn from the policy.
      settings: of the policy.
    """
    found = logits(params, graphs, settings=settings)
    each = jnp.where(batch.fuse, jax.nn.log_sigmoid(found), jax.nn.log_sigmoid(-found))
    log_prob = jnp.sum(jnp.where(configurable, each, 0.0), 1)
    saved = (batch.cost[0] - batch.cost).astype(jnp.float32)
    reward = saved / jnp.maximum(jnp.std(saved), 1.0)
    return reinforce(log_prob, reward, leave_one_out(reward))


def step(
    state: TrainState, key: jax.Array, data: Configurations, *, settings: Settings
) -> tuple[TrainState, jax.Array]:
    """Returns the state after a batch of one graph, and its mean cost, of what nothing fused costs.

    Args:
      state: before.
      key: random key.
      data: the graph; its configurations are not used.
      settings: of the policy.
    """
    problem, graphs = data.problem, data.graphs
    found = logits(state.params, graphs, settings=settings)

    def cost(decisions: jax.Array) -> jax.Array:
        return jax.vmap(cloned_cost, (None, 0))(problem, decisions > 0)

    batch = sample(key, found, problem.configurable, cost, count=settings.configurations)
    gradient = jax.grad(loss)(state.params, graphs, problem.configurable, batch, settings=settings)
    updates, moments = optimizer(settings).update(gradient, state.optimizer, state.params)
    params = jax.tree.map(jnp.add, state.params, updates)
    share = jnp.mean(batch.cost / cost(jnp.zeros((1, len(found)), jnp.int32)))
    return TrainState(params, moments), share


def minimize(
    key: jax.Array,
    params: Tree,
    graphs: GraphsTuple,
    configurable: jax.Array,
    cost: Cost,
    start: jax.Array,
    *,
    evaluations: int,
    settings: Settings,
    learning_rate: float = FINE_TUNING,
) -> Result:
    """Returns the best that a policy draws while it is trained on one graph.

    The first candidates are the start and the likeliest configuration, the others are drawn in
    batches; those after the last whole batch are drawn, but not learned from.

    Args:
      key: random key.
      params: of the policy before.
      graphs: see `to_graphs_tuple`.
      configurable: which ops have a decision, bool `[N]`.
      cost: maps decisions `[P, N]` to costs `[P]`.
      start: decisions, int32 `[N]`.
      evaluations: how many candidates to evaluate.
      settings: of the policy.
      learning_rate: of the training; with 0 it is only sampled.

    Raises:
      ValueError: `evaluations` is less than two.
    """
    if evaluations < 2:
        raise ValueError(f"evaluations is {evaluations}: expected 2 at least")
    size = settings.configurations
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))
    likeliest = (logits(params, graphs, settings=settings) > 0) & configurable
    first = jnp.stack([start, likeliest.astype(start.dtype)])
    costs = cost(first)

    def best(kept: tuple[jax.Array, jax.Array], batch: Batch) -> tuple[jax.Array, jax.Array]:
        fuse, least = kept
        index = jnp.argmin(batch.cost)
        is_better = batch.cost[index] < least
        return jnp.where(is_better, batch.fuse[index], fuse), jnp.minimum(batch.cost[index], least)

    def draw(key: jax.Array, params: Tree, count: int) -> Batch:
        found = logits(params, graphs, settings=settings)
        return sample(key, found, configurable, cost, count=count)

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        params, moments, kept = carry
        batch = draw(key, params, size)
        gradient = jax.grad(loss)(params, graphs, configurable, batch, settings=settings)
        updates, moments = rule.update(gradient, moments, params)
        params = jax.tree.map(jnp.add, params, updates)
        return (params, moments, best(kept, batch)), batch.cost

    kept = best((start > 0, costs[0]), Batch(first > 0, costs))
    to_steps, to_rest = jax.random.split(key)
    batches, rest = divmod(evaluations - 2, size)
    carry = params, rule.init(params), kept
    (params, _, kept), found = lax.scan(step, carry, jax.random.split(to_steps, batches))
    last = draw(to_rest, params, rest) if rest else Batch(first[:0] > 0, costs[:0])
    kept = best(kept, last) if rest else kept
    history = lax.cummin(jnp.concatenate([costs, found.ravel(), last.cost]))
    return Result(kept[0].astype(jnp.int32), kept[1], history)
