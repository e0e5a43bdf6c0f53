"""The compared searches: all from the same start, with equal budgets."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import runs as harness
from experiments.harness.runs import Runs
from experiments.local_advantage.graphs import DEFAULT, Case, cost_of
from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import FusionProblem
from gopt.learning.graphs import GraphsTuple
from gopt.search import annealing, brkga, gibbs, guided
from gopt.search.result import SearchResult
from gopt.systems import local_advantage

# Chosen on validation graphs.
GUIDED = guided.Settings()
PAPER = guided.Settings(rest_share=0.0)
ALIKE = guided.Settings(top_share=1.0)
RANDOM = guided.Settings(top_share=1.0, rest_share=0.0)  # as in the paper
ANNEALING = annealing.Settings(chains=1, first_temperature=1e-5, last_temperature=1e-7)
EVOLUTION = brkga.Settings(population=100, elites=20, mutants=10)
TEMPERATURE = 1e-6  # temperature of Gibbs sampling, as a share of the default's cost


class Task(NamedTuple):
    """Input of a search.

    Attributes:
      problem: fusion problem.
      graphs: inputs of networks.
      start: initial configuration, bool [N].
      params: parameters of the network, or None.
    """

    problem: FusionProblem
    graphs: GraphsTuple
    start: Any
    params: Any


Search = Callable[[jax.Array, Task], SearchResult]
Moves = tuple[guided.Move, ...]


class Learned(NamedTuple):
    """A search with its learned parameters.

    Attributes:
      search: search.
      params: parameters for `Task.params`, or None.
    """

    search: Search
    params: Any


def found_after_each(fuse: jax.Array, history: jax.Array) -> SearchResult:
    """Return the result of a search whose history has an entry for each evaluation."""
    return SearchResult(fuse, history[-1], history, 1 + jnp.arange(len(history)))


def flips(task: Task) -> Moves:
    """Return the only move of the paper's random search."""
    del task
    return (guided.flip,)


def flips_and_shifts(task: Task) -> Moves:
    """Return the moves of our searches."""
    return guided.flip, *local_advantage.shifts(task.graphs, task.problem.configurable)


def walks(task: Task) -> Moves:
    """Return the only move of the paper's guided search: it changes decisions near one decision."""
    return (local_advantage.walk(task.graphs, task.problem.configurable, steps=1),)


def costs(problem: FusionProblem) -> Callable[[jax.Array], jax.Array]:
    """Return a function that maps decisions or keys `[P, N]`, fused above 0.5, to ticks `[P]`."""
    return lambda decisions: jax.vmap(fusion_cost, (None, 0))(problem, decisions > 0.5)


def guided_by(
    key: jax.Array,
    task: Task,
    guide: guided.Guide,
    *,
    evaluations: int,
    settings: guided.Settings = GUIDED,
    moves: Callable[[Task], Moves] = flips_and_shifts,
) -> SearchResult:
    """Return the result of a search with a guide."""
    found = guided.minimize(
        key,
        costs(task.problem),
        task.start.astype(jnp.int32),
        guide,
        evaluations=evaluations,
        settings=settings,
        moves=moves(task),
    )
    return found_after_each(found.decisions > 0, found.history)


def _by_network(
    key: jax.Array, task: Task, *, network: local_advantage.Settings, **how: Any
) -> SearchResult:
    can = task.problem.configurable
    guide = local_advantage.guide(task.params, task.graphs, can, settings=network)
    return guided_by(key, task, guide, **how)


def _unguided(key: jax.Array, task: Task, **how: Any) -> SearchResult:
    return guided_by(key, task, local_advantage.uniform(task.problem.configurable), **how)


def _gibbs(key: jax.Array, task: Task, *, evaluations: int) -> SearchResult:
    problem, cost = task.problem, costs(task.problem)
    start = task.start.astype(jnp.int32)
    count = problem.num_choices
    order = problem.choices[(count - 1 - jnp.arange(problem.choices.size)) % count]
    temperature = TEMPERATURE * cost(start[None])[0]
    found = gibbs.minimize(
        key, cost, start, order, count, evaluations=evaluations, temperature=temperature
    )
    return found_after_each(found.decisions > 0, found.history)


def _annealing(key: jax.Array, task: Task, *, evaluations: int) -> SearchResult:
    problem = task.problem

    def flip(key: jax.Array, keys: jax.Array) -> jax.Array:
        op = problem.choices[jax.random.randint(key, (), 0, problem.num_choices)]
        return keys.at[op].set(1 - keys[op])

    start = task.start.astype(jnp.float32)
    found = annealing.minimize(
        key,
        costs(problem),
        start,
        evaluations=evaluations,
        settings=ANNEALING,
        neighbour=flip,
        initial=start[None],
    )
    return found_after_each(found.best > 0.5, found.history)


def _evolution(key: jax.Array, task: Task, *, evaluations: int) -> SearchResult:
    cost, start = costs(task.problem), task.start.astype(jnp.float32)
    how = dict(evaluations=evaluations, settings=EVOLUTION, initial=start[None])
    found = brkga.minimize(key, cost, start, **how)
    generation = jnp.searchsorted(found.evaluations, jnp.arange(1, evaluations + 1), side="right")
    # Costs of the first population are known together, except for the start's.
    history = found.history[jnp.maximum(generation - 1, 0)]
    first = cost(start[None])[0]
    return found_after_each(found.best > 0.5, jnp.where(generation == 0, first, history))


def by_network(
    params: Any, network: local_advantage.Settings, evaluations: int, **how: Any
) -> Learned:
    """Return the search that a network guides; see `guided_by`."""
    return Learned(partial(_by_network, network=network, evaluations=evaluations, **how), params)


def unguided(evaluations: int) -> dict[str, Learned]:
    """Return the searches without learning, by name.

    "No network" is the guided search with a guide that scores all decisions alike.
    """
    found: dict[str, Callable[..., SearchResult]] = {
        "random": partial(_unguided, settings=RANDOM, moves=flips),
        "no network": partial(_unguided, settings=ALIKE),
        "Gibbs": _gibbs,
        "annealing": _annealing,
        "BRKGA": _evolution,
    }
    return {
        name: Learned(partial(search, evaluations=evaluations), None)
        for name, search in found.items()
    }


def starts(key: jax.Array, default: np.ndarray, problem: FusionProblem, count: int) -> dict:
    """Return the starts of searches, bool `[S, N]`, by name: the default, and random ones."""
    random = jax.random.bernoulli(key, 0.5, (count, len(default))) & problem.configurable
    return {"default": np.tile(default, (count, 1)), "random": np.asarray(random)}


def run(
    case: Case, searches: Mapping[str, Learned], *, seeds: int, key: jax.Array
) -> dict[str, Runs]:
    """Return the results of all searches on one graph, by kind of start and name of the search.

    Costs are shares of the default's.

    Args:
      case: graph.
      searches: searches by name.
      seeds: runs of each search from each kind of start.
      key: random key.
    """
    to_start, to_run = jax.random.split(key)
    problem, graphs = (jax.tree.map(jnp.asarray, x) for x in (case.problem, case.graphs))
    keys, default = jax.random.split(to_run, seeds), np.float64(case.costs[DEFAULT])
    given = starts(to_start, case.found[DEFAULT], problem, seeds)
    found = {}
    for name, (search, params) in searches.items():
        # Of a task, only its start differs between runs.
        over_seeds = jax.jit(jax.vmap(search, (0, Task(None, None, 0, None))))  # type: ignore[arg-type]
        tasks = {kind: Task(problem, graphs, jnp.asarray(x), params) for kind, x in given.items()}
        ready = over_seeds.lower(keys, tasks["default"]).compile()
        for kind, task in tasks.items():
            runs = harness.run(ready, keys, task, cost=partial(cost_of, problem))
            cost, history = runs.cost / default, runs.history / default
            found[f"{kind}, {name}"] = runs._replace(cost=cost, history=history, best=None)
    return found
