"""REINFORCE for HDP, on one graph, from scratch: training is the search."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from gopt.learning import losses, train
from gopt.systems import one_graph
from gopt.systems.hdp.inputs import Inputs
from gopt.systems.hdp.policy import placements, sample
from gopt.systems.hdp.settings import Settings
from gopt.systems.one_graph import Task

Tree = Any


class Trajectory(NamedTuple):
    """A draw of placements and its rewards. `M` groupings, `P` placements of each.

    Attributes:
      key: random key of the draw.
      inputs: the graph on a machine.
      reward: float32 `[M, P]`.
      baseline: float32 `[]`.
    """

    key: Any
    inputs: Inputs
    reward: Any
    baseline: Any


class State(one_graph.State):
    """The state of training; `unit` is the mean of the first finite costs.

    Attributes:
      baseline: float32 `[]`, moving average of rewards; infinite before the first.
    """

    baseline: Any


def start(params: Tree, task: Task, *, settings: Settings) -> State:
    """Return the state of training before the first step."""
    return train.start(
        params,
        optimizer(settings),
        State,
        unit=jnp.float32(jnp.inf),
        baseline=jnp.float32(jnp.inf),
        device=jnp.zeros(len(task.inputs.kind), jnp.int32),
        cost=jnp.float32(jnp.inf),
    )


@cache  # the same object for the same settings, see `gopt.learning.train.start`
def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Return the optimizer of both networks: Adam with the gradient clipped."""
    clip = optax.clip_by_global_norm(settings.max_gradient_norm)
    return optax.chain(clip, optax.adam(settings.learning_rate))


def reward(costs: jax.Array, unit: jax.Array, settings: Settings) -> jax.Array:
    """Return -√(cost / unit), `[...]`, for costs `[...]`.

    Costs are limited to `Settings.infeasible_cost` units. Costs that are not finite count as much.
    """
    return -jnp.sqrt(one_graph.in_units(costs, unit, infeasible_cost=settings.infeasible_cost))


def loss(
    params: Tree, batch: Trajectory, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the loss of REINFORCE, and metrics.

    Log-probabilities are conditional on the noise of the draw (`Settings.noise`), so the draw is
    repeated from its key.

    Args:
      params: parameters of the policy that drew the placements.
      batch: a draw and its rewards.
      settings: settings of the policy.
    """
    _, log_prob = sample(batch.key, params, batch.inputs, settings=settings)
    value = losses.reinforce(log_prob, batch.reward, batch.baseline)
    return value, {"reward": batch.reward.mean()}


def step(
    state: State, key: PRNGKeyArray, batch: Task, *, settings: Settings
) -> tuple[State, dict[str, jax.Array]]:
    """Return the state after a step of REINFORCE, and metrics.

    The policy learns on the one graph that it places. `S = groupings · placements` placements are
    costed. The first baseline is the mean reward of the first step: our choice. The gradient equals
    the gradient of `loss`, without drawing twice.

    Args:
      state: state before the step.
      key: random key.
      batch: the graph, and the cost to minimise.
      settings: settings of the policy.

    Returns:
      The state, and metrics: `costs`, float32 `[S]`, of all draws, and the mean `reward`.
    """
    inputs = batch.inputs

    def draw(params: Tree) -> tuple[jax.Array, Any]:
        actions, log_prob = sample(key, params, inputs, settings=settings)
        return log_prob, actions

    log_prob, pull_back, actions = jax.vjp(draw, state.params, has_aux=True)
    placed = placements(inputs, actions)
    costs = batch.cost(placed)

    finite = jnp.isfinite(costs)
    count = finite.sum(dtype=jnp.float32)
    mean = jnp.where(finite, costs, 0).sum() / jnp.maximum(count, 1)
    first = jnp.where(count > 0, mean, jnp.inf)
    unit = jnp.where(jnp.isfinite(state.unit), state.unit, first)
    rewards = reward(costs, unit, settings)
    baseline = jnp.where(jnp.isfinite(state.baseline), state.baseline, rewards.mean())
    slope = jax.grad(losses.reinforce)(log_prob, rewards.reshape(log_prob.shape), baseline)
    (gradient,) = pull_back(slope)

    device, best = one_graph.better(state.device, state.cost, placed, costs)
    after = state.apply_gradients(
        grads=gradient,
        unit=unit,
        baseline=settings.decay * baseline + (1 - settings.decay) * rewards.mean(),
        device=device,
        cost=best,
    )
    return after, {"costs": costs, "reward": rewards.mean()}
