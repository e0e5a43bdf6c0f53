"""REINFORCE for the policy of REGAL."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float32, PRNGKeyArray

from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.evolve import evolve
from gopt.learning import losses, train
from gopt.learning.graphs import GraphsTuple
from gopt.learning.train import TrainState
from gopt.search.parallel import shard_candidates
from gopt.systems.regal.actions import quantise
from gopt.systems.regal.exploration import log_prob
from gopt.systems.regal.inputs import Inputs
from gopt.systems.regal.policy import apply, sample
from gopt.systems.regal.search import rewards
from gopt.systems.regal.settings import Settings

Tree = Any


class Example(NamedTuple):
    """A graph to train on. A pool of graphs of one shape has an axis `[G]` before the others.

    Attributes:
      problem: the graph on a machine.
      inputs: the same as the policy reads it.
      standard: float32 `[]`, cost that standard BRKGA reaches within the same budget.
    """

    problem: Problem
    inputs: Inputs
    standard: Any


class Trajectory(NamedTuple):
    """Sampled actions and their rewards. `G` graphs of `N` ops, `S` samples, `L` places.

    Attributes:
      graphs: features of the graphs, `[G, ...]`.
      places: float32 `[G, S, N, L]`, sampled places, see `sample`.
      reward: float32 `[G, S]`, of at least two samples.
    """

    graphs: GraphsTuple
    places: Any
    reward: Any


def loss(
    params: Tree, batch: Trajectory, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the REINFORCE loss of a batch and metrics.

    The baseline of a sample is the mean reward of the other samples of its graph. The advantage is
    divided by its root mean square over the samples of the graph, so that graphs with the largest
    spread do not dominate. That biases the gradient, by the order of 1/S; of two samples only the
    sign counts. `Settings.advantage_floor` reduces the weight of graphs on which no action makes a
    difference.

    Args:
      params: parameters of the policy.
      batch: sampled actions and rewards.
      settings: settings of the policy.
    """
    graphs, taken, reward = batch
    places = jax.vmap(partial(apply, settings=settings), (None, 0))(params, graphs)
    log_probs = jax.vmap(partial(log_prob, settings=settings))(places, taken, graphs)
    baselines = losses.leave_one_out(reward)
    shard_candidates = jnp.sqrt(jnp.mean((reward - baselines) ** 2, -1, keepdims=True))
    scale = shard_candidates + settings.advantage_floor
    value = losses.reinforce(log_probs, reward / scale, baselines / scale)
    return value, {"reward": reward.mean(), "spread": shard_candidates.mean()}


@cache  # the same object for the same settings, see `gopt.learning.train.start`
def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Return the optimizer: Adam with a learning rate that falls linearly to 0."""
    return optax.adam(optax.linear_schedule(settings.learning_rate, 0.0, settings.steps))


def start(params: Tree, *, settings: Settings) -> TrainState:
    """Return the state of training before the first step."""
    return train.start(params, optimizer(settings))


def step(
    state: TrainState,
    key: PRNGKeyArray,
    batch: Sequence[Example],
    *,
    settings: Settings,
    objective: str = "makespan",
    evaluations: int = 2120,
    samples: int = 8,
) -> tuple[TrainState, dict[str, Any]]:
    """Return the state after a step on some graphs, and metrics.

    Actions are sampled for each graph, and a search starts from each. The gradient is the mean over
    the graphs, whose shapes may differ. One program is compiled for each shape.

    Args:
      state: state before the step.
      key: random key.
      batch: graphs.
      settings: settings of the policy.
      objective: objective to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: budget of each search.
      samples: number of actions for each graph, at least two.

    Raises:
      ValueError: `batch` is empty.
    """
    if not batch:
        raise ValueError("batch has no graphs: expected one at least")
    how: dict[str, Any] = {"objective": objective, "evaluations": evaluations}
    found = [
        _gradient(to_one, state.params, one, settings=settings, samples=samples, **how)
        for to_one, one in zip(jax.random.split(key, len(batch)), batch, strict=True)
    ]
    gradient, metrics = jax.tree.map(lambda *x: np.mean(np.stack(x), 0), *jax.device_get(found))
    return _updated(state, gradient), metrics


@jax.jit
def _updated(state: TrainState, gradient: Tree) -> TrainState:
    return state.apply_gradients(grads=gradient)


@partial(jax.jit, static_argnames=("settings", "objective", "evaluations", "samples"))
def _gradient(
    key: jax.Array,
    params: Tree,
    example: Example,
    *,
    settings: Settings,
    objective: str,
    evaluations: int,
    samples: int,
) -> tuple[Tree, dict[str, jax.Array]]:
    """Return the gradient on one graph and metrics. Searches start from sampled actions."""
    to_act, to_search = jax.random.split(key)
    graphs, devices = example.inputs.graphs, example.problem.num_devices
    taken = sample(to_act, params, graphs, samples=samples, settings=settings)
    actions = quantise(taken, graphs, devices=devices, settings=settings)
    search = partial(rewards, objective=objective, evaluations=evaluations, settings=settings)
    problem, standard = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (samples, *x.shape)), (example.problem, example.standard)
    )
    reward = shard_candidates(search)(
        jax.random.split(to_search, samples), problem, standard, actions
    )
    batch = jax.tree.map(lambda x: x[None], Trajectory(graphs, taken, reward))
    return jax.grad(loss, has_aux=True)(params, batch, settings=settings)


def standard_costs(
    key: PRNGKeyArray, problem: Problem, *, objective: str, evaluations: int, seeds: int = 3
) -> Float32[np.ndarray, " G"]:
    """Return the mean cost that standard BRKGA reaches on each of some problems, float32 `[G]`.

    Args:
      key: random key.
      problem: problems of one shape, `[G, ...]`.
      objective: objective to minimise.
      evaluations: budget of each search.
      seeds: number of searches of each problem.
    """

    def one(row: tuple[jax.Array, Problem]) -> jax.Array:
        key, problem = row
        return evolve(key, problem, objective=objective, evaluations=evaluations).cost

    count = len(problem.num_ops)
    rows = np.repeat(np.arange(count), seeds)
    each = jax.jit(shard_candidates(lambda *args: jax.lax.map(one, args)))
    cost = each(jax.random.split(key, len(rows)), jax.tree.map(lambda x: x[rows], problem))
    return np.asarray(cost).reshape(count, seeds).mean(-1)
