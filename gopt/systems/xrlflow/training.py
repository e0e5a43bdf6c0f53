"""Training by PPO.

Source: Schulman et al., arXiv:1707.06347, with the settings of the public code of X-RLflow; see
`gopt.systems.xrlflow.settings.Settings`.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from gopt.learning import losses, train
from gopt.learning.train import TrainState
from gopt.systems.xrlflow.episodes import Decisions, Episode, batches
from gopt.systems.xrlflow.network import apply
from gopt.systems.xrlflow.observation import Size
from gopt.systems.xrlflow.settings import Settings

Tree = Any


class Watched(NamedTuple):
    """Means over the batches of an update.

    Attributes:
      loss: loss of PPO.
      divergence: divergence from the policy that drew the decisions, in nats.
      entropy: entropy of the policy, in nats.
      error: absolute error of values, in rewards.
      batches: number of batches evaluated; the step of the last one may have been undone.
    """

    loss: float
    divergence: float
    entropy: float
    error: float
    batches: int


@cache  # the same object for the same settings, see `gopt.learning.train.start`
def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Return the optimizer: Adam with the gradient clipped."""
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(settings.learning_rate, eps=1e-5))


def start(params: Tree, *, settings: Settings) -> TrainState:
    """Return the state of training before the first update."""
    return train.start(params, optimizer(settings))


def loss(
    params: Tree, batch: Decisions, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the loss of one decision, `[]`, and metrics.

    J = L_clip + c1 (V(s) - V_target)² - c2 H: the clipped surrogate, the error of the value in
    units (`Settings.unit`), and the entropy.

    Args:
      params: parameters of the network.
      batch: one decision, without a batch axis, as observations of a batch would need much memory.
      settings: settings of the training.
    """
    decision = batch
    said = apply(params, decision.seen, settings=settings)
    log_prob = losses.categorical_log_prob(said.logits, decision.action)
    surrogate = losses.ppo(log_prob, decision.log_prob, decision.advantage, clip=settings.clip)
    error = (said.value - lax.stop_gradient(decision.target)) / settings.unit
    entropy = losses.categorical_entropy(said.logits)
    more = losses.log_ratio(log_prob, decision.log_prob)
    total = surrogate + settings.critic * error**2 - settings.entropy * entropy
    parts = {
        "loss": total,
        "divergence": jnp.expm1(more) - more,  # never negative; its mean estimates the divergence
        "entropy": entropy,
        "error": jnp.abs(error) * settings.unit,
    }
    return total, parts


@partial(jax.jit, static_argnames="settings")
def step(
    state: TrainState, key: jax.Array | None, batch: Decisions, *, settings: Settings
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Return the state after a step of the optimizer on a batch, and metrics.

    Args:
      state: state before the step.
      key: not used, as nothing is drawn: `play` has drawn the decisions.
      batch: decisions, `[B, ...]`, see `batches`.
      settings: settings of the training.
    """
    del key
    slope = jax.grad(partial(loss, settings=settings), has_aux=True)
    total = jnp.maximum(batch.weight.sum(), 1)

    def add(found: Tree, decision: Decisions) -> tuple[Tree, None]:
        # One after another, as a batch of graphs would need a lot of memory.
        one = slope(state.params, decision)
        share = decision.weight / total
        return jax.tree.map(lambda all, new: all + share * new, found, one), None

    first = jax.tree.map(lambda leaf: leaf[0], batch)
    shapes = jax.eval_shape(slope, state.params, first)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    (gradient, parts), _ = lax.scan(add, zeros, batch)
    return state.apply_gradients(grads=gradient), parts


def improve(
    state: TrainState,
    episodes: list[tuple[Episode, Size]],
    rng: np.random.Generator,
    *,
    settings: Settings,
) -> tuple[TrainState, Watched]:
    """Return the state after an update on some episodes, and its metrics.

    Epochs end when a step moves the policy too far (see `Settings.divergence`), or makes parameters
    that are not finite; that step is undone.

    Args:
      state: state before the update.
      episodes: episodes drawn by this policy, each with the size that its observations are padded
        to.
      rng: random generator of batches.
      settings: settings of the training.

    Raises:
      ValueError: `episodes` is empty.
    """
    if not episodes:
        raise ValueError("there are no episodes: expected one at least")
    watched: list[dict[str, float]] = []
    before = state
    for _ in range(settings.epochs):
        for batch in batches(episodes, rng, settings):
            after, parts = step(state, None, batch, settings=settings)
            watched.append({name: float(value) for name, value in parts.items()})
            if not watched[-1]["divergence"] <= settings.divergence:
                return before, _mean(watched)
            if not _is_finite(after.params):
                return state, _mean(watched)
            before, state = state, after
    return state, _mean(watched)


def _is_finite(params: Tree) -> bool:
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(params))


def _mean(watched: list[dict[str, float]]) -> Watched:
    means = {name: float(np.mean([each[name] for each in watched])) for name in watched[0]}
    return Watched(**means, batches=len(watched))
