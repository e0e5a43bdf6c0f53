"""Training of GO's policy, on models whose families are not in the table."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import Progress, track

from experiments import common
from experiments.go.methods import OBJECTIVE
from gopt import padding
from gopt import problem as problems
from gopt.checkpoints import Checkpoints
from gopt.graph import Shape
from gopt.hardware import p100s
from gopt.problem import Problem, prepare
from gopt.sources.jaxpr import trace
from gopt.systems import go
from gopt.workloads import WORKLOADS

TRAIN: tuple[tuple[str, dict[str, Any]], ...] = (  # training steps, of at most about 1 350 ops
    ("bert", dict(batch=16, length=256, layers=3)),
    ("conformer", dict(layers=1)),
    ("densenet", dict(batch=32, blocks=(2, 4))),
    ("dlrm", dict()),
    ("efficientnet", dict(batch=32, blocks=(1,) * 7)),
    ("gpt2", dict(batch=8, length=512, layers=4)),
    ("graph_network", dict(steps=2)),
    ("hrnet", dict(batch=32, modules=(1,), blocks=2)),
    ("mamba", dict(layers=2)),
    ("mlp_mixer", dict(batch=32, layers=2)),
    ("random_network", dict(batch=4, length=512, width=256, layers=11, seed=5)),
    ("random_network", dict(batch=16, length=128, width=1024, layers=15, seed=4)),
    ("randwire", dict(batch=32, stages=2, nodes=8, seed=2)),
    ("ssd", dict(batch=16)),
    ("switch", dict(layers=2)),
    ("t5", dict(batch=32, source_length=128, target_length=128, layers=2)),
    ("unet", dict(batch=8, size=188, depth=3)),
    ("vit", dict(batch=32, layers=3)),
)


@dataclasses.dataclass(frozen=True)
class Training:
    """How the policy is trained.

    Attributes:
      steps: of training; each has one number of devices, in turn.
      devices: numbers of devices.
      graphs: in a step, `G`.
      life: how many iterations a search lasts on average, until it begins anew.
      checkpoint_every: steps between checkpoints.
    """

    steps: int = 800
    devices: tuple[int, ...] = (2, 4)
    graphs: int = 6
    life: int = 150
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        for name in ("steps", "graphs", "life", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 at least")
        if self.graphs > len(TRAIN):
            raise ValueError(f"graphs is {self.graphs}: expected {len(TRAIN)} at most")
        if not self.devices:
            raise ValueError("devices is (): expected some numbers of devices")


class Pool(NamedTuple):
    """Graphs on one number of devices, padded to one shape; every leaf has an axis `G`."""

    problem: Problem
    inputs: go.Inputs
    start: go.State  # all ops on one device


def pools(training: Training, policy: go.Settings) -> list[Pool]:
    """Returns the training graphs, a pool for each number of devices."""
    graphs = []
    for family, sizes in track(TRAIN, "tracing training graphs"):
        step, args = WORKLOADS[family](**sizes).train_step()
        graphs.append(trace(step, *args, donate_argnums=(0, 1)).graph)
    shape = Shape(*(max(rows) for rows in zip(*map(padding.bucket, graphs), strict=True)))
    padded = [padding.pad(graph, shape) for graph in graphs]
    return [_pool(padded, devices, policy) for devices in training.devices]


def _pool(graphs: list[Any], devices: int, policy: go.Settings) -> Pool:
    each = [prepare(graph, p100s(devices)) for graph in graphs]
    inputs = [go.read(graph, one, policy) for graph, one in zip(graphs, each, strict=True)]
    problem = jax.tree.map(jnp.asarray, problems.stack(each))

    def begin(problem: Problem) -> go.State:
        device = jnp.zeros(problem.shape.ops, jnp.int32)
        return go.begin(problem, device, go.placement_cost(problem, OBJECTIVE))

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *inputs)
    return Pool(problem, stacked, jax.jit(jax.vmap(begin))(problem))


def train(
    training: Training, policy: go.Settings, seed: int, folder: Path
) -> tuple[Any, go.Settings]:
    """Returns trained parameters and the settings of the policy; also saved as `policy.npz`.

    Resumes from the newest checkpoint in `folder`, if there is one; the result is the same as
    without an interruption.

    Raises:
      ValueError: the folder holds checkpoints of other settings.
    """
    settings = {"seed": seed, "graphs": TRAIN, "policy": dataclasses.asdict(policy)}
    steps = {"training": dataclasses.asdict(training)}
    checkpoints = Checkpoints(folder, settings | steps)
    every = pools(training, policy)
    first = jax.tree.map(lambda x: x[0], every[0].inputs)
    state = go.init(jax.random.fold_in(jax.random.key(seed), 0), first, settings=policy)
    done, (state, best) = checkpoints.restore((state, [pool.start for pool in every]))
    record = folder / "watched.json"
    watched = json.loads(record.read_text())[:done] if done else []
    learn = jax.jit(partial(_learn, policy=policy))
    with Progress() as progress:
        task = progress.add_task("training", total=training.steps, completed=done)
        for step in range(done, training.steps):
            rng = np.random.default_rng((seed, step))
            place = step % len(every)
            pool, now = every[place], best[place]
            rows = rng.choice(len(TRAIN), training.graphs, replace=False)
            anew = jnp.asarray(rng.random(training.graphs) < policy.iterations / training.life)
            key = jax.random.fold_in(jax.random.key(seed), step + 1)
            state, best[place], watch = learn(key, state, pool, now, rows, anew)
            watched.append({name: float(value.mean()) for name, value in watch.items()})
            recent = np.mean([w["better"] for w in watched[-50:]])
            progress.update(task, advance=1, description=f"training, better {recent:.3f}")
            if (step + 1) % training.checkpoint_every == 0 or step + 1 == training.steps:
                common.save_json(record, watched)
                checkpoints.save(step + 1, (state, best))
    checkpoints.close()
    params = jax.device_get(state.params)
    origin = {**settings, **steps, "versions": common.versions()}
    go.save_policy(folder / "policy.npz", params, policy, origin=origin)
    return params, policy


def _learn(
    key: jax.Array,
    state: go.TrainState,
    pool: Pool,
    best: go.State,
    rows: jax.Array,
    anew: jax.Array,
    *,
    policy: go.Settings,
) -> tuple[go.TrainState, go.State, dict[str, jax.Array]]:
    """Returns the state after a step on some rows of a pool, and their best placements."""
    problem, inputs, start = jax.tree.map(lambda x: x[rows], pool)
    now = jax.tree.map(lambda x: x[rows], best)

    def one(row: tuple[jax.Array, Problem, go.Inputs, go.State]) -> tuple[go.State, go.Taken]:
        key, problem, inputs, begin = row
        cost = go.placement_cost(problem, OBJECTIVE)
        run = go.rollout(
            key,
            state.params,
            inputs,
            begin,
            cost,
            iterations=policy.iterations,
            settings=policy,
        )
        return run[:2]

    after, taken = jax.lax.map(one, (jax.random.split(key, len(rows)), problem, inputs, now))
    state, watch = go.improve(state, inputs, taken, settings=policy)
    # A search that is over begins anew the next time.
    device = jnp.where(anew[:, None], start.device, after.device)
    kept = go.State(device, jnp.where(anew, start.cost, after.cost))
    return state, jax.tree.map(lambda all, new: all.at[rows].set(new), best, kept), watch
