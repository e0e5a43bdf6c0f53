"""A policy shared by graphs: the probability that each op is fused, trained by REINFORCE.

This is a baseline for learned advantages: another way to profit from other graphs. It is sampled
as it is (zero-shot), or trained on the graph itself with the evaluations made there (fine-tuned).
Decisions are independent given the graph; that and the training are our choices.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Bool, Float32, Int32, PRNGKeyArray

from gopt.cost.fusion.cost import fusion_cost
from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.sage import GraphSAGE
from gopt.learning.losses import leave_one_out, reinforce
from gopt.learning.train import TrainState
from gopt.search.population import DecisionCost, DecisionResult
from gopt.systems.local_advantage.cost_model import Configurations
from gopt.systems.local_advantage.settings import Settings
from gopt.systems.local_advantage.training import start

__all__ = ["Batch", "best_of", "init", "logits", "loss", "minimize", "sample", "start", "step"]

Tree = Any
FINE_TUNING = 1e-3  # Adam learning rate of fine-tuning


class Batch(NamedTuple):
    """Configurations that were drawn, and their costs.

    Attributes:
      fuse: bool `[C, N]`, fused ops.
      cost: `[C]`, costs.
    """

    fuse: jax.Array
    cost: jax.Array


class _Policy(nn.Module):
    width: int
    rounds: int

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        nodes = GraphSAGE(self.width, self.rounds)(graphs)
        return nn.Dense(1)(nn.gelu(nn.Dense(self.width)(nodes)))[:, 0]


@partial(jax.jit, static_argnames="settings")  # one program, not one for each of its ops
def init(key: jax.Array, inputs: GraphsTuple, *, settings: Settings) -> Tree:
    """Return random parameters. The inputs only give shapes."""
    return _Policy(settings.width, settings.rounds).init(key, inputs)


def logits(params: Tree, graphs: GraphsTuple, *, settings: Settings) -> Float32[jax.Array, " N"]:
    """Return the log-odds that each op is fused, float32 `[N]`."""
    return jnp.asarray(_Policy(settings.width, settings.rounds).apply(params, graphs))


def sample(
    key: jax.Array, logits: jax.Array, configurable: jax.Array, cost: DecisionCost, *, count: int
) -> Batch:
    """Return configurations drawn from log-odds `[N]`, with their costs."""
    shape = (count, len(logits))
    drawn = jax.random.uniform(key, shape, jnp.float32) < jax.nn.sigmoid(logits)[None]
    fuse = drawn & configurable[None]
    return Batch(fuse, cost(fuse.astype(jnp.int32)))


def loss(
    params: Tree,
    graphs: GraphsTuple,
    configurable: Bool[jax.Array, " N"],
    batch: Batch,
    *,
    settings: Settings,
) -> jax.Array:
    """Return the loss of REINFORCE, with rewards in standard deviations of the batch.

    Args:
      params: parameters of the policy.
      graphs: the graph with features, see `inputs`.
      configurable: bool `[N]`, ops that have a decision.
      batch: configurations drawn from the policy.
      settings: settings of the policy.
    """
    found = logits(params, graphs, settings=settings)
    each = -optax.sigmoid_binary_cross_entropy(found[None], batch.fuse.astype(jnp.float32))
    log_prob = jnp.sum(jnp.where(configurable[None], each, 0.0), 1)
    saved = (batch.cost[0] - batch.cost).astype(jnp.float32)
    reward = saved / jnp.maximum(jnp.std(saved), 1.0)
    return reinforce(log_prob, reward, leave_one_out(reward))


def step(
    state: TrainState, key: PRNGKeyArray, batch: Configurations, *, settings: Settings
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Return the state after a step on one graph, and metrics.

    The metric `share` is the mean cost of the draws ÷ the cost without any fusion.

    Args:
      state: state before the step.
      key: random key.
      batch: the graph; its configurations are not used.
      settings: settings of the policy.
    """
    problem, graphs = batch.problem, batch.graphs
    found = logits(state.params, graphs, settings=settings)

    def cost(decisions: jax.Array) -> jax.Array:
        return jax.vmap(fusion_cost, (None, 0))(problem, decisions > 0)

    drawn = sample(key, found, problem.configurable, cost, count=settings.configurations)
    gradient = jax.grad(loss)(state.params, graphs, problem.configurable, drawn, settings=settings)
    share = jnp.mean(drawn.cost / cost(jnp.zeros((1, len(found)), jnp.int32)))
    return state.apply_gradients(grads=gradient), {"share": share}


def best_of(
    key: PRNGKeyArray,
    params: Tree,
    graphs: GraphsTuple,
    configurable: Bool[jax.Array, " N"],
    cost: DecisionCost,
    start: Int32[jax.Array, " N"],
    *,
    evaluations: int,
    settings: Settings,
    learning_rate: float = 0.0,
) -> DecisionResult:
    """Return the best of a start, the likeliest configuration, and batches of draws.

    By default the policy is fixed: zero-shot. With a learning rate it is trained on each batch: it
    is fine-tuned to the graph. The last, incomplete batch is drawn alone.

    Args:
      key: random key.
      params: parameters of the policy.
      graphs: the graph with features, see `inputs`.
      configurable: bool `[N]`, ops that have a decision.
      cost: maps decisions `[P, N]` to costs `[P]`.
      start: int32 `[N]`, decisions to start from.
      evaluations: number of candidates to evaluate.
      settings: settings of the policy.
      learning_rate: constant Adam learning rate.

    Raises:
      ValueError: `evaluations` is less than two.
    """
    if not evaluations >= 2:
        raise ValueError(f"evaluations is {evaluations}: expected 2 at least")
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))

    def learn(state: Any, batch: Batch) -> Any:
        if not learning_rate:
            return state
        _, params, moments = state
        gradient = jax.grad(loss)(params, graphs, configurable, batch, settings=settings)
        updates, moments = rule.update(gradient, moments, params)
        params = optax.apply_updates(params, updates)
        return logits(params, graphs, settings=settings), params, moments

    state = logits(params, graphs, settings=settings), params, rule.init(params)
    first = jnp.stack([start > 0, (state[0] > 0) & configurable])
    costs = cost(first.astype(jnp.int32))

    def better(kept: Batch, batch: Batch) -> Batch:
        """Return the best of one and of others; both are batches."""
        fuse, cost = jnp.concatenate([kept.fuse, batch.fuse]), jnp.append(kept.cost, batch.cost)
        least = jnp.argmin(cost)[None]
        return Batch(fuse[least], cost[least])

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        state, kept = carry
        batch = sample(key, state[0], configurable, cost, count=size)
        return (learn(state, batch), better(kept, batch)), batch.cost

    to_batches, to_rest = jax.random.split(key)
    size = settings.configurations
    batches, rest = divmod(evaluations - 2, size)
    kept = better(Batch(first[:1], costs[:1]), Batch(first[1:], costs[1:]))
    keys = jax.random.split(to_batches, batches)
    (state, kept), drawn = lax.scan(step, (state, kept), keys)
    history = [costs, drawn.ravel()]
    if rest:
        last = sample(to_rest, state[0], configurable, cost, count=rest)
        kept = better(kept, last)
        history.append(last.cost)
    decisions = kept.fuse[0].astype(jnp.int32)
    return DecisionResult(decisions, kept.cost[0], lax.cummin(jnp.concatenate(history)))


minimize = partial(best_of, learning_rate=FINE_TUNING)
