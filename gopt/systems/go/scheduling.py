"""Schedules that GO finds, as keys of `gopt.cost.schedule.execution`.

Every schedule of `gopt.cost.schedule.dispatch` has an equal one in `execution`: it issues the same
items in the same order, and has the same makespan and peaks. So results under priority dispatch
can be compared with heuristics that decide item by item.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from gopt.cost.schedule import dispatch, objectives
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.baselines import heuristic_keys, tried
from gopt.heuristics.schedule.encode import keys_from_items
from gopt.search.loop import Loop, MakeLoop, Run, whole
from gopt.search.result import SearchResult
from gopt.systems.go.decisions import (
    State,
    begin,
    critical_path_order,
    keys_of,
    order_of,
    simulator_of,
)
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.policy import embed
from gopt.systems.go.search import iterate
from gopt.systems.go.settings import Settings

Tree = Any
TASKS = ("placement", "scheduling")


def search(
    key: PRNGKeyArray,
    problem: Problem,
    params: Tree,
    *,
    inputs: Inputs,
    objective: str,
    evaluations: int,
    settings: Settings,
    run: Run | None = None,
) -> SearchResult:
    """Return the keys of the best schedule found, heuristics included.

    GO begins with the best of the heuristics' placements under dispatch, each with priorities in
    its own order and by critical path. If the budget leaves no iteration, the best heuristic within
    the budget is returned; at least one is tried.

    Args:
      key: random key.
      problem: one problem, on the host.
      params: parameters of a policy.
      inputs: the same problem as the policy reads it.
      objective: objective to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: number of schedules that may be simulated, heuristics included.
      settings: settings of the policy. Tasks that are not about schedules are left out.
      run: how the loop runs, see `gopt.search.loop`; by default in one jitted call.

    Raises:
      ValueError: the policy decides neither placement nor scheduling.
    """
    tasks = tuple(task for task in settings.tasks if task in TASKS)
    if not tasks:
        raise ValueError(f"the policy decides {settings.tasks}: expected some of {TASKS}")
    if problem.num_devices == 1:
        tasks = tuple(task for task in tasks if task != "placement")
    left = evaluations - tried(problem)
    given = jax.tree.map(lambda leaf: leaf[: max(left, 1)], heuristic_keys(problem))
    costs = np.asarray(_costs(problem, given, objective=objective))
    best = jax.tree.map(lambda leaf: leaf[np.argmin(costs)], given)
    of_heuristics = SearchResult(
        best, costs.min(), np.minimum.accumulate(costs)[-1:], np.array([evaluations - left])
    )
    if not tasks:
        return of_heuristics
    settings = dataclasses.replace(settings, tasks=tasks)
    left -= 3 * len(costs) + 1  # two starts of each; the result is simulated once more
    if left < settings.evaluations_per_iteration:
        return of_heuristics
    iterations = left // settings.evaluations_per_iteration
    by_path = critical_path_order(problem)
    own = [order_of(problem, priority) for priority in given.priority]
    orders = np.stack([*own, *len(own) * [by_path]])
    device = np.argmax(np.concatenate([given.device, given.device]), -1)
    starts = jax.device_get(_starts(problem, device, orders, objective=objective))
    first = int(np.argmin(starts.cost))
    done, cost, device, items, count = jax.device_get(
        (run or _whole)(
            _loop,
            key,
            params,
            problem,
            inputs,
            jax.tree.map(lambda leaf: leaf[first], starts),
            orders[first],
            objective=objective,
            iterations=iterations,
            settings=settings,
        )
    )
    if cost >= costs.min():
        return of_heuristics
    keys = keys_from_items(problem, device[: int(problem.num_ops)], items[:count])
    history = np.array([costs.min(), cost])
    used = int(done) * settings.evaluations_per_iteration
    evaluated = np.array([evaluations - left, evaluations - left + used])
    return SearchResult(keys, cost, history, evaluated)


@partial(jax.jit, static_argnames="objective")
def _costs(problem: Problem, keys: Keys, *, objective: str) -> jax.Array:
    """Return the costs of candidates by `gopt.cost.schedule.execution`, float32 `[P]`."""
    return objectives.population_cost(problem, objective)(keys)


@partial(jax.jit, static_argnames="objective")
def _starts(problem: Problem, device: jax.Array, orders: jax.Array, *, objective: str) -> State:
    """Return decisions to start from, each in its order, `[P, ...]`."""

    def one(row: tuple[jax.Array, jax.Array]) -> State:
        return begin(problem, row[0], simulator_of(problem, objective, row[1]))

    return jax.lax.map(one, (device, orders))


def _loop(
    key: jax.Array,
    params: Tree,
    problem: Problem,
    inputs: Inputs,
    start: State,
    order: jax.Array,
    *,
    objective: str,
    iterations: int,
    settings: Settings,
) -> Loop:
    """Return GO's search as a loop over iterations.

    Its result is the number of iterations, the cost of the best decision, devices, items as issued,
    and the number of items.
    """
    simulator = simulator_of(problem, objective, order)
    keys = jax.random.split(key, iterations)

    def step(carry: tuple[State, Any], index: Any) -> tuple[State, Any]:
        best, embedding = carry
        best, _ = iterate(
            keys[index], params, embedding, inputs, best, simulator, settings=settings
        )
        return best, embedding

    def early(carry: tuple[State, Any], done: int) -> tuple[Any, ...]:
        best, _ = carry
        decided = keys_of(problem, order, best.decision)
        schedule = dispatch.simulate(problem, dispatch.decode(problem, decided))
        return done, best.cost, schedule.device, schedule.order, schedule.num_items

    return Loop(
        start=lambda: (start, embed(params, inputs, settings=settings)),
        step=step,
        steps=iterations,
        finish=lambda carry: early(carry, iterations),
        early=early,
        least=lambda carry: carry[0].cost,
    )


@partial(jax.jit, static_argnums=0, static_argnames=("objective", "iterations", "settings"))
def _whole(make: MakeLoop, *arrays: Any, **options: Any) -> Any:
    return whole(make, *arrays, **options)
