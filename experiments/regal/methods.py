"""The searches that the REGAL experiment compares."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.regal import tuned
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
    *("random search", "BRKGA", "tuned BRKGA"),
    *("local search from heuristics", "BRKGA from heuristics"),
    *("REGAL untrained", "REGAL", "REGAL from heuristics", "best of gopt"),
)


class Found(NamedTuple):
    """What a search returns, as far as it is reported."""

    keys: Keys
    cost: jax.Array
    history: jax.Array
    evaluations: jax.Array  # by each entry of the history, those before the search included


def searches(
    objective: str, evaluations: int, settings: regal.Settings
) -> dict[str, Callable[[jax.Array, Problem, Any], Found]]:
    """Returns the searches: each maps (key, problem, what it starts from) to a result.

    Args:
      objective: what is minimised.
      evaluations: of each search, those of what it starts from included.
      settings: of the policies.
    """

    def run(minimize: Any, key: jax.Array, problem: Problem, before: int = 0) -> Found:
        """Returns what a search finds with what `before` leaves of the budget."""
        cost, left = population_cost(problem, objective), evaluations - before
        return found(minimize(key, cost, keys_shape(problem), evaluations=left), before)

    def found(result: Any, before: int) -> Found:
        return Found(result.keys, result.cost, result.history, result.evaluations + before)

    def chance(key: jax.Array, problem: Problem, _: Any) -> Found:
        return run(random.minimize, key, problem)

    def standard(key: jax.Array, problem: Problem, _: Any) -> Found:
        return run(brkga.minimize, key, problem)

    def proposed(key: jax.Array, problem: Problem, _: Any) -> Found:
        result = regal.search(
            key,
            problem,
            tuned.action(problem, tuned.TUNED[objective]),
            objective=objective,
            evaluations=evaluations,
            settings=tuned.SETTINGS,
        )
        return found(result, 0)

    def climb(key: jax.Array, problem: Problem, given: Keys) -> Found:
        """One chain, which takes every step that is no worse."""
        settings = local.Settings(chains=1, hot=0.0, cold=0.0)
        move = partial(best.neighbour, problem)
        minimize = partial(local.minimize, settings=settings, neighbour=move, given=given)
        return run(minimize, key, problem, best.tried(problem))

    def seeded(key: jax.Array, problem: Problem, given: Keys) -> Found:
        return run(partial(brkga.minimize, given=given), key, problem, best.tried(problem))

    def learned(key: jax.Array, problem: Problem, start: tuple[Any, Keys | None]) -> Found:
        action, given = start
        tried = len(ORDERS) + (0 if given is None else best.tried(problem))
        result = regal.search(
            key,
            problem,
            action,
            objective=objective,
            evaluations=evaluations - tried,
            settings=settings,
            given=given,
        )
        return found(result, tried)

    def strongest(key: jax.Array, problem: Problem, given: best.Starts) -> Found:
        keys, cost = best.improve(key, problem, given, objective=objective, evaluations=evaluations)
        return Found(keys, cost, cost[None], jnp.array([evaluations]))

    return {
        "random search": chance,
        "BRKGA": standard,
        "tuned BRKGA": proposed,
        "local search from heuristics": climb,
        "BRKGA from heuristics": seeded,
        "REGAL untrained": learned,
        "REGAL": learned,
        "REGAL from heuristics": learned,
        "best of gopt": strongest,
    }


def compiled(objective: str, evaluations: int, settings: regal.Settings) -> dict[str, Any]:
    """Returns `searches` over rows `[S, ...]`, one after another on each device; jitted."""

    def over_seeds(search: Callable[..., Found]) -> Any:
        return jax.jit(spread(lambda *args: jax.lax.map(lambda row: search(*row), args)))

    found = searches(objective, evaluations, settings)
    jitted = {search: over_seeds(search) for search in set(found.values())}
    return {row: jitted[search] for row, search in found.items()}
