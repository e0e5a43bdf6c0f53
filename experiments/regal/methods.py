"""Define the searches that the REGAL experiment compares."""

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from experiments.harness.runs import over_runs
from experiments.regal import tuned
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.objectives import OBJECTIVES, population_cost
from gopt.cost.schedule.problem import Problem
from gopt.heuristics import HEURISTICS, schedules_tried
from gopt.heuristics.schedule import baselines
from gopt.heuristics.schedule.evolve import evolve
from gopt.scheduling import best
from gopt.search import annealing, random
from gopt.search.result import SearchResult
from gopt.systems import regal

DEVICES = 2
# Evaluations of the heuristics, of the program's own order, and of features at most.
LEAST = 1 + sum(schedules_tried(name, DEVICES) for name in HEURISTICS)
LEAST += max(regal.schedules_compared(objective) for objective in OBJECTIVES)
STRONGEST = ("REGAL from heuristics", "best of gopt")
SEARCHES = (
    *("random search", "BRKGA", "tuned BRKGA"),
    *("local search from heuristics", "BRKGA from heuristics"),
    *("REGAL untrained", "REGAL", "REGAL from heuristics", "best of gopt"),
)


# Climbing accepts every step that is not worse.
CLIMBING = annealing.Settings(chains=1, first_temperature=0.0, last_temperature=0.0)

# Other searches with the policy's proposals, to show the effect of BRKGA.
WITHOUT_BRKGA = (
    *("median of the policy", "samples of the policy"),
    *("local search from the median", "annealing from the median"),
)
ABLATION = ("BRKGA", *WITHOUT_BRKGA, "REGAL untrained", "REGAL")


def searches(
    objective: str, evaluations: int, settings: regal.Settings
) -> dict[str, Callable[[jax.Array, Problem, Any], SearchResult]]:
    """Return the searches: each maps (key, problem, its starts) to a result.

    Where memory binds, all searches based on BRKGA minimise a relaxed cost first (see
    `relaxed_cost`); the other searches do not.

    Args:
      objective: objective to minimise.
      evaluations: budget of each search, including the evaluations of its starts.
      settings: settings of the policies.
    """
    compared = regal.schedules_compared(objective)

    def found(result: Any, before: int) -> SearchResult:
        """Return the result of a search after `before` evaluations of the budget were used."""
        return SearchResult(result.best, result.cost, result.history, result.evaluations + before)

    def run(minimize: Any, key: jax.Array, problem: Problem, before: int = 0) -> SearchResult:
        cost, left = population_cost(problem, objective), evaluations - before
        return found(minimize(key, cost, keys_shape(problem), evaluations=left), before)

    def chance(key: jax.Array, problem: Problem, _: Any) -> SearchResult:
        return run(random.minimize, key, problem)

    def brkga(key: jax.Array, problem: Problem, initial: Keys | None) -> SearchResult:
        before = 0 if initial is None else baselines.tried(problem)
        left = evaluations - before
        result = evolve(key, problem, objective=objective, evaluations=left, initial=initial)
        return found(result, before)

    def from_action(
        key: jax.Array,
        problem: Problem,
        action: regal.Action,
        settings: regal.Settings = settings,
        before: int = 0,
        initial: Keys | None = None,
    ) -> SearchResult:
        result = regal.search_from(
            key,
            problem,
            action,
            objective=objective,
            evaluations=evaluations - before,
            settings=settings,
            initial=initial,
        )
        return found(result, before)

    def same_for_all(key: jax.Array, problem: Problem, _: Any) -> SearchResult:
        action = tuned.action(problem, tuned.TUNED[objective])
        return from_action(key, problem, action, tuned.SETTINGS)

    def learned(key: jax.Array, problem: Problem, start: tuple[Any, Keys | None]) -> SearchResult:
        action, initial = start
        before = compared + (0 if initial is None else baselines.tried(problem))
        return from_action(key, problem, action, before=before, initial=initial)

    def moving(problem: Problem, initial: Keys, how: annealing.Settings) -> Any:
        move = partial(best.neighbour, problem)
        return partial(annealing.minimize, settings=how, neighbour=move, initial=initial)

    def climb(key: jax.Array, problem: Problem, initial: Keys) -> SearchResult:
        return run(moving(problem, initial, CLIMBING), key, problem, baselines.tried(problem))

    def proposes(problem: Problem, action: regal.Action) -> Any:
        return regal.proposal(problem, action, dataclasses.replace(settings, trust=1.0))

    def guess(problem: Problem, action: regal.Action) -> Keys:
        """Return the medians of all Betas, as the only candidate `[1, ...]`."""
        halves = jax.tree.map(lambda x: jnp.full((1, *x.shape), 0.5), keys_shape(problem))
        return proposes(problem, action)(halves)

    def median(key: jax.Array, problem: Problem, start: tuple[Any, None]) -> SearchResult:
        keys = guess(problem, start[0])
        cost = population_cost(problem, objective)(keys)
        one = jax.tree.map(lambda leaf: leaf[0], keys)
        return SearchResult(one, cost[0], cost, jnp.array([compared + 1]))

    def samples(key: jax.Array, problem: Problem, start: tuple[Any, None]) -> SearchResult:
        drawing = partial(random.minimize, proposal=proposes(problem, start[0]))
        return run(drawing, key, problem, compared)

    def refined(
        how: annealing.Settings, key: jax.Array, problem: Problem, start: tuple[Any, None]
    ) -> SearchResult:
        return run(moving(problem, guess(problem, start[0]), how), key, problem, compared)

    def strongest(key: jax.Array, problem: Problem, initial: best.Starts) -> SearchResult:
        how: dict[str, Any] = {"objective": objective, "evaluations": evaluations}
        return best.improve(key, problem, initial, **how)

    return {
        "random search": chance,
        "BRKGA": brkga,
        "tuned BRKGA": same_for_all,
        "local search from heuristics": climb,
        "BRKGA from heuristics": brkga,
        "REGAL untrained": learned,
        "REGAL": learned,
        "REGAL from heuristics": learned,
        "best of gopt": strongest,
        "median of the policy": median,
        "samples of the policy": samples,
        "local search from the median": partial(refined, CLIMBING),
        "annealing from the median": partial(refined, annealing.Settings()),
    }


def compiled(objective: str, evaluations: int, settings: regal.Settings) -> dict[str, Any]:
    """Return `searches` over rows `[S, ...]`, one after another on each device; jitted.

    Policies with equal action levels share them.
    """
    # All settings that a search reads.
    read = regal.Settings(bins=settings.bins, trust=settings.trust)
    return _compiled(objective, evaluations, read)


@cache
def _compiled(objective: str, evaluations: int, settings: regal.Settings) -> dict[str, Any]:
    found = searches(objective, evaluations, settings)
    jitted = {search: over_runs(search) for search in set(found.values())}
    return {row: jitted[search] for row, search in found.items()}
