"""Train GO's policy on models whose families are not in the table."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from experiments.go.case import OBJECTIVE
from experiments.harness import command_line, store
from experiments.harness.command_line import at_least
from experiments.harness.graphs import Spec, build
from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import p100s
from gopt.cost.joint.problem import JointProblem, prepare_joint
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph import padding
from gopt.graph.graph import Graph, Shape
from gopt.heuristics.fusion.instruction_fusion import instruction_fusion
from gopt.heuristics.fusion.presets import within_devices
from gopt.heuristics.solvers.metis import partition_by_time
from gopt.learning.train import run
from gopt.systems import go
from gopt.systems.go.training import Simulate

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

STARTS = ("one device", "a cut")  # starts of searches, see `_pool`

VALIDATION: tuple[tuple[str, dict[str, Any]], ...] = (  # families outside training and table
    ("deeprank", dict(contexts=8)),
    ("resnext", dict(batch=32, blocks=(1, 2, 2, 1))),
    ("shufflenet_v2", dict(batch=32, blocks=(2, 3, 2))),
    ("squeezenet", dict(batch=32)),
)


@dataclasses.dataclass(frozen=True)
class Training(command_line.Settings):
    """Settings of the training.

    Attributes:
      steps: training steps; numbers of devices alternate between steps.
      devices: numbers of devices.
      graphs: graphs in a step, `G`.
      iterations: search iterations for each graph in a step.
      samples: decisions drawn in an iteration for each kind of moves. More than in a search,
        because they cost little beside the gradient and make it less noisy.
      epochs: passes over the drawn samples; with one pass, PPO clips nothing.
      life: mean number of iterations before a search restarts.
      checkpoint_every: steps between checkpoints.
    """

    steps: int = at_least(1, 200)
    devices: tuple[int, ...] = at_least(1, (2, 4))
    graphs: int = at_least(1, 6)
    iterations: int = at_least(1, 8)
    samples: int = at_least(2, 16)  # they are compared with each other
    epochs: int = at_least(1, 1)
    life: int = at_least(1, 40)
    checkpoint_every: int = at_least(1, 100)


def pools(
    models: Sequence[tuple[str, dict[str, Any]]], devices: Sequence[int], policy: go.Settings
) -> list[go.Searches]:
    """Return searches on the training steps of models, a pool for each number of devices."""
    specs = [Spec(family, sizes, is_step=True) for family, sizes in models]
    graphs = [build(spec) for spec in track(specs, "tracing training steps")]
    shape = Shape(*(max(rows) for rows in zip(*map(padding.bucket, graphs), strict=True)))
    padded = [padding.pad(graph, shape) for graph in graphs]
    return [_pool(padded, count, policy) for count in devices]


def _pool(graphs: list[Graph], devices: int, policy: go.Settings) -> go.Searches:
    """Return the searches of all graphs, each from `STARTS`.

    From "one device" nothing is fused. From "a cut", by METIS, all ops are fused that a compiler
    fuses within a device. If the policy does not place ops, METIS places them for both starts. They
    then differ in fusion; without fusion one is left.
    """
    each: list[Any] = [prepare(graph, p100s(devices)) for graph in graphs]
    cuts = [partition_by_time(problem, seed=1) for problem in each]
    if "fusion" in policy.tasks:
        each = joint_problems(graphs, devices)
    starts = STARTS[1:] if policy.tasks == ("scheduling",) else STARTS

    def search(graph: Graph, problem: Any, cut: np.ndarray, start: str) -> go.Searches:
        device, fused = cut, np.zeros(len(cut), bool)
        if start == "one device" and "placement" in policy.tasks:
            device = np.zeros_like(cut)
        if start != "one device" and "fusion" in policy.tasks:
            compiled = instruction_fusion(problem.fusion[0])
            fused = within_devices(problem.fusion[0], compiled, device)
        order = go.critical_path_order(problem) if "scheduling" in policy.tasks else None
        inputs = go.inputs(graph, problem, settings=policy)
        return go.Searches(problem, inputs, order, begin(problem, device, fused, order))

    rows = [search(*row, start) for row in zip(graphs, each, cuts, strict=True) for start in starts]
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(leaf) for leaf in x]), *rows)


def joint_problems(graphs: list[Graph], devices: int) -> list[JointProblem]:
    """Return joint problems of one shape, of graphs of one shape."""
    machine = partial(prepare_joint, hardware=p100s(devices), rules=RULES["gpu"])
    each = [machine(graph).fusion[0] for graph in graphs]
    rows = max(len(one.access) for one in each), max(len(one.reach.kernel) for one in each)
    return [machine(graph, rows=rows) for graph in graphs]


@jax.jit
def begin(problem: Problem | JointProblem, device: Any, fused: Any, order: Any) -> go.State:
    """Return a decision to start from, and its cost."""
    return go.begin(problem, device, go.simulator_of(problem, OBJECTIVE, order), fused)


def initial(key: jax.Array, every: Sequence[go.Searches], policy: go.Settings) -> Any:
    """Return random parameters of a policy for the inputs of some pools."""
    return go.init(key, jax.tree.map(lambda x: x[0], every[0].inputs), settings=policy)


def train(
    training: Training,
    policy: go.Settings,
    seed: int,
    folder: Path,
    every: Sequence[go.Searches] = (),
    simulate: Simulate = go.simulator_of,
) -> tuple[Any, go.Settings]:
    """Return trained parameters and the settings of the policy; also saved as `policy.npz`.

    Resumes from the newest checkpoint in `folder`, if it has one; the result is the same as without
    an interruption. The file is written with every checkpoint.

    Args:
      training: settings of the training; they take precedence over the policy's.
      policy: settings of the policy.
      seed: seed of everything random.
      folder: folder of checkpoints.
      every: searches to learn from, as from `pools`; by default of the training models.
      simulate: function that makes the simulator that the policy observes.

    Raises:
      ValueError: the folder holds checkpoints of other settings.
    """
    settings = {
        **{"seed": seed, "graphs": TRAIN, "simulate": simulate.__name__},
        **{"policy": dataclasses.asdict(policy), "training": dataclasses.asdict(training)},
    }
    origin = settings | {"versions": store.versions()}
    every = every or pools(TRAIN, training.devices, policy)
    begun = initial(jax.random.fold_in(jax.random.key(seed), 0), every, policy)
    drawn = {name: getattr(training, name) for name in ("iterations", "samples", "epochs")}
    drawing = dataclasses.replace(policy, **drawn)
    learn = jax.jit(partial(_learn, policy=drawing, simulate=simulate))

    def step(index: int, carry: Any) -> tuple[Any, Any]:
        state, best = carry
        rng = np.random.default_rng((seed, index))
        place = index % len(every)
        pool, now = every[place], best[place]
        rows = rng.choice(len(now.cost), training.graphs, replace=False)
        anew = jnp.asarray(rng.random(training.graphs) < training.iterations / training.life)
        key = jax.random.fold_in(jax.random.key(seed), index + 1)
        state, after, metrics = learn(key, state, pool, now, rows, anew)
        return (state, [*best[:place], after, *best[place + 1 :]]), metrics

    def save(done: int, carry: Any) -> None:
        params = jax.device_get(carry[0].params)
        go.save(folder / "policy.npz", params, policy, origin | {"done": done})

    (state, _), _ = run(
        (go.start(begun, settings=policy), [pool.start for pool in every]),
        step,
        steps=training.steps,
        folder=folder,
        described=settings,
        checkpoint_every=training.checkpoint_every,
        on_checkpoint=save,
        label="training",
        shown="better",
    )
    return jax.device_get(state.params), policy


def _learn(
    key: jax.Array,
    state: go.TrainState,
    pool: go.Searches,
    best: go.State,
    rows: jax.Array,
    anew: jax.Array,
    *,
    policy: go.Settings,
    simulate: Simulate,
) -> tuple[go.TrainState, go.State, dict[str, jax.Array]]:
    """Return the state after a step on some rows of a pool, their best decisions, and metrics."""
    every = pool._replace(start=best), pool.start
    now, start = (jax.tree.map(lambda x: x[rows], each) for each in every)
    how: dict[str, Any] = {"objective": OBJECTIVE, "simulate": simulate}
    state, metrics = go.step(state, key, now, settings=policy, **how)

    def restarted(start: jax.Array, after: jax.Array) -> jax.Array:
        return jnp.where(jnp.expand_dims(anew, tuple(range(1, start.ndim))), start, after)

    after = jax.tree.map(restarted, start, metrics.pop("reached"))
    return state, jax.tree.map(lambda all, new: all.at[rows].set(new), best, after), metrics
