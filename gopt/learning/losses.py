"""Losses of policy-gradient methods: pure functions of arrays."""

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Shaped

_CHANGE = 20.0  # largest change of a log-probability that PPO counts


def reinforce(
    log_prob: Shaped[jax.Array, " ..."],
    reward: Shaped[jax.Array, " ..."],
    baseline: Shaped[jax.Array, " ..."],
) -> jax.Array:
    """Return the REINFORCE loss, whose gradient is -mean((reward - baseline) ∇ log_prob).

    The loss does not train the baseline (see `baseline_error`).

    Args:
      log_prob: log-probabilities of the actions taken, any shape `[...]`.
      reward: rewards, `[...]`.
      baseline: estimates of the reward before the action was known, `[...]`.

    Source: Williams, "Simple statistical gradient-following algorithms for connectionist
    reinforcement learning", Machine Learning 8 (1992).
    """
    return -jnp.mean(lax.stop_gradient(reward - baseline) * log_prob)


def leave_one_out(reward: Shaped[jax.Array, "... S"]) -> jax.Array:
    """Return a baseline for each sample: the mean reward of the other samples of its state, `[...,
    S]`.

    The gradient stays unbiased, and nothing has to be learned.

    Args:
      reward: rewards of S samples for each state, `[..., S]`.

    Raises:
      ValueError: each state has only one sample.

    Source: Kool, van Hoof, Welling, "Buy 4 REINFORCE samples, get a baseline for free!", ICLR
    2019 workshop.
    """
    samples = reward.shape[-1]
    if samples < 2:
        raise ValueError(f"reward has {samples} sample of each state: expected 2 at least")
    return (jnp.sum(reward, -1, keepdims=True) - reward) / (samples - 1)


def baseline_error(reward: jax.Array, baseline: jax.Array) -> jax.Array:
    """Return the mean squared error of a baseline, as a training loss."""
    return jnp.mean((lax.stop_gradient(reward) - baseline) ** 2)


def categorical_log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Return the log-probability of each action, `[...]`, for logits `[..., K]`."""
    return -optax.softmax_cross_entropy_with_integer_labels(logits, action)


def categorical_entropy(logits: jax.Array) -> jax.Array:
    """Return the entropy of each distribution in nats, `[...]`, for logits `[..., K]`.

    A logit of minus infinity excludes an action.
    """
    log_probs = jax.nn.log_softmax(logits)
    probs = jnp.exp(log_probs)
    return -jnp.sum(probs * jnp.where(probs > 0, log_probs, 0), axis=-1)


def ppo(
    log_prob: Shaped[jax.Array, " ..."],
    old_log_prob: Shaped[jax.Array, " ..."],
    advantage: Shaped[jax.Array, " ..."],
    *,
    clip: float = 0.2,
) -> jax.Array:
    """Return the clipped surrogate loss of PPO, -mean(min(r A, clip(r, 1 - ε, 1 + ε) A)).

    The ratio r = exp(log_prob - old_log_prob) tells how much likelier an action has become. It is
    limited to e^20, without a gradient beyond: a sum of many log-probabilities could overflow.

    Args:
      log_prob: log-probabilities of the actions taken, any shape `[...]`.
      old_log_prob: log-probabilities when they were taken, `[...]`.
      advantage: advantages of the actions, `[...]`; not trained through.
      clip: largest change of the ratio, ε.

    Source: Schulman et al., "Proximal policy optimization algorithms", arXiv:1707.06347, eq. 7.
    """
    advantage = lax.stop_gradient(advantage)
    change = log_prob - lax.stop_gradient(old_log_prob)
    ratio = jnp.exp(jnp.clip(change, -_CHANGE, _CHANGE))
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))


def generalized_advantages(
    reward: Shaped[jax.Array, "... T"],
    value: Shaped[jax.Array, "... T"],
    next_value: Shaped[jax.Array, "... T"],
    *,
    discount: float = 0.99,
    trace: float = 0.95,
) -> jax.Array:
    """Return generalised advantages of an episode, A_t = Σ_k (γλ)^k δ_(t+k), `[..., T]`.

    δ_t = r_t + γ V(s_(t+1)) - V(s_t). Values plus advantages are the training targets of values.

    Args:
      reward: r_t, `[..., T]`.
      value: V(s_t), `[..., T]`.
      next_value: V(s_(t+1)), `[..., T]`; for the last step 0 if the episode was terminated, and the
        value of the next state if it was truncated.
      discount: discount, γ.
      trace: decay of the trace, λ.

    Source: Schulman et al., "High-dimensional continuous control using generalized advantage
    estimation", ICLR 2016, eq. 16.
    """
    error = jnp.moveaxis(reward + discount * next_value - value, -1, 0)

    def step(after: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = now + discount * trace * after
        return found, found

    _, found = lax.scan(step, jnp.zeros_like(error[0]), error, reverse=True)
    return jnp.moveaxis(found, 0, -1)
