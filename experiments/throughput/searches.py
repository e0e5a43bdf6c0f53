"""Time of a whole BRKGA run: gopt, and pymoo with the compiled decoder."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from experiments.throughput.graphs import GRAPHS
from experiments.throughput.list_order import DEVICES, compiled_evaluation
from experiments.throughput.peers import compiled, evolution
from experiments.throughput.timing import least
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.objectives import population_cost
from gopt.cost.schedule.problem import prepare, to_bytes
from gopt.measure.timing import time_interleaved
from gopt.search import brkga
from gopt.search.parallel import shard_candidates

GRAPH = "LSTM step"
BIAS = 0.7
WITHOUT_COSTS = "gopt without costs"


def search(population: int, *, evaluations: int, rounds: int, seed: int) -> list[dict[str, Any]]:
    """Return the time and the best cost of one run of each for peak memory.

    A run of gopt with a sum of genes as the cost is included. It shows the time spent outside
    costs.

    Args:
      population: candidates of a generation.
      evaluations: budget of a run, rounded down to whole generations.
      rounds: rounds of timing.
      seed: seed of the runs.
    """
    problem = prepare(GRAPHS[GRAPH](), unit_rate_devices(DEVICES))
    template = keys_shape(problem)
    settings = brkga.Settings(population, elites=population // 5, mutants=population // 10)
    fresh = population - settings.elites
    generations = max(0, evaluations - population) // fresh
    evaluations = population + generations * fresh
    how: Any = {"settings": settings, "bias": BIAS}

    def ours(cost: Callable[[Keys], jax.Array]) -> Callable[[], jax.Array]:
        def run(key: jax.Array) -> jax.Array:
            spread = shard_candidates(cost)
            return brkga.minimize(key, spread, template, evaluations=evaluations, **how).cost

        return partial(jax.jit(run), jax.random.key(seed))

    peer_cost = compiled_evaluation(compiled.tables(problem), "peak memory")
    calls: dict[str, Callable[[], Any]] = {
        "gopt": ours(population_cost(problem, "peak_memory")),
        WITHOUT_COSTS: ours(_sum_of_genes),
        "pymoo": partial(
            evolution.pymoo, peer_cost, template, generations=generations, seed=seed, **how
        ),
    }
    best = {name: to_bytes(problem, float(find())) for name, find in calls.items()}
    return [
        {
            "search": name,
            "population": population,
            "evaluations": evaluations,
            "best": None if name == WITHOUT_COSTS else best[name],
            "seconds": least(times),
        }
        for name, times in time_interleaved(calls, repeats=rounds).items()
    ]


def _sum_of_genes(keys: Keys) -> jax.Array:
    return sum(leaf.reshape(len(leaf), -1).sum(1) for leaf in keys)
