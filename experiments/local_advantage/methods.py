"""The searches that are compared: all from the same start, with as many evaluations."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gopt.cost.fusion import cloned_cost
from gopt.fusion_problem import FusionProblem
from gopt.nets.graphs import GraphsTuple
from gopt.search import brkga, gibbs, guided, local
from gopt.systems import advantage

# Chosen on validation graphs.
GUIDED = guided.Settings(share=0.01, explore=0.0, rest=0.9, refresh=40)
ONCE = guided.Settings(share=1.0, explore=0.0, rest=0.9)
RANDOM = guided.Settings(share=1.0, explore=0.0, rest=0.0)  # as in the paper
ANNEALING = local.Settings(chains=1, hot=1e-5, cold=1e-7)
EVOLUTION = brkga.Settings(population=100, elites=20, mutants=10)
TEMPERATURE = 1e-6  # of Gibbs sampling, as a share of the cost of the default


class Task(NamedTuple):
    """What a search is given."""

    problem: FusionProblem
    graphs: GraphsTuple
    start: Any  # bool [N]
    params: Any  # of the network, or None


class Found(NamedTuple):
    """What a search found."""

    fuse: Any  # bool [N]
    history: Any  # int32 [evaluations], ticks, the best after each


Search = Callable[..., Found]


def _cost(problem: FusionProblem) -> Callable[[jax.Array], jax.Array]:
    return lambda decisions: jax.vmap(cloned_cost, (None, 0))(problem, decisions > 0)


def _by_guide(
    key: jax.Array,
    task: Task,
    *,
    evaluations: int,
    settings: guided.Settings,
    network: advantage.Settings | None,
) -> Found:
    can = task.problem.configurable
    guide = (
        advantage.uniform(can)
        if network is None
        else advantage.guide(task.params, task.graphs, can, settings=network)
    )
    start = task.start.astype(jnp.int32)
    found = guided.minimize(
        key, _cost(task.problem), start, guide, evaluations=evaluations, settings=settings
    )
    return Found(found.decisions > 0, found.history)


def _gibbs(key: jax.Array, task: Task, *, evaluations: int) -> Found:
    problem, cost = task.problem, _cost(task.problem)
    start = task.start.astype(jnp.int32)
    count = problem.num_choices
    order = problem.choices[(count - 1 - jnp.arange(problem.choices.size)) % count]
    temperature = TEMPERATURE * cost(start[None])[0]
    found = gibbs.minimize(
        key, cost, start, order, count, evaluations=evaluations, temperature=temperature
    )
    return Found(found.decisions > 0, found.history)


def _annealing(key: jax.Array, task: Task, *, evaluations: int) -> Found:
    problem = task.problem

    def flip(key: jax.Array, keys: jax.Array) -> jax.Array:
        op = problem.choices[jax.random.randint(key, (), 0, problem.num_choices)]
        return keys.at[op].set(1 - keys[op])

    start = task.start.astype(jnp.float32)
    found = local.minimize(
        key,
        lambda keys: _cost(problem)(keys > 0.5),
        start,
        evaluations=evaluations,
        settings=ANNEALING,
        neighbour=flip,
        given=start[None],
    )
    return Found(found.keys > 0.5, found.history)


def _evolution(key: jax.Array, task: Task, *, evaluations: int) -> Found:
    problem = task.problem
    start = task.start.astype(jnp.float32)
    found = brkga.minimize(
        key,
        lambda keys: _cost(problem)(keys > 0.5),
        start,
        evaluations=evaluations,
        settings=EVOLUTION,
        given=start[None],
    )
    generation = jnp.searchsorted(found.evaluations, jnp.arange(1, evaluations + 1), side="right")
    # What the first population has is known when all of it is costed, but for the start.
    history = found.history[jnp.maximum(generation - 1, 0)]
    first = _cost(problem)(start[None])[0]
    return Found(found.keys > 0.5, jnp.where(generation == 0, first, history))


def searches(
    networks: dict[str, advantage.Settings], evaluations: int
) -> dict[str, Callable[[Any, Task], Found]]:
    """Returns the searches by name, jitted, for many runs: keys `[S]` and starts `[S, N]`.

    Args:
      networks: settings of those that guide, by the names of their searches.
      evaluations: budget of each run.
    """
    guide = partial(_by_guide, evaluations=evaluations)
    found: dict[str, Search] = {
        name: partial(guide, settings=GUIDED, network=settings)
        for name, settings in networks.items()
    }
    found |= {
        "random": partial(guide, settings=RANDOM, network=None),
        "random, each once": partial(guide, settings=ONCE, network=None),
        "Gibbs": partial(_gibbs, evaluations=evaluations),
        "annealing": partial(_annealing, evaluations=evaluations),
        "BRKGA": partial(_evolution, evaluations=evaluations),
    }
    axes = (0, Task(None, None, 0, None))  # type: ignore[arg-type]
    return {name: jax.jit(jax.vmap(search, axes)) for name, search in found.items()}


def starts(key: jax.Array, default: np.ndarray, problem: FusionProblem, count: int) -> dict:
    """Returns what searches start from, bool `[S, N]`, by name: the default, and random ones."""
    random = jax.random.bernoulli(key, 0.5, (count, len(default))) & problem.configurable
    return {"default": np.tile(default, (count, 1)), "random": np.asarray(random)}
