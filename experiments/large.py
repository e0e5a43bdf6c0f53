"""Measure seconds and peak memory of each stage on graphs of 80 000 ops.

    python -m experiments.large
    python -m experiments.large --stages "GO: policy" --ops 10000 20000 40000 80000

Each stage runs in its own process, after the stages that it needs, so that peak memory is measured
for it alone. This is host memory, of which Python and its imports take 0.3 GiB. Earlier compiled
programs are not used again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import apart, at_least, choice, peak_bytes
from experiments.throughput.graphs import FAMILIES
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.decoding import keys_shape
from gopt.cost.schedule.objectives import population_cost
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph.graph import Graph
from gopt.heuristics import HEURISTICS
from gopt.learning.graphs import to_graphs_tuple
from gopt.search import brkga
from gopt.search.parallel import shard_candidates
from gopt.systems import go, regal

DEVICES = 2
OBJECTIVE = "peak_memory"


Stage = tuple[Callable[..., Any], *tuple[Any, ...]]  # a function and its arguments


def heuristics(settings: "Settings", graph: Graph) -> Stage:
    """Return all heuristics."""
    problem = _problem(graph)
    return ((lambda: [heuristic(problem) for heuristic in HEURISTICS.values()]),)


def search(settings: "Settings", graph: Graph) -> Stage:
    """Return a run of BRKGA."""
    run = partial(_minimize, settings, brkga.uniform)
    return run, jax.random.key(settings.seed), _problem(graph)


def features(settings: "Settings", graph: Graph) -> Stage:
    """Return the computation of the features that the policy reads."""
    return to_graphs_tuple, graph


def policy(settings: "Settings", graph: Graph) -> Stage:
    """Return the policy, which proposes a distribution of the genes of each op."""
    params, sizes = _policy()
    act = partial(regal.act, None, settings=sizes)
    return act, params, regal.on_devices(to_graphs_tuple(graph), DEVICES)


def guided_search(settings: "Settings", graph: Graph) -> Stage:
    """Return a run of REGAL, including the policy."""
    params, sizes = _policy()

    def run(key: jax.Array, params: Any, inputs: Any, problem: Problem) -> jax.Array:
        action = regal.act(None, params, inputs, settings=sizes)
        return _minimize(settings, regal.proposal(problem, action, sizes), key, problem)

    inputs = regal.on_devices(to_graphs_tuple(graph), DEVICES)
    return run, jax.random.key(settings.seed), params, inputs, _problem(graph)


def gradient_step(settings: "Settings", graph: Graph) -> Stage:
    """Return a training step, without the searches that give the rewards."""
    params, sizes = _policy()
    state = regal.start(params, settings=sizes)
    rewards = -jnp.linspace(0.9, 1.1, settings.samples)

    def step(key: jax.Array, state: regal.TrainState, graphs: Any) -> regal.TrainState:
        taken = regal.sample(key, state.params, graphs, samples=settings.samples, settings=sizes)
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (graphs, taken, rewards))
        slope = jax.grad(regal.loss, has_aux=True)
        gradient, _ = slope(state.params, regal.Trajectory(*batch), settings=sizes)
        return state.apply_gradients(grads=gradient)

    return step, jax.random.key(settings.seed), state, to_graphs_tuple(graph)


def go_policy(settings: "Settings", graph: Graph) -> Stage:
    """Return a forward pass of GO's network over all ops."""
    _, inputs, state = _go(settings, graph)
    return partial(go.embed, settings=go.Settings()), state.params, inputs


def go_step(settings: "Settings", graph: Graph) -> Stage:
    """Return a training step of GO, including its draws and costs."""
    problem, inputs, state = _go(settings, graph)

    def step(key: jax.Array, state: Any, inputs: Any, problem: Problem) -> Any:
        simulator = go.simulator_of(problem, OBJECTIVE)
        start = go.begin(problem, jnp.zeros(problem.shape.ops, jnp.int32), simulator)
        return go.tune(key, state, inputs, start, simulator, steps=1, settings=go.Settings())[0]

    return step, jax.random.key(settings.seed), state, inputs, problem


STAGES: dict[str, Callable[["Settings", Graph], Stage]] = {
    "all heuristics": heuristics,
    "BRKGA": search,
    "features": features,
    "policy": policy,
    "REGAL": guided_search,
    "gradient step": gradient_step,
    "GO: policy": go_policy,
    "GO: step of training": go_step,
}
ON_HOST = ("all heuristics", "features")  # NumPy code, which is not compiled


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      ops: sizes of the graphs, one after another.
      stages: stages to measure, from `STAGES`; by default all.
      population: population of the searches; larger populations need more memory.
      evaluations: budget of a search.
      samples: actions in a gradient step.
      seed: seed of graphs, keys and actions.
      folder: folder of the run.
    """

    ops: tuple[int, ...] = at_least(1, (80_000,))
    stages: tuple[str, ...] = choice(STAGES)
    population: int = at_least(1, 100)
    evaluations: int = at_least(1, 500)
    samples: int = at_least(1, 8)
    seed: int = 0
    folder: Path = Path("runs/large")


def run(stage: str, family: str, ops: int, settings: Settings) -> dict[str, Any]:
    """Return the times of one stage on one graph, and the peak memory of this process so far."""
    fn, *args = STAGES[stage](settings, FAMILIES[family](settings.seed, ops))
    began = time.perf_counter()
    if stage not in ON_HOST:
        fn = jax.jit(fn).lower(*args).compile()
    between = time.perf_counter()
    jax.block_until_ready(fn(*args))
    return {
        "graph": family,
        "ops": ops,
        "stage": stage,
        "compiling": between - began,
        "running": time.perf_counter() - between,
        "peak": peak_bytes(),
    }


def main(settings: Settings) -> None:
    """Measure stages, print the table, and save it with the figures."""
    rows = {
        f"{stage}, {family}, {ops} ops": partial(
            apart, run, stage, family, ops, settings, cached=False
        )
        for stage, family, ops in product(settings.stages, FAMILIES, settings.ops)
    }
    found = store.collect(settings, "large.json", rows, "stages", "ops")
    tables.show_rows(
        f"Graphs on {DEVICES} devices: {settings.evaluations} evaluations a search, "
        f"population {settings.population}",
        found,
        (
            ("stage", "{graph}: {stage}"),
            ("ops", "ops"),
            ("compilation, s", "{compiling:.1f}"),
            ("run, s", "{running:.1f}"),
            ("peak memory, GiB", lambda row: f"{row['peak'] / 2**30:.2f}"),
        ),
        settings.folder / "table.md",
    )


def _problem(graph: Graph) -> Problem:
    return prepare(graph, unit_rate_devices(DEVICES))


def _policy() -> tuple[Any, regal.Settings]:
    return regal.load(None, objective=OBJECTIVE, devices=DEVICES)


def _go(settings: Settings, graph: Graph) -> tuple[Problem, go.Inputs, go.TrainState]:
    problem = _problem(graph)
    inputs = go.inputs(graph, problem, settings=go.Settings())
    params = go.init(jax.random.key(settings.seed), inputs, settings=go.Settings())
    return problem, inputs, go.start(params, settings=go.Settings())


def _minimize(
    settings: Settings, proposal: brkga.Proposal, key: jax.Array, problem: Problem
) -> jax.Array:
    size = settings.population
    return brkga.minimize(
        key,
        shard_candidates(population_cost(problem, OBJECTIVE)),
        keys_shape(problem),
        evaluations=settings.evaluations,
        settings=brkga.Settings(size, elites=size // 5, mutants=size // 10),
        proposal=proposal,
    ).cost


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
