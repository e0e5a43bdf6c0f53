"""Functions that cost a population: gopt, the obvious loop and the compiled decoder."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.harness.command_line import apart
from experiments.throughput.peers import compiled, obvious
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import decoding, execution
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.objectives import population_cost
from gopt.cost.schedule.problem import Problem, prepare
from gopt.search.parallel import shard_candidates
from gopt.search.population import uniforms
from gopt.sources import synthetic


def check_same(name: str, expected: decoding.Cost, found: decoding.Cost) -> None:
    """Raise a `RuntimeError` if the costs of the graph of that name are not equal bit for bit."""
    for field, ours, theirs in zip(decoding.Cost._fields, expected, found, strict=True):
        if not np.array_equal(ours, theirs):
            raise RuntimeError(f"{name}: the costs differ in {field}")


def gopt_evaluation(problem: Problem, cost: str) -> Callable[[Keys], Any]:
    """Return gopt's evaluation of keys `[P, ...]`, over all devices of the process."""
    if cost == "both":
        return jax.jit(shard_candidates(jax.vmap(partial(execution.evaluate, problem))))
    return jax.jit(shard_candidates(population_cost(problem, cost.replace(" ", "_"))))


def obvious_evaluation(problem: Problem, cost: str) -> Callable[[Keys], Any]:
    """Return the obvious loop for keys `[P, ...]`, over all devices of the process."""
    found = jax.vmap(partial(obvious.evaluate, problem))
    return jax.jit(shard_candidates(lambda keys: _asked(found(keys), cost)))


def compiled_evaluation(
    tables: compiled.Tables, cost: str, queue: str = "buckets"
) -> Callable[[Keys], Any]:
    """Return the compiled decoder of keys `[P, ...]`, over all cores of the process."""

    def evaluate(keys: Keys) -> Any:
        makespan, peak = cost != "peak memory", cost != "makespan"
        found = compiled.evaluate(tables, keys, queue=queue, makespan=makespan, peak=peak)
        return _asked(found, cost)

    return evaluate


def _asked(found: decoding.Cost, cost: str) -> Any:
    if cost == "both":
        return found
    return found.peak.max(-1) if cost == "peak memory" else found.makespan


def first_compile(cost: str, devices: int, population: int, seed: int) -> float:
    """Return the compilation time of gopt's evaluation, s, in a new process without caches."""
    return apart(_compile, cost, devices, population, seed, cached=False)


def _compile(cost: str, devices: int, population: int, seed: int) -> float:
    problem = prepare(synthetic.layered(seed, 1000), unit_rate_devices(devices))
    keys = uniforms(jax.random.key(0), keys_shape(problem), population)
    began = time.perf_counter()
    gopt_evaluation(problem, cost).lower(keys).compile()  # type: ignore[attr-defined]
    return time.perf_counter() - began
