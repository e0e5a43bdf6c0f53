"""Train REGAL's policy on a pool of graphs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from experiments.harness import store
from experiments.harness.graphs import Spec, build
from experiments.regal.methods import DEVICES
from experiments.regal.runs import Learned, first_key, task
from experiments.regal.settings import Settings
from gopt.cost.schedule import problem as problems
from gopt.graph import padding
from gopt.graph.graph import Graph, Shape
from gopt.learning.train import run
from gopt.program.hashing import digest_arrays
from gopt.systems import regal

CHECKPOINT_EVERY = 25  # steps
NOISE = 0.1  # spread of the log-normal noise on sizes and costs


def noisy(rng: np.random.Generator, graph: Graph) -> Graph:
    """Return a variant of a graph with noise on its sizes and costs."""

    def scaled(values: Any) -> np.ndarray:
        return np.rint(np.asarray(values) * rng.lognormal(0, NOISE, np.shape(values)))

    fields = ("flops", "bytes", "workspace", "size")
    return graph._replace(**{field: scaled(getattr(graph, field)) for field in fields})


def pools(specs: Sequence[Spec], settings: Settings) -> list[regal.Example]:
    """Return training graphs and their noisy variants, a pool for each size of bucket."""
    objective, training = settings.objective, settings.training
    rng = np.random.default_rng(settings.seed)
    every = [
        graph if copy == 0 else noisy(rng, graph)
        for graph in [build(spec) for spec in track(specs, "tracing training graphs")]
        for copy in range(training.variants + 1)
    ]
    by_size: dict[int, list[Graph]] = {}
    for graph in every:
        by_size.setdefault(padding.bucket(graph).ops, []).append(graph)

    def pool(alike: list[Graph]) -> regal.Example:
        buckets = [padding.bucket(graph) for graph in alike]
        shape = Shape(*(max(sizes) for sizes in zip(*buckets, strict=True)))
        padded = [padding.pad(graph, shape) for graph in alike]
        each = [task(graph, objective) for graph in padded]
        problem = problems.stack(each)
        read = [
            regal.inputs(graph, one, settings=regal.Settings(), objective=objective)
            for graph, one in zip(padded, each, strict=True)
        ]
        inputs = jax.tree.map(lambda *x: np.stack(x), *read)
        key = jax.random.key(settings.seed)
        how: dict[str, Any] = {"objective": objective, "evaluations": training.evaluations}
        standard: Any = regal.standard_costs(key, problem, **how)
        return jax.tree.map(jnp.asarray, regal.Example(problem, inputs, standard))

    return [pool(by_size[size]) for size in track(sorted(by_size), "searching training graphs")]


def trained(pools: Sequence[regal.Example], settings: Settings) -> Learned:
    """Return the parameters and settings of a policy after training and saving it.

    Resumes from the newest checkpoint in the folder, if it has one; the result is the same as
    without an interruption. The metrics of each step are in its `history.json`.

    Raises:
      ValueError: the folder holds checkpoints of other settings.
    """
    objective, training, policy = settings.objective, settings.training, settings.policy
    described: dict[str, Any] = {"objective": objective, "seed": settings.seed}
    described |= {"policy": dataclasses.asdict(policy), "training": dataclasses.asdict(training)}
    described |= {"graphs": digest_arrays(list(pools)), "version": regal.VERSION}
    root = jax.random.key(settings.seed)
    first = jax.tree.map(lambda x: x[0], pools[0].inputs)
    params = regal.init(first_key(settings.seed), first, settings=policy)
    every = [(pool, row) for pool in pools for row in range(len(pool.standard))]

    def step(index: int, state: regal.TrainState) -> tuple[regal.TrainState, Any]:
        rng = np.random.default_rng((settings.seed, index))
        drawn = rng.choice(len(every), training.graphs, replace=len(every) < training.graphs)
        rows = (every[place] for place in drawn)
        return regal.step(
            state,
            jax.random.fold_in(root, index + 1),
            [jax.tree.map(lambda x, row=row: x[row], pool) for pool, row in rows],
            settings=policy,
            objective=objective,
            evaluations=training.evaluations,
            samples=training.samples,
        )

    state, _ = run(
        regal.start(params, settings=policy),
        step,
        steps=policy.steps,
        folder=settings.folder / "checkpoints",
        described=described,
        checkpoint_every=CHECKPOINT_EVERY,
        label="training",
        shown="reward",
    )
    params, origin = jax.device_get(state.params), store.origin(settings)
    path = settings.folder / f"{objective}.npz"
    regal.save(path, params, policy, objective=objective, devices=DEVICES, origin=origin)
    return params, policy
