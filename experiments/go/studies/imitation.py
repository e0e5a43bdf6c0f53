"""Teach a policy to place ops where the best of some heuristics does: a warm start.

It observes decisions that are partway from the start of a search to that placement. It learns the
groups that are still to be moved, and their devices. It does not learn the number of groups to move
at once, nor priorities and fusions. None of its own moves is evaluated.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

from experiments.go import training as trainer
from experiments.go.case import OBJECTIVE
from gopt.cost.joint.problem import schedule_of
from gopt.cost.schedule import decoding
from gopt.heuristics import critical_path, heft
from gopt.heuristics.schedule.placement.groups import join_groups, weight_groups
from gopt.heuristics.solvers.metis import partition_by_time
from gopt.learning.train import run
from gopt.systems import go


def imitated(
    training: trainer.Training,
    policy: go.Settings,
    seed: int,
    folder: Path,
    every: Sequence[go.Searches],
) -> Any:
    """Return parameters that were taught for as many steps as training has.

    A step has as many graphs as a training step, and as many decisions of each as that has
    iterations. Resumes from the newest checkpoint in `folder`, if it has one.

    Args:
      training: settings of steps, graphs and iterations.
      policy: settings of the policy, which places ops.
      seed: seed of everything random.
      folder: folder of checkpoints.
      every: searches to learn from, as from `trainer.pools`.

    Raises:
      ValueError: the folder holds checkpoints of other settings.
    """
    wanted = [targets(pool) for pool in every]
    params = trainer.initial(jax.random.fold_in(jax.random.key(seed), 0), every, policy)
    learn = jax.jit(partial(_learn, shown=training.iterations, policy=policy))

    def step(index: int, state: go.TrainState) -> tuple[go.TrainState, dict[str, Any]]:
        place, rng = index % len(every), np.random.default_rng((seed, index))
        rows = rng.choice(len(wanted[place]), training.graphs, replace=False)
        drawn = jax.tree.map(lambda x: x[rows], (every[place], wanted[place]))
        return learn(jax.random.fold_in(jax.random.key(seed), index + 1), state, *drawn), {}

    state, _ = run(
        go.start(params, settings=policy),
        step,
        steps=training.steps,
        folder=folder,
        described=trainer.described(training, policy, seed),
        checkpoint_every=training.checkpoint_every,
        label="imitating heuristics",
    )
    return jax.device_get(state.params)


def targets(pool: go.Searches) -> jax.Array:
    """Return the placement of each row's ops by the best of some heuristics, int32 `[R, N]`.

    The heuristics are METIS, on ops and on groups of ops that read the same weights, and critical
    path and HEFT on such groups, joined. The best placement costs least with the priorities and
    fusions of the start. Devices are interchangeable. They are numbered so that most of the time
    stays on the device of the start.
    """
    rows = [jax.tree.map(lambda x, k=k: x[k], pool) for k in range(len(pool.start.cost))]
    return jnp.stack([_best(row) for row in rows])


def _best(row: go.Searches) -> jax.Array:
    problem = jax.tree.map(np.asarray, schedule_of(row.problem))
    group = weight_groups(problem)
    joined = join_groups(problem, group, trainer.GROUPS * problem.num_devices)
    every = [partition_by_time(problem), partition_by_time(problem, group)]
    for schedule in (critical_path, heft):
        every.append(np.asarray(decoding.decode(problem, schedule(problem, joined)).device))
    fused = row.start.decision.fusion > 0
    states = [trainer.begin(row.problem, device, fused, row.order) for device in every]
    best = min(states, key=lambda state: float(state.cost)).decision.placement
    devices = problem.num_devices
    time = np.zeros((devices, devices))
    np.add.at(time, (np.asarray(best), np.asarray(row.start.decision.placement)), row.inputs.share)
    return jnp.asarray(linear_sum_assignment(time, maximize=True)[1], jnp.int32)[best]


def still_right(
    inputs: go.Inputs, group: jax.Array, groups: go.Groups, wanted: jax.Array
) -> jax.Array:
    """Return a mask of moves that bring a group to its target device, bool `[K, V]`.

    The target is where most of its time belongs. A group with half of its time there stays.

    Args:
      inputs: graph.
      group: group of each op, int32 `[N]`.
      groups: features of the groups.
      wanted: target device of each op, int32 `[N]`.
    """
    state, is_move = groups
    count, values = is_move.shape
    time = (inputs.share + 1e-9)[:, None] * jax.nn.one_hot(wanted, values)
    most = jnp.argmax(jax.ops.segment_sum(time, group, count), 1)
    return (jnp.arange(values) == most[:, None]) & is_move & (state[..., 0] < 0.5)


def _learn(
    key: jax.Array,
    state: go.TrainState,
    pool: go.Searches,
    wanted: jax.Array,
    *,
    shown: int,
    policy: go.Settings,
) -> go.TrainState:
    """Return the state after a step on some rows of a pool, whose targets are `[G, N]`.

    The step observes `shown` decisions of each row.
    """
    placing = [k for k, (task, _) in enumerate(policy.moves) if policy.tasks[task] == "placement"]

    def loss(params: Any, inputs: go.Inputs, seen: tuple[go.Groups, ...], to: jax.Array) -> Any:
        embedding = go.embed(params, inputs, settings=policy)

        def one(seen: tuple[go.Groups, ...]) -> jax.Array:
            said = go.moves(params, embedding, seen, settings=policy)
            surprise = []
            for kind in placing:
                group = inputs.group[policy.moves[kind][1]]
                right = still_right(inputs, group, seen[kind], to)
                total = jnp.sum(jnp.where(right, said[kind].logits[:, 1:], 0))
                surprise.append(-total / jnp.maximum(right.sum(), 1))
            return jnp.stack(surprise).mean()

        return jax.lax.map(one, seen).mean()

    def gradient(row: tuple[jax.Array, go.Searches, jax.Array]) -> Any:
        key, (problem, inputs, order, start), to = row
        simulator = go.simulator_of(problem, OBJECTIVE, order)

        def look(key: jax.Array) -> tuple[go.Groups, ...]:
            decision = _partway(key, inputs, start.decision, to)
            return go.observe(inputs, decision, simulator.timing(decision), settings=policy)

        seen = jax.lax.map(look, jax.random.split(key, shown))
        return jax.grad(loss)(state.params, inputs, seen, to)

    each = jax.lax.map(gradient, (jax.random.split(key, len(wanted)), pool, wanted))
    mean = jax.tree.map(lambda x: x.mean(0), each)
    return state.apply_gradients(grads=mean)


def _partway(
    key: jax.Array, inputs: go.Inputs, start: go.OpDecisions, wanted: jax.Array
) -> go.OpDecisions:
    """Return the start with some groups of a random level on their target devices, `[N]`."""
    to_level, to_share, to_group = jax.random.split(key, 3)
    group = inputs.group[jax.random.randint(to_level, (), 0, len(inputs.group))]
    drawn = jax.random.uniform(to_group, (len(wanted),))[jnp.minimum(group, len(wanted) - 1)]
    is_there = drawn < jax.random.uniform(to_share)
    return start._replace(placement=jnp.where(is_there, wanted, start.placement))
