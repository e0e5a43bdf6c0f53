"""PPO for the policy of GO."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gopt import losses
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.policy import embed, init_params, log_prob, moves
from gopt.systems.go.search import Taken
from gopt.systems.go.settings import Settings

Tree = Any


class TrainState(NamedTuple):
    """What training carries from step to step."""

    params: Tree
    optimizer: Tree


def reward(ratio: jax.Array, settings: Settings) -> jax.Array:
    """Returns -√(cost relative to the cost before), `[...]`, for ratios of costs `[...]`.

    What is worse by more than `Settings.hinge` counts as if it were worse by that: how much worse
    does not matter to a search that keeps the best. A cost that is no number counts so, too.
    """
    worst = 1 + settings.hinge
    return -jnp.sqrt(jnp.where(ratio < worst, ratio, worst))


def loss(
    params: Tree, inputs: Inputs, taken: Taken, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the loss of the iterations of one graph, and what to watch.

    PPO; the baseline of a sample is the mean reward of the others of its iteration and level, and
    advantages are divided by their root mean square over the graph.

    Args:
      params: of the policy.
      inputs: the graph.
      taken: `[T, ...]`, of T iterations.
      settings: of the policy.
    """
    ops = embed(params, inputs, settings=settings)
    value = reward(taken.ratio, settings)
    spread = value - losses.leave_one_out(value)
    advantage = spread / (jnp.sqrt(jnp.mean(spread**2)) + settings.quiet)

    @jax.checkpoint
    def one(row: tuple[jax.Array, tuple[jax.Array, ...]]) -> tuple[jax.Array, jax.Array]:
        device, actions = row
        found = [
            moves(params, ops, inputs, device, level=level, settings=settings)
            for level in range(len(actions))
        ]
        log_probs = [log_prob(f.logits, a) for f, a in zip(found, actions, strict=True)]
        return jnp.stack(log_probs), jnp.stack([f.entropy for f in found])

    log_probs, entropy = jax.lax.map(one, (taken.device, taken.action))
    surrogate = losses.ppo(log_probs, taken.log_prob, advantage, clip=settings.clip)
    value = surrogate - settings.entropy * entropy.mean()
    return value, {"entropy": entropy.mean(), "better": (taken.ratio < 1).mean()}


def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Returns the optimizer of the policy."""
    return optax.chain(optax.clip_by_global_norm(settings.norm), optax.adam(settings.learning_rate))


def init(key: jax.Array, inputs: Inputs, *, settings: Settings) -> TrainState:
    """Returns the state before the first step; `inputs` only give shapes."""
    params = init_params(key, inputs, settings=settings)
    return TrainState(params, optimizer(settings).init(params))


def gradient(
    params: Tree, inputs: Inputs, taken: Taken, *, settings: Settings
) -> tuple[Tree, dict[str, jax.Array]]:
    """Returns the gradient of `loss`, and what to watch."""
    return jax.grad(loss, has_aux=True)(params, inputs, taken, settings=settings)


def update(state: TrainState, gradient: Tree, *, settings: Settings) -> TrainState:
    """Returns the state after one step along a gradient."""
    updates, moments = optimizer(settings).update(gradient, state.optimizer, state.params)
    return TrainState(optax.apply_updates(state.params, updates), moments)
