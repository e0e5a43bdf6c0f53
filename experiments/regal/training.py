"""Train REGAL's policy on a pool of graphs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from experiments.regal.graphs import noisy
from experiments.regal.runs import first_key, task
from gopt.cost.schedule import problem as problems
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph
from gopt.learning.train import run
from gopt.program.hashing import digest_arrays
from gopt.systems import regal


@dataclasses.dataclass(frozen=True)
class Training:
    """Settings of the training.

    Attributes:
      evaluations: budget of each search, smaller than in the test, for speed.
      graphs: graphs in a step, `G`.
      samples: actions for each graph, `S`; at least two.
      variants: noisy copies of each training graph, besides the graph itself.
      noise: spread of the log-normal noise on their sizes and costs.
      checkpoint_every: steps between checkpoints.
      splits: splits whose graphs the policy trains on. Settings, except for the number of steps,
        were chosen on the validation split, with policies of the training split alone.
    """

    evaluations: int = 2120
    graphs: int = 16
    samples: int = 8
    variants: int = 1
    noise: float = 0.1
    checkpoint_every: int = 25
    splits: tuple[Literal["train", "validation"], ...] = ("train", "validation")

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise ValueError(f"samples is {self.samples}: expected 2 at least, for a baseline")
        if not self.splits or len(set(self.splits)) < len(self.splits):
            raise ValueError(f"splits is {self.splits}: expected some, each once")


def pools(
    train: Sequence[Graph], *, objective: str, training: Training, seed: int
) -> list[regal.Example]:
    """Return the training graphs and their noisy variants, a pool for each size of bucket."""
    rng = np.random.default_rng(seed)
    every = [
        graph if copy == 0 else noisy(rng, graph, training.noise)
        for graph in train
        for copy in range(training.variants + 1)
    ]
    by_size: dict[int, list[Graph]] = {}
    for graph in every:
        by_size.setdefault(padding.bucket(graph).ops, []).append(graph)

    def pool(alike: list[Graph]) -> regal.Example:
        buckets = [padding.bucket(graph) for graph in alike]
        shape = graphs.Shape(*(max(sizes) for sizes in zip(*buckets, strict=True)))
        padded = [padding.pad(graph, shape) for graph in alike]
        each = [task(graph, objective) for graph in padded]
        problem = problems.stack(each)
        read = [
            regal.inputs(graph, one, settings=regal.Settings(), objective=objective)
            for graph, one in zip(padded, each, strict=True)
        ]
        inputs = jax.tree.map(lambda *x: np.stack(x), *read)
        standard: Any = regal.standard_costs(
            jax.random.key(seed), problem, objective=objective, evaluations=training.evaluations
        )
        return jax.tree.map(jnp.asarray, regal.Example(problem, inputs, standard))

    return [pool(by_size[size]) for size in track(sorted(by_size), "searching training graphs")]


def train(
    pools: Sequence[regal.Example],
    *,
    objective: str,
    policy: regal.Settings,
    training: Training,
    seed: int,
    folder: Path,
) -> tuple[Any, list[dict[str, float]]]:
    """Return trained parameters and the metrics of every step.

    Resumes from the newest checkpoint in `folder`, if it has one; the result is the same as without
    an interruption.

    Raises:
      ValueError: the folder holds checkpoints of other settings.
    """
    described = {"objective": objective, "seed": seed, "policy": dataclasses.asdict(policy)}
    described["training"] = dataclasses.asdict(training)
    described["graphs"] = digest_arrays([(pool.problem, pool.inputs) for pool in pools])
    described["version"] = regal.VERSION
    root = jax.random.key(seed)
    first = jax.tree.map(lambda x: x[0], pools[0].inputs)
    params = regal.init(first_key(seed), first, settings=policy)
    every = [(pool, row) for pool in pools for row in range(len(pool.standard))]

    def step(index: int, state: regal.TrainState) -> tuple[regal.TrainState, Any]:
        rng = np.random.default_rng((seed, index))
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

    state, history = run(
        regal.start(params, settings=policy),
        step,
        steps=policy.steps,
        folder=folder,
        described=described,
        checkpoint_every=training.checkpoint_every,
        label="training",
        shown="reward",
    )
    return jax.device_get(state.params), history
