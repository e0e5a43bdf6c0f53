"""REGAL against the genetic algorithm alone, on model families that it was not trained on.

    python -m experiments.regal                  # evaluates the policy that ships with gopt
    python -m experiments.regal --train          # trains one first; resumes if interrupted

Every search gets the same number of evaluations on the same graphs. Prints a table and saves it
with settings, versions, figures of every run and plots in one folder.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.progress import track

from experiments import common, regal_graphs, regal_training
from experiments.regal_report import Runs, draw_schedules, draw_searches, report
from gopt.classical import HEURISTICS, schedules_tried
from gopt.cost.execution import (
    Keys,
    evaluate,
    keys_shape,
    objective,
    population_cost,
)
from gopt.graph import Graph, Shape
from gopt.hardware import Hardware, h100s
from gopt.nets.graphs import GraphsTuple, to_graphs_tuple
from gopt.padding import bucket, pad
from gopt.parallel import spread
from gopt.problem import Problem, prepare
from gopt.search import brkga, random
from gopt.systems import best, regal

DEVICES = 2
# What the heuristics try, and the program's own order.
LEAST = 1 + sum(schedules_tried(name, DEVICES) for name in HEURISTICS)
# Smaller graphs are padded to this: to compile for one more shape takes longer than to search.
SMALLEST = Shape(ops=1024, tensors=1024, uses=2048)
SEARCHES = (
    *("random search", "BRKGA", "BRKGA from heuristics"),
    *("REGAL untrained", "REGAL", "best of gopt"),
)


@dataclass(frozen=True)
class Settings:
    """Settings of the experiment.

    Attributes:
      objective: what is minimised.
      evaluations: budget of every method on every graph.
      seeds: runs of every search on every graph.
      train: train a policy, instead of loading `weights`.
      weights: a policy to evaluate; by default the one that ships for the objective.
      split: families to evaluate on; none of them is trained on.
      folder: where the run is saved.
      seed: of everything random.
      policy: sizes of a policy that is trained; one that is loaded has its own.
      training: how it is trained.
    """

    objective: Literal["peak_memory", "makespan"] = "peak_memory"
    evaluations: int = 5000
    seeds: int = 2
    train: bool = False
    weights: Path | None = None
    split: Literal["test", "validation"] = "test"
    folder: Path = Path("runs/regal")
    seed: int = 0
    policy: regal.Settings = field(default_factory=regal.Settings)
    training: regal_training.Training = field(default_factory=regal_training.Training)

    def __post_init__(self) -> None:
        if self.evaluations < LEAST:
            raise ValueError(
                f"evaluations is {self.evaluations}: expected {LEAST} at least, for the heuristics"
            )
        if self.train and self.weights is not None:
            raise ValueError("weights are given, and train is set: expected one of them")


def machine(name: str) -> Hardware:
    """Returns two equal devices; transfers are synchronous where memory is what counts.

    So the accounting of memory is exact.
    """
    return h100s(DEVICES)._replace(synchronous=np.bool_(name == "peak_memory"))


class Found(NamedTuple):
    """What a search returns, as far as it is reported; its fields are those of `brkga.Result`."""

    keys: Keys
    cost: jax.Array
    history: jax.Array
    evaluations: jax.Array


def methods(settings: Settings) -> dict[str, Callable[..., brkga.Result | Found]]:
    """Returns the searches: each maps (key, problem, what it starts from) to a result."""
    budget = settings.evaluations

    def standard(key: jax.Array, problem: Problem, _: Any) -> brkga.Result:
        cost = population_cost(problem, settings.objective)
        return brkga.minimize(key, cost, keys_shape(problem), evaluations=budget)

    def seeded(key: jax.Array, problem: Problem, given: Keys) -> brkga.Result:
        cost = population_cost(problem, settings.objective)
        left = budget - best.tried(problem)
        return brkga.minimize(key, cost, keys_shape(problem), evaluations=left, given=given)

    def chance(key: jax.Array, problem: Problem, _: Any) -> brkga.Result:
        cost = population_cost(problem, settings.objective)
        return random.minimize(key, cost, keys_shape(problem), evaluations=budget)

    def learned(key: jax.Array, problem: Problem, action: jax.Array) -> brkga.Result:
        return regal.search(
            key,
            problem,
            action,
            objective=settings.objective,
            evaluations=budget,
            settings=settings.policy,
        )

    def strongest(key: jax.Array, problem: Problem, given: best.Starts) -> Found:
        keys, cost = best.improve(
            key, problem, given, objective=settings.objective, evaluations=budget
        )
        return Found(keys, cost, cost[None], jnp.array([budget]))

    return {
        "random search": chance,
        "BRKGA": standard,
        "BRKGA from heuristics": seeded,
        "REGAL": learned,
        "best of gopt": strongest,
    }


def run(method: Any, keys: jax.Array, problem: Problem, start: Any, before: float) -> Runs:
    """Returns what a jitted method reaches from each of the random keys `[S]`.

    `before` is how many seconds of the host it took to make `start`, which each run would spend.
    """
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *x.shape)), (problem, start))
    compiled = method.lower(keys, *rows).compile()
    began = time.perf_counter()
    result = jax.block_until_ready(compiled(keys, *rows))
    cores = min(len(keys), jax.device_count())
    seconds = before + (time.perf_counter() - began) * cores / len(keys)
    result = jax.device_get(result)
    top = int(np.argmin(result.cost))
    return Runs(
        cost=result.cost,
        evaluations=result.evaluations[0],
        history=result.history,
        keys=jax.tree.map(lambda x: x[top], result.keys),
        seconds=seconds,
    )


def solve(
    settings: Settings, params: Any, graph: Graph, jitted: dict[str, Any], key: jax.Array
) -> tuple[Problem, dict[str, Runs]]:
    """Returns the problem of one graph, and what every method reaches on it.

    The policy is also run untrained, to tell what its initial proposals do from what it learned.
    """
    padded = pad(graph, Shape(*map(max, bucket(graph), SMALLEST)))
    host = prepare(padded, machine(settings.objective))
    problem = jax.tree.map(jnp.asarray, host)
    began = time.perf_counter()
    graphs = to_graphs_tuple(padded)
    to_read = time.perf_counter() - began
    first = jax.random.fold_in(jax.random.key(settings.seed), 0)  # as in training
    untrained = regal.init(first, graphs, settings=settings.policy).params
    began = time.perf_counter()
    starts = best.starts(host, settings.objective)
    to_start = time.perf_counter() - began
    found = {}
    for row, name in enumerate(HEURISTICS):
        candidate = jax.tree.map(lambda x, row=row: x[row], starts.keys)
        cost = np.asarray(_cost(problem, candidate, name=settings.objective))[None]
        spent = np.array([schedules_tried(name, DEVICES)])
        found[name] = Runs(cost, spent, cost[None], candidate, None)
    keys = jax.random.split(key, settings.seeds)
    act = partial(_action, graphs=graphs, settings=settings.policy)
    for name, start, before in (
        ("random search", (), 0.0),
        ("BRKGA", (), 0.0),
        ("BRKGA from heuristics", starts.keys, to_start),
        ("REGAL untrained", act(untrained), to_read),
        ("REGAL", act(params), to_read),
        ("best of gopt", starts, to_start),
    ):
        method = jitted[name.removesuffix(" untrained")]
        found[name] = run(method, keys, problem, start, before)
    for name in SEARCHES:
        again = _cost(problem, found[name].keys, name=settings.objective)
        if float(again) != float(found[name].cost.min()):
            raise RuntimeError(f"{name} reports {found[name].cost.min()}, its schedule {again}")
    return problem, found


@partial(jax.jit, static_argnames="settings")
def _action(params: Any, graphs: GraphsTuple, settings: regal.Settings) -> jax.Array:
    return regal.action(params, graphs, devices=DEVICES, settings=settings)


@partial(jax.jit, static_argnames="name")
def _cost(problem: Problem, keys: Keys, name: str) -> jax.Array:
    return objective(problem, evaluate(problem, keys), name)


def policy(settings: Settings) -> tuple[Any, regal.Settings]:
    """Returns the parameters and settings of the policy: trained now, or loaded."""
    if settings.train:
        train = [
            regal_graphs.build(s) for s in track(regal_graphs.TRAIN, "tracing training graphs")
        ]
        pool = regal_training.pool(
            train,
            machine(settings.objective),
            objective=settings.objective,
            training=settings.training,
            seed=settings.seed,
        )
        params, watched = regal_training.train(
            pool,
            objective=settings.objective,
            policy=settings.policy,
            training=settings.training,
            seed=settings.seed,
            folder=settings.folder / "checkpoints",
        )
        common.save_json(settings.folder / "training.json", watched)
        origin = {**dataclasses.asdict(settings), "versions": common.versions()}
        regal.save_policy(
            settings.folder / f"{settings.objective}.npz",
            params,
            settings.policy,
            objective=settings.objective,
            devices=DEVICES,
            origin=json.loads(json.dumps(origin, default=str)),
        )
        return params, settings.policy
    return regal.load_policy(settings.weights, objective=settings.objective, devices=DEVICES)


def main(settings: Settings) -> None:
    """Runs the experiment."""
    common.start()
    params, sizes = policy(settings)
    settings = dataclasses.replace(settings, policy=sizes)
    common.save_settings(settings.folder, settings)

    def over_seeds(method: Callable[..., brkga.Result | Found]) -> Callable[..., Found]:
        def one(row: Any) -> Found:
            result = method(*row)
            return Found(*(getattr(result, name) for name in Found._fields))

        return jax.jit(spread(lambda *args: jax.lax.map(one, args)))

    jitted = {name: over_seeds(method) for name, method in methods(settings).items()}
    specs = regal_graphs.TEST if settings.split == "test" else regal_graphs.VALIDATION
    names, families, results, problems = [], [], [], []
    root = jax.random.key(settings.seed)
    for index, spec in enumerate(track(specs, "searching")):
        graph = regal_graphs.build(spec)
        names.append(regal_graphs.name(spec, graph))
        families.append(spec[0])
        key = jax.random.fold_in(root, index)
        problem, found = solve(settings, params, graph, jitted, key)
        problems.append(problem)
        results.append(found)
    title = (
        f"{settings.objective} on {DEVICES} devices, {settings.evaluations} evaluations, "
        f"{settings.seeds} seeds, {settings.split} split"
    )
    report(title, names, families, results, settings.folder)
    draw_searches(families, results, settings.folder)
    draw_schedules(problems[-1], results[-1], settings.folder)
    print(f"saved in {settings.folder}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
