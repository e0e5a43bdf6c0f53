"""REINFORCE for Placeto, on one graph, from scratch: training is the search."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from gopt.learning import losses
from gopt.systems.placeto.inputs import Inputs
from gopt.systems.placeto.policy import init_params, placement, sample, visits
from gopt.systems.placeto.settings import Settings

Tree = Any
Cost = Callable[[jax.Array], jax.Array]  # devices of ops, int32 [P, N], to costs, float32 [P]


class State(NamedTuple):
    """What a search carries from step to step, and the best placement so far."""

    params: Tree
    optimizer: Tree
    returns: Any  # float32 [M, K], mean returns of each visit in the last steps; no numbers before
    first: Any  # float32 [], the cost of the placement that episodes begin with
    unit: Any  # float32 [], that, or else the least of the first finite costs; no number before
    device: Any  # int32 [N], of the best placement, as of `gopt.cost.schedule.dispatch.settled`
    cost: Any  # float32 [], of the best placement; infinite before there is one


def init(key: jax.Array, inputs: Inputs, cost: Cost, *, settings: Settings) -> State:
    """Returns the state before the first step. One placement is costed: all on one device."""
    params = init_params(key, inputs, settings=settings)
    groups = len(inputs.about)
    device = placement(inputs, jnp.zeros(groups, jnp.int32))
    first = cost(device[None])[0]
    return State(
        params=params,
        optimizer=optimizer(settings, 1).init(params),
        returns=jnp.full((settings.memory, groups), jnp.nan),
        first=first,
        unit=jnp.where(jnp.isfinite(first), first, jnp.nan),
        device=device,
        cost=jnp.where(jnp.isfinite(first), first, jnp.inf),
    )


def optimizer(settings: Settings, steps: int) -> optax.GradientTransformation:
    """Returns the optimizer, for so many steps."""
    rate = optax.linear_schedule(settings.learning_rate, settings.last_rate, steps)
    return optax.chain(optax.clip_by_global_norm(settings.norm), optax.adam(rate))


def returns(first: jax.Array, costs: jax.Array, unit: jax.Array, settings: Settings) -> jax.Array:
    """Returns by how much costs fall from before each visit to the end of an episode, `[..., K]`.

    The reward of a visit is by how much the cost falls, in units; what is not finite, or costs more
    than `Settings.failing` units, counts so many.

    Args:
      first: cost of the placement that episodes begin with, `[]`.
      costs: after each visit, `[..., K]`.
      unit: of costs, `[]`.
      settings: of the search.
    """
    first = jnp.broadcast_to(first, (*costs.shape[:-1], 1))
    ratio = jnp.concatenate([first, costs], -1) / jnp.maximum(unit, 1e-30)
    is_cost = jnp.isfinite(ratio) & (ratio < settings.failing)
    ratio = jnp.where(is_cost, ratio, settings.failing)
    return ratio[..., :-1] - ratio[..., -1:]


def loss(
    params: Tree,
    inputs: Inputs,
    last: jax.Array,
    followed: jax.Array,
    baseline: jax.Array,
    entropy: jax.Array,
    *,
    settings: Settings,
) -> jax.Array:
    """Returns the loss of a step, `[]`.

    Args:
      params: of the policy.
      inputs: the graph.
      last: devices of groups after each episode, int32 `[E, K]`.
      followed: return of each visit, `[E, K]`.
      baseline: of each visit, `[K]`.
      entropy: weight of the entropy.
      settings: of the policy.
    """
    first = jnp.zeros(last.shape[1], jnp.int32)
    said = jax.vmap(lambda last: visits(params, inputs, first, last, settings=settings))(last)
    baseline = jnp.broadcast_to(baseline, followed.shape)
    gained = losses.reinforce(said.log_prob, followed, baseline)
    return gained - entropy * said.entropy.mean()


def step(
    key: jax.Array,
    state: State,
    inputs: Inputs,
    cost: Cost,
    done: jax.Array,
    *,
    steps: int,
    settings: Settings,
) -> tuple[State, jax.Array]:
    """Returns the state after a step, and the costs after each visit, `[K, E]`.

    `E` episodes are played: each begins with all groups on one device, and visits one after
    another. The baseline of a visit is the mean of what followed it in the last steps.

    Args:
      key: random key.
      state: as of `init`.
      inputs: the graph.
      cost: what is minimised, of devices of ops `[E, N]`: float32 `[E]`.
      done: steps before this one, int32 `[]`.
      steps: how many there are to be.
      settings: of the search.
    """
    groups = len(inputs.about)

    def visit(carry: Any, row: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        device, best, best_cost = carry
        visited, key = row
        keys = jax.random.split(key, settings.episodes)

        def one(key: jax.Array, device: jax.Array) -> jax.Array:
            return sample(key, state.params, inputs, device, visited, settings=settings)

        device = jax.vmap(one)(keys, device)
        placed = jax.vmap(lambda each: placement(inputs, each))(device)
        costs = cost(placed)
        known = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        top = jnp.argmin(known)
        better = known[top] < best_cost
        best = jnp.where(better, placed[top], best)
        return (device, best, jnp.where(better, known[top], best_cost)), costs

    begin = jnp.zeros((settings.episodes, groups), jnp.int32), state.device, state.cost
    rows = jnp.arange(groups), jax.random.split(key, groups)
    (last, device, best), costs = lax.scan(visit, begin, rows)

    finite = jnp.where(jnp.isfinite(costs), costs, jnp.inf).min()
    known = jnp.where(jnp.isfinite(finite), finite, jnp.nan)
    unit = jnp.where(jnp.isnan(state.unit), known, state.unit)
    followed = returns(state.first, costs.T, unit, settings)
    kept = jnp.concatenate([state.returns[1:], followed.mean(0)[None]])
    told = last, followed, jnp.nanmean(kept, 0), settings.entropy * (1 - done / steps)
    gradient = jax.grad(loss)(state.params, inputs, *told, settings=settings)
    updates, moments = optimizer(settings, steps).update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return State(params, moments, kept, state.first, unit, device, best), costs


def run(
    key: jax.Array, inputs: Inputs, cost: Cost, *, steps: int, settings: Settings
) -> tuple[State, jax.Array]:
    """Returns the state after some steps, and the costs after each visit, `[steps, K, E]`.

    One placement more is costed, which episodes begin with. Other arguments are those of `step`.

    Raises:
      ValueError: `steps` is less than one.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}: expected 1 at least")
    to_init, to_run = jax.random.split(key)
    state = init(to_init, inputs, cost, settings=settings)

    def one(state: State, row: tuple[jax.Array, jax.Array]) -> tuple[State, jax.Array]:
        done, key = row
        return step(key, state, inputs, cost, done, steps=steps, settings=settings)

    return lax.scan(one, state, (jnp.arange(steps), jax.random.split(to_run, steps)))
