"""REINFORCE for the policy of REGAL."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gopt.learning import losses
from gopt.learning.graphs import GraphsTuple
from gopt.systems.regal.exploration import log_prob
from gopt.systems.regal.policy import apply, init_params
from gopt.systems.regal.settings import Settings

Tree = Any


class TrainState(NamedTuple):
    """What training carries from step to step."""

    params: Tree
    optimizer: Tree


def loss(
    params: Tree, graphs: GraphsTuple, taken: jax.Array, reward: jax.Array, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the loss of one batch, and what to watch.

    REINFORCE; the baseline of a sample is the mean reward of the others of its graph. The
    advantage is divided by its root mean square over the samples of the graph, so that graphs
    whose cost varies most do not drown the others. That biases the gradient, by the order of 1/S;
    of two samples only the sign counts. `Settings.quiet` keeps graphs on which no action makes a
    difference from counting as much.

    Args:
      params: of the policy.
      graphs: `[G, ...]`.
      taken: places sampled, float32 `[G, S, N, L]`.
      reward: float32 `[G, S]`, of two samples at least.
      settings: the settings of the policy.
    """
    places = jax.vmap(partial(apply, settings=settings), (None, 0))(params, graphs)
    log_probs = jax.vmap(partial(log_prob, settings=settings))(places, taken, graphs)
    baselines = losses.leave_one_out(reward)
    spread = jnp.sqrt(jnp.mean((reward - baselines) ** 2, -1, keepdims=True))
    scale = spread + settings.quiet
    value = losses.reinforce(log_probs, reward / scale, baselines / scale)
    return value, {"reward": reward.mean(), "spread": spread.mean()}


def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Returns the optimizer of the policy."""
    return optax.adam(optax.linear_schedule(settings.learning_rate, 0.0, settings.steps))


def init(key: jax.Array, graphs: GraphsTuple, *, settings: Settings) -> TrainState:
    """Returns the state before the first step; `graphs` is one graph, for its shapes."""
    params = init_params(key, graphs, settings=settings)
    return TrainState(params, optimizer(settings).init(params))


def gradient(
    params: Tree, graphs: GraphsTuple, taken: jax.Array, reward: jax.Array, *, settings: Settings
) -> tuple[Tree, dict[str, jax.Array]]:
    """Returns the gradient of `loss`, and what to watch.

    Both are means over the graphs, so that those of batches of other shapes can be averaged.
    """
    return jax.grad(loss, has_aux=True)(params, graphs, taken, reward, settings=settings)


def update(state: TrainState, gradient: Tree, *, settings: Settings) -> TrainState:
    """Returns the state after one step along a gradient."""
    updates, moments = optimizer(settings).update(gradient, state.optimizer, state.params)
    return TrainState(optax.apply_updates(state.params, updates), moments)
