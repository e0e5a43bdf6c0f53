"""Training of REGAL's policy on a pool of graphs."""

import dataclasses
import json
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    track,
)

from experiments import common
from experiments.regal.graphs import noisy
from experiments.regal.runs import first_key, task
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.problem import Problem
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph
from gopt.heuristics.schedule.evolve import evolve
from gopt.learning.checkpoints import Checkpoints
from gopt.learning.graphs import GraphsTuple
from gopt.search.parallel import shard_candidates
from gopt.systems import regal


@dataclasses.dataclass(frozen=True)
class Training:
    """How the policy is trained.

    Attributes:
      evaluations: budget of each search; less than that of the test, for speed.
      graphs: graphs in a step, `G`.
      samples: actions for each graph, `S`; two at least.
      variants: noisy copies of each training graph, besides the graph itself.
      noise: spread of the log-normal noise on their sizes and costs.
      checkpoint_every: steps between checkpoints.
      splits: whose graphs the policy trains on. Settings, but for the number of steps, were chosen
        on the validation split, with policies of the training split alone.
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


class Pool(NamedTuple):
    """Graphs of one size to train on; every leaf has a leading axis `G`."""

    problem: Problem
    graphs: GraphsTuple
    standard: jax.Array  # float32 [G], cost that standard BRKGA reaches at the same budget


def standard_costs(
    key: jax.Array, problem: Problem, *, objective: str, evaluations: int, seeds: int = 3
) -> np.ndarray:
    """Returns the mean cost that standard BRKGA reaches on a batch of problems. float32 `[G]`."""

    def one(row: tuple[jax.Array, Problem]) -> jax.Array:
        key, problem = row
        return evolve(key, problem, objective=objective, evaluations=evaluations).cost

    count = len(problem.num_ops)
    rows = np.repeat(np.arange(count), seeds)
    each = jax.jit(shard_candidates(lambda *args: jax.lax.map(one, args)))
    cost = each(jax.random.split(key, len(rows)), jax.tree.map(lambda x: x[rows], problem))
    return np.asarray(cost).reshape(count, seeds).mean(-1)


def pools(train: Sequence[Graph], *, objective: str, training: Training, seed: int) -> list[Pool]:
    """Returns the training graphs and their noisy variants, a pool for each size of bucket."""
    rng = np.random.default_rng(seed)
    every = [
        graph if copy == 0 else noisy(rng, graph, training.noise)
        for graph in train
        for copy in range(training.variants + 1)
    ]
    by_size: dict[int, list[Graph]] = {}
    for graph in every:
        by_size.setdefault(padding.bucket(graph).ops, []).append(graph)

    def pool(alike: list[Graph]) -> Pool:
        buckets = [padding.bucket(graph) for graph in alike]
        shape = graphs.Shape(*(max(sizes) for sizes in zip(*buckets, strict=True)))
        padded = [padding.pad(graph, shape) for graph in alike]
        each = [task(graph, objective) for graph in padded]
        problem = problems.stack(each)
        read = [
            regal.features(graph, one, objective=objective)
            for graph, one in zip(padded, each, strict=True)
        ]
        tuples = jax.tree.map(lambda *x: np.stack(x), *read)
        standard: Any = standard_costs(
            jax.random.key(seed), problem, objective=objective, evaluations=training.evaluations
        )
        return jax.tree.map(jnp.asarray, Pool(problem, tuples, standard))

    return [pool(by_size[size]) for size in track(sorted(by_size), "searching training graphs")]


def train(
    pools: Sequence[Pool],
    *,
    objective: str,
    policy: regal.Settings,
    training: Training,
    seed: int,
    folder: Path,
) -> tuple[Any, list[dict[str, float]]]:
    """Returns trained parameters and what was watched in every step.

    Resumes from the newest checkpoint in `folder`, if there is one; the result is the same as
    without an interruption.

    Raises:
      ValueError: the folder holds checkpoints of other settings.
    """
    settings = {"objective": objective, "seed": seed, "policy": dataclasses.asdict(policy)}
    settings["training"] = dataclasses.asdict(training)
    settings |= {"graphs": _fingerprint(pools), "version": regal.VERSION}
    checkpoints = Checkpoints(folder, settings)
    root = jax.random.key(seed)
    first = jax.tree.map(lambda x: x[0], pools[0].graphs)
    state = regal.init(first_key(seed), first, settings=policy)
    done, state = checkpoints.restore(state)
    record = folder / "watched.json"
    watched = json.loads(record.read_text())[:done] if done else []
    every = [(pool, row) for pool in pools for row in range(len(pool.standard))]
    learn = partial(_learn, objective=objective, policy=policy, training=training)
    update = jax.jit(partial(regal.update, settings=policy))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task("training", total=policy.steps, completed=done)
        for step in range(done, policy.steps):
            rng = np.random.default_rng((seed, step))
            drawn = rng.choice(len(every), training.graphs, replace=len(every) < training.graphs)
            keys = jax.random.split(jax.random.fold_in(root, step + 1), training.graphs)
            found = []
            for key, index in zip(keys, drawn, strict=True):
                pool, row = every[index]
                example = jax.tree.map(lambda x, row=row: x[row], pool)
                found.append(learn(key, state.params, example))
            found = jax.device_get(found)
            gradient, watch = jax.tree.map(lambda *x: np.mean(np.stack(x), 0), *found)
            state = update(state, gradient)
            watched.append({name: float(value) for name, value in watch.items()})
            recent = np.mean([w["reward"] for w in watched[-20:]])
            progress.update(task, advance=1, description=f"training, reward {recent:.4f}")
            if (step + 1) % training.checkpoint_every == 0 or step + 1 == policy.steps:
                common.save_json(record, watched)
                checkpoints.save(step + 1, state)
    checkpoints.close()
    return jax.device_get(state.params), watched


@partial(jax.jit, static_argnames=("objective", "policy", "training"))
def _learn(
    key: jax.Array,
    params: Any,
    example: Pool,
    *,
    objective: str,
    policy: regal.Settings,
    training: Training,
) -> tuple[Any, dict[str, jax.Array]]:
    """Returns the gradient of one row of a pool, and what to watch: sampled, and searched from."""
    to_act, to_search = jax.random.split(key)
    count, devices = training.samples, example.problem.num_devices
    taken = regal.sample(to_act, params, example.graphs, samples=count, settings=policy)
    actions = regal.quantise(taken, example.graphs, devices=devices, settings=policy)
    search = partial(
        regal.rewards, objective=objective, evaluations=training.evaluations, settings=policy
    )
    problem, standard = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (count, *x.shape)), (example.problem, example.standard)
    )
    reward = shard_candidates(search)(
        jax.random.split(to_search, count), problem, standard, actions
    )
    batch = jax.tree.map(lambda x: x[None], (example.graphs, taken, reward))
    return regal.gradient(params, *batch, settings=policy)


def _fingerprint(pools: Sequence[Pool]) -> int:
    """Returns a checksum of the graphs, and of the machine that they are for."""
    total = 0
    for leaf in jax.tree.leaves([(pool.problem, pool.graphs) for pool in pools]):
        total = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), total)
    return total
