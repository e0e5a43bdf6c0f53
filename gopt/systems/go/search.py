"""Iterations of GO: decisions are drawn around the best placement so far, and costed."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost import dispatch
from gopt.problem import Problem
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.policy import act, embed, log_prob, moves, sample
from gopt.systems.go.settings import Settings

Tree = Any
Cost = Callable[[jax.Array], jax.Array]  # devices of ops, int32 [P, N], to costs, float32 [P]


class Taken(NamedTuple):
    """What was decided in an iteration, and what came of it. `L` levels, `S` samples."""

    device: Any  # int32 [N], where ops ran before
    action: Any  # a tuple of int32 [S, K], one for each level
    log_prob: Any  # float32 [L, S]
    ratio: Any  # float32 [L, S], cost in shares of the cost before


class State(NamedTuple):
    """The best placement so far."""

    device: Any  # int32 [N], as of `gopt.cost.dispatch.settled`
    cost: Any  # float32 []


def placement_cost(problem: Problem, objective: str) -> Cost:
    """Returns a map from devices of ops `[P, N]` to costs `[P]`, first come, first served.

    Raises:
      ValueError: there is no objective of that name.
    """
    cost = dispatch.population_cost(problem, objective)
    return lambda device: cost(jax.vmap(partial(dispatch.placement, problem))(device))


def begin(problem: Problem, device: jax.Array, cost: Cost) -> State:
    """Returns a placement to start from: ops on these devices, where they may, `[N]`."""
    device = dispatch.settled(problem, device)
    return State(device, cost(device[None])[0])


def iterate(
    key: jax.Array,
    params: Tree,
    ops: jax.Array,
    inputs: Inputs,
    state: State,
    cost: Cost,
    *,
    settings: Settings,
) -> tuple[State, Taken]:
    """Returns the best placement after an iteration, and what was taken in it.

    `L · S` placements are costed: `Settings.samples` for each level, each of them a change of the
    groups of this level only.

    Args:
      key: random key.
      params: of the policy.
      ops: embeddings, as of `embed`.
      inputs: the graph.
      state: the best placement before.
      cost: what is minimised, as of `placement_cost`.
      settings: of the policy.
    """
    actions, log_probs, placements = [], [], []
    for level, to_sample in enumerate(jax.random.split(key, len(settings.levels))):
        found = moves(params, ops, inputs, state.device, level=level, settings=settings)
        action = sample(to_sample, found.logits, settings.samples)
        actions.append(action)
        log_probs.append(log_prob(found.logits, action))
        placements.append(act(state.device, action, inputs.group[level]))
    placed = jnp.concatenate(placements)
    costs = cost(placed)
    best = jnp.nanargmin(costs)
    better = costs[best] <= state.cost
    after = State(
        jnp.where(better, placed[best], state.device), jnp.where(better, costs[best], state.cost)
    )
    ratio = jnp.where(costs == state.cost, 1, costs / jnp.maximum(state.cost, 1e-30))
    ratio = ratio.reshape(len(actions), -1)
    return after, Taken(state.device, tuple(actions), jnp.stack(log_probs), ratio)


def rollout(
    key: jax.Array,
    params: Tree,
    inputs: Inputs,
    start: State,
    cost: Cost,
    *,
    iterations: int,
    settings: Settings,
) -> tuple[State, Taken, jax.Array]:
    """Returns the best placement after some iterations, what was taken, and costs after each.

    The arguments are those of `iterate`; `start` is the placement to begin with, as of `begin`.
    """
    ops = embed(params, inputs, settings=settings)

    def step(state: State, key: jax.Array) -> tuple[State, Any]:
        after, taken = iterate(key, params, ops, inputs, state, cost, settings=settings)
        return after, (taken, after.cost)

    state, (taken, history) = lax.scan(step, start, jax.random.split(key, iterations))
    return state, taken, history
