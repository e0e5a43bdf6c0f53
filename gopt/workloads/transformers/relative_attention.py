"""Attention scores by relative position, as in Transformer-XL.

Dai et al., Transformer-XL, arXiv:1901.02860, section 3.3.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Shaped


def sinusoids(first: int, last: int, width: int) -> jax.Array:
    """Return the encodings `[first - last + 1, width]` of the distances first, ..., last.

    Args:
      first: largest distance.
      last: smallest distance.
      width: width of an encoding, even.
    """
    distance = jnp.arange(first, last - 1, -1, dtype=jnp.float32)
    frequency = 10_000 ** (jnp.arange(0, -width, -2, dtype=jnp.float32) / width)
    angle = distance[:, None] * frequency
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def relative_shift(scores: jax.Array) -> jax.Array:
    """Return scores by key from scores by distance, both `[..., queries, distances]`.

    Distances fall by one per column; the first is from the last query to the first key. Row i moves
    queries - 1 - i columns to the left, by a padded reshape (appendix B). The columns that enter
    from the right have no meaning.
    """
    *axes, queries, distances = scores.shape
    padded = jnp.pad(scores, [(0, 0)] * len(axes) + [(0, 0), (1, 0)])
    return padded.reshape(*axes, distances + 1, queries)[..., 1:, :].reshape(scores.shape)


def relative_scores(
    query: Shaped[jax.Array, "batch queries heads width"],
    key: Shaped[jax.Array, "batch keys heads width"],
    distance: Shaped[jax.Array, "distances heads width"],
    content_bias: Shaped[jax.Array, "heads width"],
    distance_bias: Shaped[jax.Array, "heads width"],
) -> jax.Array:
    """Return the scores `[batch, heads, queries, keys]` of keys by content and distance.

    Args:
      query: queries, `[batch, queries, heads, width]`.
      key: keys, `[batch, keys, heads, width]`.
      distance: projected encodings, `[distances, heads, width]`, in the order of `relative_shift`.
      content_bias: number added to queries for content, `[heads, width]`.
      distance_bias: number added to queries for distance, `[heads, width]`.
    """
    by_content = jnp.einsum("bqhw,bkhw->bhqk", query + content_bias, key)
    by_distance = jnp.einsum("bqhw,khw->bhqk", query + distance_bias, distance)
    by_key = relative_shift(by_distance)[..., : key.shape[1]]
    return (by_content + by_key) * query.shape[-1] ** -0.5
