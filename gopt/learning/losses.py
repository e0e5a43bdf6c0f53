"""Losses of policy-gradient methods: pure functions of arrays.

Nothing is broadcast, except a scalar baseline: a wrong shape is a `ValueError`. Integers and
booleans are read as floating-point numbers.
"""

from typing import Any

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
      baseline: estimates of the reward before the action was known, `[...]`, or one for all, `[]`.

    Raises:
      ValueError: shapes differ, or are empty.

    Source: Williams, "Simple statistical gradient-following algorithms for connectionist
    reinforcement learning", Machine Learning 8 (1992).
    """
    log_prob, reward, baseline = _same_shape(log_prob=log_prob, reward=reward, baseline=baseline)
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
    (reward,) = _with_last_axis("S", reward=reward)
    samples = reward.shape[-1]
    if samples < 2:
        raise ValueError(f"reward has {samples} sample of each state: expected 2 at least")
    return (jnp.sum(reward, -1, keepdims=True) - reward) / (samples - 1)


def baseline_error(reward: jax.Array, baseline: jax.Array) -> jax.Array:
    """Return the mean squared error of a baseline, as a training loss.

    Args:
      reward: rewards, any shape `[...]`; not trained through.
      baseline: estimates of the rewards, `[...]`, or one for all, `[]`.

    Raises:
      ValueError: shapes differ, or are empty.
    """
    reward, baseline = _same_shape(reward=reward, baseline=baseline)
    return jnp.mean((lax.stop_gradient(reward) - baseline) ** 2)


def categorical_log_prob(
    logits: Shaped[jax.Array, "... K"], action: Shaped[jax.Array, " ..."]
) -> jax.Array:
    """Return the log-probability of each action, `[...]`.

    A logit of minus infinity excludes an action: its log-probability is minus infinity. If all
    actions of a distribution are excluded, so are all log-probabilities, and they have no gradient.

    Args:
      logits: unnormalised log-probabilities of K actions, `[..., K]`.
      action: index of each action, integers `[...]`, at least 0 and less than K.

    Raises:
      ValueError: the shapes do not fit, or the actions are not integers.
    """
    (logits,) = _with_last_axis("K", logits=logits)
    action = jnp.asarray(action)
    if not jnp.issubdtype(action.dtype, jnp.integer):
        raise ValueError(f"action has dtype {action.dtype}: expected integers")
    if action.shape != logits.shape[:-1]:
        raise ValueError(
            f"action has shape {action.shape}: expected {logits.shape[:-1]}, one index for each "
            f"distribution of logits {logits.shape}"
        )
    is_any, logits = _without_empty(logits)
    found = -optax.softmax_cross_entropy_with_integer_labels(logits, action)
    return jnp.where(is_any, found, -jnp.inf)


def categorical_entropy(logits: Shaped[jax.Array, "... K"]) -> jax.Array:
    """Return the entropy of each distribution in nats, `[...]`.

    A logit of minus infinity excludes an action. A distribution without actions has entropy 0,
    without a gradient.

    Args:
      logits: unnormalised log-probabilities of K actions, `[..., K]`.

    Raises:
      ValueError: `logits` has no axis of actions, or it is empty.
    """
    (logits,) = _with_last_axis("K", logits=logits)
    is_any, logits = _without_empty(logits)
    log_probs = jax.nn.log_softmax(logits)
    probs = jnp.exp(log_probs)
    found = -jnp.sum(probs * jnp.where(probs > 0, log_probs, 0), axis=-1)
    return jnp.where(is_any, found, 0)


def log_ratio(
    log_prob: Shaped[jax.Array, " ..."], old_log_prob: Shaped[jax.Array, " ..."]
) -> jax.Array:
    """Return how much likelier each action has become, log_prob - old_log_prob, `[...]`.

    It is 0, without a gradient, for actions that were impossible and still are: both their
    log-probabilities are minus infinity.

    Args:
      log_prob: log-probabilities of the actions taken, any shape `[...]`.
      old_log_prob: log-probabilities when they were taken, `[...]`; not trained through.

    Raises:
      ValueError: shapes differ, or are empty.
    """
    new, old = _same_shape(log_prob=log_prob, old_log_prob=old_log_prob)
    is_impossible = (new == -jnp.inf) & (old == -jnp.inf)
    new, old = (jnp.where(is_impossible, 0, each) for each in (new, lax.stop_gradient(old)))
    return new - old


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
    Where both log-probabilities are minus infinity, it is 1, without a gradient.

    Args:
      log_prob: log-probabilities of the actions taken, any shape `[...]`.
      old_log_prob: log-probabilities when they were taken, `[...]`.
      advantage: advantages of the actions, `[...]`; not trained through.
      clip: largest change of the ratio, ε, more than 0.

    Raises:
      ValueError: shapes differ or are empty, or a concrete `clip` is out of range.

    Source: Schulman et al., "Proximal policy optimization algorithms", arXiv:1707.06347, eq. 7.
    """
    if not isinstance(clip, jax.Array) and not 0 < clip < float("inf"):
        raise ValueError(f"clip is {clip}: expected more than 0")
    log_prob, advantage = _same_shape(log_prob=log_prob, advantage=advantage)
    advantage = lax.stop_gradient(advantage)
    ratio = jnp.exp(jnp.clip(log_ratio(log_prob, old_log_prob), -_CHANGE, _CHANGE))
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

    Raises:
      ValueError: shapes differ or are scalars, or a concrete `discount` or `trace` is
        not in 0..1.

    Source: Schulman et al., "High-dimensional continuous control using generalized advantage
    estimation", ICLR 2016, eq. 16.
    """
    for name, share in (("discount", discount), ("trace", trace)):
        if not isinstance(share, jax.Array) and not 0 <= share <= 1:
            raise ValueError(f"{name} is {share}: expected 0..1")
    given = {"reward": reward, "value": value, "next_value": next_value}
    reward, value, next_value = _with_last_axis("T", **given)
    error = jnp.moveaxis(reward + discount * next_value - value, -1, 0)

    def step(after: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = now + discount * trace * after
        return found, found

    _, found = lax.scan(step, jnp.zeros(error.shape[1:], error.dtype), error, reverse=True)
    return jnp.moveaxis(found, 0, -1)


def _floats(values: dict[str, Any]) -> dict[str, jax.Array]:
    """Return values as arrays of floating-point numbers, of one shape.

    Integers would be subtracted in their own type: uint8 1 - 2 is 255.

    Raises:
      ValueError: shapes differ; a scalar `baseline` has any shape.
    """
    arrays = {name: jnp.asarray(value) for name, value in values.items()}
    first, *others = arrays
    shape = arrays[first].shape
    for name in others:
        if name == "baseline" and not arrays[name].shape:
            arrays[name] = jnp.broadcast_to(arrays[name], shape)
        elif arrays[name].shape != shape:
            scalar = ", or a scalar" if name == "baseline" else ""
            raise ValueError(
                f"{name} has shape {arrays[name].shape}: expected {shape} of {first}{scalar}"
            )
    inexact = {n for n, x in arrays.items() if jnp.issubdtype(x.dtype, jnp.inexact)}
    return {n: x if n in inexact else x.astype(jnp.float32) for n, x in arrays.items()}


def _same_shape(**values: Any) -> list[jax.Array]:
    """Return arrays of one shape, whose mean exists."""
    arrays = _floats(values)
    first, array = next(iter(arrays.items()))
    if not array.size:
        raise ValueError(f"{first} has shape {array.shape}: expected one number at least")
    return list(arrays.values())


def _with_last_axis(axis: str, **values: Any) -> list[jax.Array]:
    """Return arrays of one shape, which ends with an axis."""
    arrays = _floats(values)
    first, array = next(iter(arrays.items()))
    if not array.ndim:
        raise ValueError(f"{first} has shape (): expected [..., {axis}]")
    return list(arrays.values())


def _without_empty(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return whether distributions have actions, `[...]`, and logits: zeros for those without."""
    if not logits.shape[-1]:
        raise ValueError(f"logits has shape {logits.shape}: expected one action at least")
    is_any = jnp.any(logits != -jnp.inf, -1)
    return is_any, jnp.where(is_any[..., None], logits, 0)
