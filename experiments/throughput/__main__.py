"""Measure candidates per second: gopt, a compiled decoder, and the obvious JAX loop.

    python -m experiments.throughput

All functions are timed in one run, in interleaved rounds, on keys that are already on the device.
Their costs are first checked to be equal bit for bit. The least wall time of several rounds counts,
and the least CPU time of all threads.

gopt's evaluation is compiled for each graph, the compiled decoder for each kind of cost.
Compilation is timed separately. The compiled decoder is from `experiments.throughput.peers`, with
the faster of its queues (in searches, buckets), on all cores. The obvious loop costs fewer
candidates, because it is slow.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.harness import command_line, store
from experiments.harness.command_line import at_least
from experiments.throughput.evaluations import (
    check_same,
    compiled_evaluation,
    first_compile,
    gopt_evaluation,
    obvious_evaluation,
)
from experiments.throughput.graphs import FAMILIES, GRAPHS
from experiments.throughput.peers import compiled, evolution
from experiments.throughput.report import report
from experiments.throughput.timing import machine, measure
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import decoding, execution
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.objectives import population_cost
from gopt.cost.schedule.problem import Problem, prepare, to_bytes
from gopt.graph import padding
from gopt.graph.graph import Graph
from gopt.search import brkga
from gopt.search.parallel import shard_candidates
from gopt.search.population import uniforms
from gopt.sources import synthetic

COSTS = ("peak memory", "makespan")
BOTH = (*COSTS, "both")  # "both" is a schedule's whole cost
BIAS = 0.7
WITHOUT_COSTS = "gopt without costs"
POPULATION_GRAPH = SEARCH_GRAPH = "LSTM step"


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      population: candidates for the graphs of about 1000 ops.
      populations: population sizes for one graph, to show the effect of the population.
      sizes: numbers of ops of random graphs, to show the effect of the size.
      size_population: candidates for the random graphs of all sizes.
      memory: most GiB of a population's keys; larger populations are cut.
      obvious: candidates for the obvious loop, which is slow.
      evaluations: budget of a search.
      search_populations: candidates in a generation of a search.
      programs: graphs that are costed to count compiled programs.
      devices: devices of the machine that graphs are scheduled on.
      rounds: rounds of timing.
      seconds: time after which a case gets no further round, s.
      seed: seed of graphs and keys.
      folder: folder of figures, tables and plots.
    """

    population: int = at_least(1, 1024)
    populations: tuple[int, ...] = at_least(1, (1, 16, 64, 128, 256, 1024, 4096, 16384, 65536))
    sizes: tuple[int, ...] = at_least(1, (200, 1000, 5000, 20_000, 80_000))
    size_population: int = at_least(1, 128)
    memory: float = 2.0
    obvious: int = at_least(1, 8)
    evaluations: int = at_least(1, 5000)
    search_populations: tuple[int, ...] = at_least(1, (100, 1000))
    programs: int = at_least(1, 50)
    devices: int = at_least(1, 2)
    rounds: int = at_least(1, 5)
    seconds: float = 5.0
    seed: int = 0
    folder: Path = Path("runs/throughput")


def capped(problem: Problem, population: int, memory: float) -> int:
    """Return the number of candidates, limited so that their keys need at most `memory` GiB."""
    each = 4 * evolution.num_genes(keys_shape(problem))
    return max(1, min(population, int(memory * 2**30 / each)))


def compare(
    name: str,
    graph: Graph,
    population: int,
    settings: Settings,
    *,
    costs: Iterable[str] = COSTS,
    with_obvious: bool = False,
) -> list[dict[str, Any]]:
    """Return the speed of costing a population of one graph by each method, a record for each cost.

    Raises:
      RuntimeError: gopt and the others compute different costs.
    """
    problem = prepare(graph, unit_rate_devices(settings.devices))
    tables = compiled.tables(problem)
    population = capped(problem, population, settings.memory)
    drawn = uniforms(jax.random.key(settings.seed), keys_shape(problem), population)
    few = jax.tree.map(lambda leaf: leaf[: settings.obvious], drawn)
    # Complete keys on every device, as in a search.
    place = jax.jit(shard_candidates(lambda keys: keys))
    keys, few = place(drawn), place(few)
    del drawn
    host = jax.device_get(keys)
    expected = jax.device_get(gopt_evaluation(problem, "both")(keys))
    for queue in compiled.QUEUES:
        check_same(name, expected, compiled.evaluate(tables, host, queue=queue))
    if with_obvious:
        first = jax.tree.map(lambda leaf: leaf[: settings.obvious], expected)
        check_same(name, first, obvious_evaluation(problem, "both")(few))
    records = []
    for cost in costs:
        calls: dict[str, Callable[[], Any]] = {
            "gopt": partial(gopt_evaluation(problem, cost), keys)
        }
        for queue in compiled.QUEUES:
            calls[queue] = partial(compiled_evaluation(tables, cost, queue), host)
        if with_obvious:
            calls["obvious"] = partial(obvious_evaluation(problem, cost), few)
        timings = measure(calls, rounds=settings.rounds, seconds=settings.seconds)
        counts = dict.fromkeys(calls, population) | {"obvious": len(few.priority)}
        readers = np.bincount(graph.tensor[: int(graph.num_uses)], minlength=1).max()  # type: ignore[call-overload]
        records.append(
            {
                "graph": name,
                "ops": int(graph.num_ops),
                "uses": int(graph.num_uses),
                "readers": int(readers),
                "population": population,
                "cost": cost,
                "queue": min(compiled.QUEUES, key=lambda queue: timings[queue].wall),
                "per_second": {
                    who: {clock: counts[who] / spent for clock, spent in timing._asdict().items()}
                    for who, timing in timings.items()
                },
            }
        )
    return records


def search(settings: Settings, population: int) -> list[dict[str, Any]]:
    """Return the time and the best cost of one whole BRKGA run of each for peak memory.

    A run of gopt with a sum of genes as the cost is included. It shows the time spent outside
    costs.
    """
    problem = prepare(GRAPHS[SEARCH_GRAPH](), unit_rate_devices(settings.devices))
    template = keys_shape(problem)
    sizes = brkga.Settings(population, elites=population // 5, mutants=population // 10)
    fresh = population - sizes.elites
    generations = max(0, settings.evaluations - population) // fresh
    evaluations = population + generations * fresh  # whole generations, the same number for all
    best: dict[str, float] = {}

    def remember(name: str, find: Callable[..., Any]) -> None:
        best[name] = float(find())

    calls: dict[str, Callable[[], Any]] = {}
    for name, cost in (
        ("gopt", population_cost(problem, "peak_memory")),
        (WITHOUT_COSTS, _sum_of_genes),
    ):
        minimize = partial(
            brkga.minimize,
            cost=shard_candidates(cost),
            template=template,
            evaluations=evaluations,
            settings=sizes,
            bias=BIAS,
        )
        key = jax.random.key(settings.seed)
        run = jax.jit(lambda key, minimize=minimize: minimize(key).cost).lower(key).compile()
        calls[name] = partial(remember, name, partial(run, key))
    peer_cost = compiled_evaluation(compiled.tables(problem), "peak memory")
    for name, peer in evolution.SEARCHES.items():
        find = partial(
            peer,
            peer_cost,
            template,
            settings=sizes,
            bias=BIAS,
            generations=generations,
            seed=settings.seed,
        )
        calls[name] = partial(remember, name, find)
    timings = measure(calls, rounds=settings.rounds, seconds=settings.seconds)
    return [
        {
            "search": name,
            "population": population,
            "evaluations": evaluations,
            "best": None if name == WITHOUT_COSTS else to_bytes(problem, best[name]),
            "seconds": timing._asdict(),
        }
        for name, timing in timings.items()
    ]


def _sum_of_genes(keys: Keys) -> jax.Array:
    return sum(leaf.reshape(len(leaf), -1).sum(1) for leaf in keys)


def count_programs(settings: Settings) -> dict[str, int]:
    """Return the numbers of compiled programs and of buckets for random graphs of many sizes."""
    traced = 0

    def evaluate(problem: Problem, keys: Keys) -> decoding.Cost:
        nonlocal traced
        traced += 1
        return jax.vmap(execution.evaluate, (None, 0))(problem, keys)

    run = jax.jit(evaluate)
    buckets = set()
    rng = np.random.default_rng(settings.seed)
    for size in rng.integers(100, 2000, settings.programs):
        graph = synthetic.layered(rng, int(size))
        buckets.add(padding.bucket(graph))
        problem = prepare(padding.pad(graph), unit_rate_devices(settings.devices))
        keys = uniforms(jax.random.key(settings.seed), keys_shape(problem), 2)
        jax.block_until_ready(run(problem, keys))
    return {"graphs": settings.programs, "buckets": len(buckets), "programs": traced}


def main(settings: Settings) -> None:
    """Measure, print the tables, and save figures, tables and plots."""
    store.save_settings(settings.folder, settings)
    several = "sizes", "populations", "search_populations"
    kept = store.Store(settings.folder / "rows", store.described(settings, *several))

    def of(name: str, draw: Callable[[], Graph], population: int, **how: Any) -> Any:
        return compare(name, draw(), population, settings, **how)

    population = settings.population
    makes: dict[str, dict[str, Callable[[], Any]]] = {
        "graphs": {
            name: partial(of, name, draw, population, costs=BOTH, with_obvious=True)
            for name, draw in GRAPHS.items()
        },
        "sizes": {
            f"{family}, {ops} ops": partial(
                of, family, partial(draw, settings.seed, ops), settings.size_population
            )
            for family, draw in FAMILIES.items()
            for ops in settings.sizes
        },
        "populations": {
            f"{count}": partial(of, POPULATION_GRAPH, GRAPHS[POPULATION_GRAPH], count)
            for count in settings.populations
        },
        "searches": {
            f"{count}": partial(search, settings, count) for count in settings.search_populations
        },
    }
    found: dict[str, Any] = {"machine": machine()}
    for part, rows in makes.items():
        found[part] = kept.rows({f"{part}, {name}": make for name, make in rows.items()})
    found["programs"] = kept.row("programs", partial(count_programs, settings))
    found["seconds_to_compile"] = {
        cost: kept.row(
            f"compilation, {cost}",
            partial(first_compile, cost, settings.devices, population, settings.seed),
        )
        for cost in BOTH
    }
    report(found, settings.folder)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
