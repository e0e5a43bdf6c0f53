"""Training by PPO.

Source: Schulman et al., arXiv:1707.06347, with the settings of the public code of X-RLflow; see
`gopt.systems.xrlflow.settings.Settings`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from gopt.learning import losses
from gopt.systems.xrlflow.episodes import Decisions, Episode, batches
from gopt.systems.xrlflow.network import init_params, say
from gopt.systems.xrlflow.observation import Observation, Size
from gopt.systems.xrlflow.settings import Settings

Tree = Any


class TrainState(NamedTuple):
    """What training carries from update to update."""

    params: Tree
    optimizer: Tree


class Watched(NamedTuple):
    """What an update was like, on average."""

    loss: float
    divergence: float  # nats, of the policy from the one that drew
    entropy: float  # nats
    error: float  # of values, in rewards
    batches: int  # that were looked at; the last one may have been left out


def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Returns Adam, with gradients clipped."""
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(settings.learning_rate, eps=1e-5))


def init(key: jax.Array, seen: Observation, *, settings: Settings) -> TrainState:
    """Returns the state before the first update; `seen` only gives shapes."""
    params = init_params(key, seen, settings=settings)
    return TrainState(params, optimizer(settings).init(params))


def loss(
    params: Tree, decision: Decisions, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the loss of one decision, `[]`, and what it is made of.

    J = L_clip + c1 (V(s) - V_target)² - c2 H: the clipped surrogate, the error of the value in
    units (`Settings.unit`), and the entropy.
    """
    said = say(params, decision.seen, settings=settings)
    log_prob = losses.categorical_log_prob(said.logits, decision.action)
    surrogate = losses.ppo(log_prob, decision.log_prob, decision.advantage, clip=settings.clip)
    error = (said.value - lax.stop_gradient(decision.target)) / settings.unit
    entropy, more = losses.categorical_entropy(said.logits), log_prob - decision.log_prob
    total = surrogate + settings.critic * error**2 - settings.entropy * entropy
    parts = {
        "loss": total,
        "divergence": jnp.expm1(more) - more,  # never negative, and its mean is the divergence
        "entropy": entropy,
        "error": jnp.abs(error) * settings.unit,
    }
    return total, parts


@partial(jax.jit, static_argnames="settings")
def step(
    state: TrainState, batch: Decisions, *, settings: Settings
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Returns the state after a step of the optimizer on a batch, and what it was like."""
    slope = jax.grad(partial(loss, settings=settings), has_aux=True)
    total = jnp.maximum(batch.weight.sum(), 1)

    def add(found: Tree, decision: Decisions) -> tuple[Tree, None]:
        # One after another: a batch of graphs would need a lot of memory.
        one = slope(state.params, decision)
        share = decision.weight / total
        return jax.tree.map(lambda all, new: all + share * new, found, one), None

    first = jax.tree.map(lambda leaf: leaf[0], batch)
    shapes = jax.eval_shape(slope, state.params, first)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    (gradient, parts), _ = lax.scan(add, zeros, batch)
    updates, moments = optimizer(settings).update(gradient, state.optimizer, state.params)
    return TrainState(optax.apply_updates(state.params, updates), moments), parts


def improve(
    state: TrainState,
    episodes: list[tuple[Episode, Size]],
    rng: np.random.Generator,
    *,
    settings: Settings,
) -> tuple[TrainState, Watched]:
    """Returns the state after an update on some episodes, and what it was like.

    Epochs end as soon as a step has taken the policy too far, see `Settings.divergence`, or to what
    is not finite; that step is taken back.

    Args:
      state: before.
      episodes: with the size that what was seen is padded to; they were drawn by this policy.
      rng: of batches.
      settings: of the training.

    Raises:
      ValueError: there are no episodes.
    """
    if not episodes:
        raise ValueError("there are no episodes: expected one at least")
    watched: list[dict[str, float]] = []
    before = state
    for _ in range(settings.epochs):
        for batch in batches(episodes, rng, settings):
            after, parts = step(state, batch, settings=settings)
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
