"""PPO for the policy of GO."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import PRNGKeyArray

from gopt.cost.joint.problem import JointProblem
from gopt.cost.schedule.problem import Problem
from gopt.learning import losses, train
from gopt.learning.train import TrainState
from gopt.systems.go.actions import log_prob
from gopt.systems.go.decisions import Simulator, State, simulator_of
from gopt.systems.go.features import Groups
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.policy import embed, moves
from gopt.systems.go.search import Trajectory, rollout
from gopt.systems.go.settings import Settings

Tree = Any


class Batch(NamedTuple):
    """Graphs and the iterations of their searches. `G` graphs, `T` iterations.

    Attributes:
      inputs: graphs as the policy reads them, `[G, ...]`.
      trajectory: iterations, `[G, T, ...]`.
    """

    inputs: Inputs
    trajectory: Trajectory


class Searches(NamedTuple):
    """Searches of `G` graphs of one shape on one number of devices.

    Attributes:
      problem: graphs on a machine, `[G, ...]`.
      inputs: the same as the policy reads them, `[G, ...]`.
      order: float32 `[G, N]`, order that shifts of priority refer to; None if priorities are not
        decided.
      start: decisions to begin with, `[G, ...]`.
    """

    problem: Problem | JointProblem
    inputs: Inputs
    order: Any
    start: State


# Maps a problem, an objective and an order to a simulator, as `simulator_of` does.
Simulate = Callable[[Any, str, Any], Simulator]


def reward(ratio: jax.Array) -> jax.Array:
    """Return -√(cost ÷ cost before), `[...]`, at least -1, for ratios `[...]`.

    The search keeps the best decision, so it does not matter how much worse another one is, or
    whether its cost is a number. If it counted, a policy would learn to change ops that do not
    matter.
    """
    return -jnp.sqrt(jnp.where(ratio < 1, ratio, 1))


def loss(
    params: Tree, batch: Batch, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the PPO loss of the iterations of one graph, and metrics.

    The baseline of a sample is the mean reward of the other samples of its iteration, task and
    level. Advantages are divided by their root mean square over the graph.

    Args:
      params: parameters of the policy.
      batch: one graph `[...]` and its iterations `[T, ...]`.
      settings: settings of the policy.
    """
    inputs, taken = batch
    embedding = embed(params, inputs, settings=settings)
    value = reward(taken.ratio)
    spread = value - losses.leave_one_out(value)
    advantage = spread / (jnp.sqrt(jnp.mean(spread**2)) + settings.advantage_floor)

    def one(row: tuple[tuple[Groups, ...], tuple[jax.Array, ...]]) -> tuple[jax.Array, jax.Array]:
        groups, actions = row
        said = moves(params, embedding, groups, settings=settings)
        log_probs = [log_prob(s.logits, a) for s, a in zip(said, actions, strict=True)]
        return jnp.stack(log_probs), jnp.stack([s.entropy for s in said])

    log_probs, entropy = lax.map(one, (taken.groups, taken.action))
    surrogate = losses.ppo(log_probs, taken.log_prob, advantage, clip=settings.clip)
    value = surrogate - settings.entropy * entropy.mean()
    return value, {"entropy": entropy.mean(), "better": (taken.ratio < 1).mean()}


@cache  # the same object for the same settings, see `gopt.learning.train.start`
def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Return the optimizer: Adam with the gradient clipped."""
    clip = optax.clip_by_global_norm(settings.max_gradient_norm)
    return optax.chain(clip, optax.adam(settings.learning_rate))


def start(params: Tree, *, settings: Settings) -> TrainState:
    """Return the state of training before the first step."""
    return train.start(params, optimizer(settings))


def step(
    state: TrainState,
    key: PRNGKeyArray,
    batch: Searches,
    *,
    settings: Settings,
    objective: str = "makespan",
    simulate: Simulate = simulator_of,
) -> tuple[TrainState, dict[str, Any]]:
    """Return the state after a step on some searches, and metrics.

    Each search takes `Settings.iterations`; then the policy is trained on their trajectories.

    Args:
      state: state before the step.
      key: random key.
      batch: searches.
      settings: settings of the policy.
      objective: objective to minimise.
      simulate: maps a problem, an objective and an order to a simulator.

    Returns:
      The state, and metrics, among them `reached`: the best decisions of the searches, a `State`
      `[G, ...]`, with which the next step may begin.
    """

    def one(row: tuple[jax.Array, Searches]) -> tuple[State, Trajectory]:
        key, (problem, inputs, order, begun) = row
        found = rollout(
            key,
            state.params,
            inputs,
            begun,
            simulate(problem, objective, order),
            iterations=settings.iterations,
            settings=settings,
        )
        return found[:2]

    count = len(batch.start.cost)
    reached, trajectory = lax.map(one, (jax.random.split(key, count), batch))
    state, metrics = improve(state, Batch(batch.inputs, trajectory), settings=settings)
    return state, {**metrics, "reached": reached}


def improve(
    state: TrainState, batch: Batch, *, settings: Settings
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Return the state after `Settings.epochs` of PPO on a batch of graphs, and metrics.

    Args:
      state: state before.
      batch: graphs, and iterations that were drawn with the parameters of this state.
      settings: settings of the policy.
    """

    def epoch(state: TrainState, _: None) -> tuple[TrainState, dict[str, jax.Array]]:
        def one(row: Batch) -> tuple[Tree, dict[str, jax.Array]]:
            return jax.grad(loss, has_aux=True)(state.params, row, settings=settings)

        # One graph after another saves memory.
        gradient, metrics = jax.tree.map(lambda x: x.mean(0), lax.map(one, batch))
        return state.apply_gradients(grads=gradient), metrics

    state, metrics = lax.scan(epoch, state, None, settings.epochs)
    return state, jax.tree.map(lambda x: x[0], metrics)


def tune(
    key: PRNGKeyArray,
    state: TrainState,
    inputs: Inputs,
    start: State,
    simulator: Simulator,
    *,
    steps: int,
    settings: Settings,
) -> tuple[TrainState, State, jax.Array]:
    """Train a policy while it searches one graph; return it, the best decision, and costs.

    From parameters of other graphs this is fine-tuning, from random ones the paper's GO-one. Each
    step runs `Settings.iterations` and then trains the policy. The next step begins with the best
    decision so far.

    Args:
      key: random key.
      state: state of training before.
      inputs: the graph.
      start: decision to begin with, see `begin`.
      simulator: simulator, see `simulator_of`.
      steps: number of steps of training, `K`.
      settings: settings of the policy.

    Returns:
      The state after training, the best decision, and the lowest cost after each iteration,
      float32 `[K · iterations]`.
    """

    def step(carry: tuple[TrainState, State], key: jax.Array) -> tuple[Any, jax.Array]:
        trained, best = carry
        best, taken, history = rollout(
            key,
            trained.params,
            inputs,
            best,
            simulator,
            iterations=settings.iterations,
            settings=settings,
        )
        batch = jax.tree.map(lambda x: x[None], Batch(inputs, taken))
        trained, _ = improve(trained, batch, settings=settings)
        return (trained, best), history

    (state, best), history = lax.scan(step, (state, start), jax.random.split(key, steps))
    return state, best, history.reshape(-1)
