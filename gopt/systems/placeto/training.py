"""REINFORCE for Placeto, on one graph, from scratch: training is the search."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Shaped

from gopt.learning import losses, train
from gopt.systems import one_graph
from gopt.systems.one_graph import Task
from gopt.systems.placeto.inputs import Inputs
from gopt.systems.placeto.policy import placement, sample, visits
from gopt.systems.placeto.settings import Settings

Tree = Any


class Trajectory(NamedTuple):
    """Episodes and the return of each visit. `E` episodes, `K` groups.

    Attributes:
      inputs: the graph on a machine.
      last: int32 `[E, K]`, devices of groups after each episode.
      returns: float32 `[E, K]`, return of each visit, see `returns`.
      baseline: float32 `[K]`, baseline of each visit.
      entropy: float32 `[]`, weight of the entropy.
    """

    inputs: Inputs
    last: Any
    returns: Any
    baseline: Any
    entropy: Any


class State(one_graph.State):
    """The state of training; `unit` is `first`, or else the least of the first finite costs.

    Attributes:
      returns: float32 `[M, K]`, mean returns of each visit in the last steps; infinite before.
      first: float32 `[]`, cost of the placement that episodes begin with.
    """

    returns: Any
    first: Any


def start(params: Tree, task: Task, *, settings: Settings) -> State:
    """Return the state before the first step. One placement is costed: all on one device."""
    groups = len(task.inputs.about)
    device = placement(task.inputs, jnp.zeros(groups, jnp.int32))
    first = task.cost(device[None])[0]
    return train.start(
        params,
        optimizer(settings),
        State,
        returns=jnp.full((settings.memory, groups), jnp.inf, jnp.float32),
        first=first,
        unit=one_graph.finite(first),
        device=device,
        cost=one_graph.finite(first),
    )


@cache  # the same object for the same settings, see `gopt.learning.train.start`
def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Return the optimizer: Adam with the gradient clipped and a rate that falls linearly."""
    rate = optax.linear_schedule(settings.learning_rate, settings.last_rate, settings.steps)
    return optax.chain(optax.clip_by_global_norm(settings.max_gradient_norm), optax.adam(rate))


def returns(
    first: Shaped[jax.Array, ""],
    costs: Shaped[jax.Array, "... K"],
    unit: Shaped[jax.Array, ""],
    settings: Settings,
) -> jax.Array:
    """Return the fall of the cost from before each visit to the end of an episode, `[..., K]`.

    The reward of a visit is the fall of the cost, in units. Costs that are not finite, or exceed
    `Settings.infeasible_cost` units, count as that many units.

    Args:
      first: cost of the placement that episodes begin with, `[]`.
      costs: costs after each visit, `[..., K]`.
      unit: unit of costs, `[]`.
      settings: settings of the search.
    """
    first = jnp.broadcast_to(first, (*costs.shape[:-1], 1))
    every = jnp.concatenate([first, costs], -1)
    ratio = one_graph.in_units(every, unit, infeasible_cost=settings.infeasible_cost)
    return ratio[..., :-1] - ratio[..., -1:]


def loss(
    params: Tree, batch: Trajectory, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the loss of a step, and metrics.

    Args:
      params: parameters of the policy.
      batch: episodes and their returns.
      settings: settings of the policy.
    """
    inputs, last, followed, baseline, entropy = batch
    first = jnp.zeros(last.shape[1], jnp.int32)
    found = jax.vmap(lambda last: visits(params, inputs, first, last, settings=settings))(last)
    baseline = jnp.broadcast_to(baseline, followed.shape)
    gained = losses.reinforce(found.log_prob, followed, baseline)
    mean = found.entropy.mean()
    return gained - entropy * mean, {"entropy": mean}


def step(
    state: State, key: jax.Array, batch: Task, *, settings: Settings
) -> tuple[State, dict[str, jax.Array]]:
    """Return the state after a step, and metrics.

    The policy learns on the one graph that it places. `E` episodes are played. Each begins with all
    groups on one device, and visits one after another. The baseline of a visit is its mean return
    in the last steps.

    The arguments are as in `gopt.systems.hdp.step`. The metrics are `costs`, float32 `[K, E]`,
    after each visit, and the mean `entropy`.
    """
    inputs, cost = batch.inputs, batch.cost
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
        return (device, *one_graph.better(best, best_cost, placed, costs)), costs

    begin = jnp.zeros((settings.episodes, groups), jnp.int32), state.device, state.cost
    rows = jnp.arange(groups, dtype=jnp.int32), jax.random.split(key, groups)
    (last, device, best), costs = lax.scan(visit, begin, rows)

    unit = jnp.where(jnp.isfinite(state.unit), state.unit, one_graph.finite(costs).min())
    followed = returns(state.first, costs.T, unit, settings)
    kept = jnp.concatenate([state.returns[1:], followed.mean(0)[None]])
    weight = settings.entropy * (1 - jnp.float32(state.step) / settings.steps)
    is_known = jnp.isfinite(kept)
    baseline = jnp.where(is_known, kept, 0).sum(0) / is_known.sum(0, dtype=jnp.float32)
    played = Trajectory(inputs, last, followed, baseline, weight)
    slope = jax.grad(loss, has_aux=True)
    gradient, metrics = slope(state.params, played, settings=settings)
    after = state.apply_gradients(grads=gradient, returns=kept, unit=unit, device=device, cost=best)
    return after, {**metrics, "costs": costs}
