"""Costs of list order per second: gopt, a compiled decoder, and the obvious JAX loop.

The compiled decoder is from `experiments.throughput.peers`, on all cores; the faster of its queues
counts. The obvious loop costs fewer candidates, because it is slow.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.throughput.peers import compiled, obvious
from experiments.throughput.timing import check_same, place, rates
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import execution
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.objectives import population_cost
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph.graph import Graph
from gopt.search.parallel import shard_candidates
from gopt.search.population import uniforms

COSTS = ("peak memory", "makespan")
BOTH = "both"  # a schedule's whole cost
DEVICES = 2


def gopt_evaluation(problem: Problem, cost: str) -> Callable[[Keys], Any]:
    """Return gopt's evaluation of keys `[P, ...]`, over all devices of the process."""
    if cost == BOTH:
        return jax.jit(shard_candidates(jax.vmap(partial(execution.evaluate, problem))))
    return jax.jit(shard_candidates(population_cost(problem, cost.replace(" ", "_"))))


def compiled_evaluation(tables: Any, cost: str, queue: str = "buckets") -> Callable[[Keys], Any]:
    """Return the compiled decoder of keys `[P, ...]`, over all cores of the process."""

    def evaluate(keys: Keys) -> Any:
        makespan, peak = cost != "peak memory", cost != "makespan"
        found = compiled.evaluate(tables, keys, queue=queue, makespan=makespan, peak=peak)
        if cost == BOTH:
            return found
        return found.peak.max(-1) if cost == "peak memory" else found.makespan

    return evaluate


def compare(
    name: str,
    draw: Callable[[], Graph],
    cost: str,
    *,
    population: int,
    obvious_population: int = 0,
    rounds: int,
    seed: int,
) -> dict[str, Any]:
    """Return a record of the speed of costing a population of one graph by each method.

    Args:
      name: name of the graph.
      draw: function that returns the graph.
      cost: one of `COSTS`, or `BOTH`.
      population: number of candidates.
      obvious_population: number of candidates of the obvious loop, which computes `BOTH`; 0 leaves
        it out.
      rounds: rounds of timing.
      seed: seed of the keys.

    Raises:
      RuntimeError: gopt and the others compute different costs.
    """
    graph = draw()
    problem = prepare(graph, unit_rate_devices(DEVICES))
    keys = place(uniforms(jax.random.key(seed), keys_shape(problem), population))
    tables, host = compiled.tables(problem), jax.device_get(keys)
    calls = {"gopt": partial(gopt_evaluation(problem, cost), keys)}
    for queue in compiled.QUEUES:
        calls[queue] = partial(compiled_evaluation(tables, cost, queue), host)
    # Whole costs are exact integers; an objective may be rounded to float32.
    expected = jax.device_get(gopt_evaluation(problem, BOTH)(keys))
    for queue in compiled.QUEUES:
        check_same(f"{name}, {queue}", expected, compiled.evaluate(tables, host, queue=queue))
    if obvious_population:
        few, expected = jax.tree.map(lambda leaf: leaf[:obvious_population], (host, expected))
        loop = jax.jit(shard_candidates(jax.vmap(partial(obvious.evaluate, problem))))
        calls["obvious"] = partial(loop, place(few))
        check_same(f"{name}, obvious", expected, calls["obvious"]())
    counts = dict.fromkeys(calls, population) | {"obvious": min(obvious_population, population)}
    found = rates(calls, counts, rounds=rounds)
    fastest = max(compiled.QUEUES, key=lambda queue: found[queue]["wall"])
    return {
        "graph": name,
        "ops": int(graph.num_ops),
        "uses": int(graph.num_uses),
        "population": population,
        "cost": cost,
        "queue": fastest,
        "per_second": found | {"compiled": found[fastest]},
    }


def exponents(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the exponents of the time per candidate in ops + uses, for each graph and cost.

    They are fitted to the graphs of 1000 ops or more; NaN if there are fewer than two.
    """
    found = []
    for graph, cost in dict.fromkeys((record["graph"], record["cost"]) for record in records):
        large = [r for r in records if (r["graph"], r["cost"]) == (graph, cost) and r["ops"] > 999]
        size = np.log([r["ops"] + r["uses"] for r in large])
        row: dict[str, Any] = {"graph": graph, "cost": cost}
        for who in ("gopt", "compiled"):
            times = -np.log([r["per_second"][who]["wall"] for r in large])
            row[who] = float(np.polyfit(size, times, 1)[0]) if len(large) > 1 else np.nan
        found.append(row)
    return found
