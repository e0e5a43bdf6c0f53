"""REINFORCE for HDP, on one graph, from scratch: training is the search."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from gopt.learning import losses
from gopt.systems.hdp.inputs import Inputs
from gopt.systems.hdp.policy import init_params, placements, sample
from gopt.systems.hdp.settings import Settings

Tree = Any
Cost = Callable[[jax.Array], jax.Array]  # devices of ops, int32 [P, N], to costs, float32 [P]


class State(NamedTuple):
    """What a search carries from step to step, and the best placement so far."""

    params: Tree
    optimizer: Tree
    unit: Any  # float32 [], mean of the first finite costs; no number before
    baseline: Any  # float32 [], moving average of rewards; no number before the first
    device: Any  # int32 [N], of the best placement, as of `gopt.cost.schedule.dispatch.settled`
    cost: Any  # float32 [], of the best placement; infinite before there is one


def init(key: jax.Array, inputs: Inputs, *, settings: Settings) -> State:
    """Returns the state before the first step."""
    params = init_params(key, inputs, settings=settings)
    return State(
        params=params,
        optimizer=optimizer(settings).init(params),
        unit=jnp.float32(jnp.nan),
        baseline=jnp.float32(jnp.nan),
        device=jnp.zeros(len(inputs.kind), jnp.int32),
        cost=jnp.float32(jnp.inf),
    )


def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Returns the optimizer of both networks."""
    return optax.chain(optax.clip_by_global_norm(settings.norm), optax.adam(settings.learning_rate))


def reward(costs: jax.Array, unit: jax.Array, settings: Settings) -> jax.Array:
    """Returns -√(cost / unit), `[...]`, for costs `[...]`.

    No cost counts more than `Settings.failing` units, and what is not finite counts so many.
    """
    ratio = costs / jnp.maximum(unit, 1e-30)
    is_cost = jnp.isfinite(ratio) & (ratio < settings.failing)
    return -jnp.sqrt(jnp.where(is_cost, ratio, settings.failing))


def step(
    key: jax.Array, state: State, inputs: Inputs, cost: Cost, *, settings: Settings
) -> tuple[State, jax.Array]:
    """Returns the state after a step of REINFORCE, and the costs of what was drawn in it, `[S]`.

    `S = groupings · placements` placements are costed. The first baseline is the mean reward of the
    first step: our choice.

    Args:
      key: random key.
      state: as of `init`.
      inputs: the graph.
      cost: what is minimised, of devices of ops `[S, N]`: float32 `[S]`.
      settings: of the policy.
    """

    def draw(params: Tree) -> tuple[jax.Array, Any]:
        actions, log_prob = sample(key, params, inputs, settings=settings)
        return log_prob, actions

    log_prob, pull_back, actions = jax.vjp(draw, state.params, has_aux=True)
    placed = placements(inputs, actions)
    costs = cost(placed)

    finite = jnp.isfinite(costs)
    mean = jnp.where(finite, costs, 0).sum() / finite.sum()
    unit = jnp.where(jnp.isnan(state.unit), mean, state.unit)
    rewards = reward(costs, unit, settings)
    baseline = jnp.where(jnp.isnan(state.baseline), rewards.mean(), state.baseline)
    slope = jax.grad(losses.reinforce)(log_prob, rewards.reshape(log_prob.shape), baseline)
    (gradient,) = pull_back(slope)
    updates, moments = optimizer(settings).update(gradient, state.optimizer, state.params)

    known = jnp.where(finite, costs, jnp.inf)
    best = jnp.argmin(known)
    better = known[best] < state.cost
    after = State(
        params=optax.apply_updates(state.params, updates),
        optimizer=moments,
        unit=unit,
        baseline=settings.decay * baseline + (1 - settings.decay) * rewards.mean(),
        device=jnp.where(better, placed[best], state.device),
        cost=jnp.where(better, known[best], state.cost),
    )
    return after, costs


def run(
    key: jax.Array, inputs: Inputs, cost: Cost, *, steps: int, settings: Settings
) -> tuple[State, jax.Array]:
    """Returns the state after some steps, and the costs of what was drawn in each, `[steps, S]`.

    The other arguments are those of `step`.

    Raises:
      ValueError: `steps` is less than one.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}: expected 1 at least")
    to_init, to_run = jax.random.split(key)
    state = init(to_init, inputs, settings=settings)

    def one(state: State, key: jax.Array) -> tuple[State, jax.Array]:
        return step(key, state, inputs, cost, settings=settings)

    return lax.scan(one, state, jax.random.split(to_run, steps))
