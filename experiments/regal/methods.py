"""The searches that the REGAL experiment compares."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.classical import HEURISTICS, schedules_tried
from gopt.classical.memory_orders import ORDERS
from gopt.cost.execution import Keys, keys_shape, population_cost
from gopt.parallel import spread
from gopt.problem import Problem
from gopt.search import brkga, local, random
from gopt.systems import best, regal

DEVICES = 2
# What the heuristics try, the program's own order, and the orders that features compare.
LEAST = 1 + sum(schedules_tried(name, DEVICES) for name in HEURISTICS) + len(ORDERS)
STRONGEST = ("REGAL from heuristics", "best of gopt")
SEARCHES = (
    *("random search", "local search", "BRKGA", "BRKGA from heuristics"),
    *("REGAL untrained", "REGAL", "REGAL from heuristics", "best of gopt"),
)


class Found(NamedTuple):
    """What a search returns, as far as it is reported; its fields are those of `brkga.Result`."""

    keys: Keys
    cost: jax.Array
    history: jax.Array
    evaluations: jax.Array


def searches(
    objective: str, evaluations: int, settings: regal.Settings
) -> dict[str, Callable[[jax.Array, Problem, Any], Any]]:
    """Returns the searches: each maps (key, problem, what it starts from) to a result.

    Args:
      objective: what is minimised.
      evaluations: of each search, those of what it starts from included.
      settings: of the policies.
    """

    def standard(key: jax.Array, problem: Problem, _: Any) -> brkga.Result:
        cost = population_cost(problem, objective)
        return brkga.minimize(key, cost, keys_shape(problem), evaluations=evaluations)

    def seeded(key: jax.Array, problem: Problem, given: Keys) -> brkga.Result:
        cost = population_cost(problem, objective)
        left = evaluations - best.tried(problem)
        return brkga.minimize(key, cost, keys_shape(problem), evaluations=left, given=given)

    def chance(key: jax.Array, problem: Problem, _: Any) -> brkga.Result:
        cost = population_cost(problem, objective)
        return random.minimize(key, cost, keys_shape(problem), evaluations=evaluations)

    def climb(key: jax.Array, problem: Problem, given: Keys) -> local.Result:
        return local.minimize(
            key,
            population_cost(problem, objective),
            keys_shape(problem),
            evaluations=evaluations - best.tried(problem),
            settings=local.Settings(hot=0.0, cold=0.0),
            neighbour=partial(best.neighbour, problem),
            given=given,
        )

    def learned(key: jax.Array, problem: Problem, start: tuple[Any, Keys | None]) -> brkga.Result:
        action, given = start
        return regal.search(
            key,
            problem,
            action,
            objective=objective,
            evaluations=evaluations - len(ORDERS) - (0 if given is None else best.tried(problem)),
            settings=settings,
            given=given,
        )

    def strongest(key: jax.Array, problem: Problem, given: best.Starts) -> Found:
        keys, cost = best.improve(key, problem, given, objective=objective, evaluations=evaluations)
        return Found(keys, cost, cost[None], jnp.array([evaluations]))

    return {
        "random search": chance,
        "local search": climb,
        "BRKGA": standard,
        "BRKGA from heuristics": seeded,
        "REGAL untrained": learned,
        "REGAL": learned,
        "REGAL from heuristics": learned,
        "best of gopt": strongest,
    }


def compiled(objective: str, evaluations: int, settings: regal.Settings) -> dict[str, Any]:
    """Returns `searches` over rows `[S, ...]`, one after another on each device; jitted."""

    def over_seeds(search: Callable[..., Any]) -> Any:
        def one(row: Any) -> Found:
            result = search(*row)
            return Found(*(getattr(result, name) for name in Found._fields))

        return jax.jit(spread(lambda *args: jax.lax.map(one, args)))

    found = searches(objective, evaluations, settings)
    jitted = {search: over_seeds(search) for search in set(found.values())}
    return {row: jitted[search] for row, search in found.items()}
