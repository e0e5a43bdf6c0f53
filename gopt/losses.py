"""Losses of policy-gradient methods: pure functions of arrays."""

import jax
import jax.numpy as jnp
from jax import lax


def reinforce(log_prob: jax.Array, reward: jax.Array, baseline: jax.Array) -> jax.Array:
    """Returns the REINFORCE loss, whose gradient is -mean((reward - baseline) ∇ log_prob).

    The baseline is not trained through it (see `baseline_error`).

    Args:
      log_prob: log-probabilities of the actions taken, any shape `[...]`.
      reward: `[...]`.
      baseline: estimates of the reward before the action was known, `[...]`.

    Source: Williams, "Simple statistical gradient-following algorithms for connectionist
    reinforcement learning", Machine Learning 8 (1992).
    """
    return -jnp.mean(lax.stop_gradient(reward - baseline) * log_prob)


def leave_one_out(reward: jax.Array, baseline: jax.Array) -> jax.Array:
    """Returns baselines that have seen the other samples of the same state, `[G, S]`.

    The mean of the other rewards and of the learned baseline, which counts as one more sample.
    So the gradient stays unbiased, what the baseline has not learned yet is mostly taken out,
    and a single sample is left with its baseline.

    Args:
      reward: S samples for each of G states, `[G, S]`.
      baseline: estimates before the actions were known, `[G, 1]`.

    Source: Kool, van Hoof, Welling, "Buy 4 REINFORCE samples, get a baseline for free!", ICLR
    2019 workshop; the learned baseline among the samples is our choice.
    """
    return (baseline + jnp.sum(reward, 1, keepdims=True) - reward) / reward.shape[1]


def baseline_error(reward: jax.Array, baseline: jax.Array) -> jax.Array:
    """Returns the mean squared error of a baseline, to train it by."""
    return jnp.mean((lax.stop_gradient(reward) - baseline) ** 2)


def categorical_log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the log-probability of each action, `[...]`, for logits `[..., K]`."""
    log_probs = jax.nn.log_softmax(logits)
    return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]


def categorical_entropy(logits: jax.Array) -> jax.Array:
    """Returns the entropy of each distribution in nats, `[...]`, for logits `[..., K]`.

    A logit of minus infinity excludes an action.
    """
    log_probs = jax.nn.log_softmax(logits)
    probs = jnp.exp(log_probs)
    return -jnp.sum(probs * jnp.where(probs > 0, log_probs, 0), axis=-1)
