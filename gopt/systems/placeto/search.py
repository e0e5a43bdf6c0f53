"""Searches by Placeto: training on one graph is the search."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import Problem
from gopt.search.result import SearchResult
from gopt.systems.placeto.inputs import Inputs
from gopt.systems.placeto.policy import init
from gopt.systems.placeto.settings import Settings
from gopt.systems.placeto.training import Cost, State, Task, start, step

Tree = Any


def run(
    key: jax.Array,
    inputs: Inputs,
    cost: Cost,
    *,
    steps: int,
    settings: Settings,
    params: Tree | None = None,
) -> tuple[State, jax.Array]:
    """Return the state after some steps, and the costs after each visit, `[steps, K, E]`.

    One more placement is costed: the one that episodes begin with.

    Args:
      key: random key.
      inputs: the graph on a machine.
      cost: maps devices of ops, int32 `[P, N]`, to costs, float32 `[P]`.
      steps: number of steps.
      settings: settings of the policy, with `steps` replaced by the given number.
      params: parameters to begin with; by default random ones.

    Raises:
      ValueError: `steps` is less than one.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}: expected 1 at least")
    to_init, to_run = jax.random.split(key)
    settings = dataclasses.replace(settings, steps=steps)
    task = Task(inputs, cost)
    params = init(to_init, inputs, settings=settings) if params is None else params

    def one(state: State, key: jax.Array) -> tuple[State, jax.Array]:
        state, metrics = step(state, key, task, settings=settings)
        return state, metrics["costs"]

    first = start(params, task, settings=settings)
    return lax.scan(one, first, jax.random.split(to_run, steps))


def search(
    key: jax.Array,
    problem: Problem,
    params: Tree | None,
    *,
    inputs: Inputs,
    objective: str,
    evaluations: int,
    settings: Settings,
) -> SearchResult:
    """Return the best placement that training draws, int32 `[N]`, devices of ops.

    Args:
      key: random key.
      problem: one problem.
      params: parameters to begin with; random ones if None, as published.
      inputs: the same problem as the policy reads it.
      objective: objective to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: number of placements that may be costed.
      settings: settings of the policy.

    Raises:
      ValueError: the evaluations do not suffice for a step.
    """
    of_keys = dispatch.population_cost(problem, objective)

    def cost(device: jax.Array) -> jax.Array:
        return of_keys(jax.vmap(partial(dispatch.placement, problem))(device))

    groups = len(inputs.about)
    steps = (evaluations - 1) // (settings.episodes * groups)
    state, costs = run(key, inputs, cost, steps=steps, settings=settings, params=params)
    known = jnp.concatenate([state.first[None], costs.min(2).ravel()])
    known = jnp.where(jnp.isfinite(known), known, jnp.inf)
    visits = jnp.arange(1 + steps * groups, dtype=jnp.int32)
    evaluated = 1 + settings.episodes * visits
    return SearchResult(state.device, state.cost, lax.cummin(known), evaluated)
