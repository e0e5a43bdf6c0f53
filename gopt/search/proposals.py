"""Distributions of keys as inverse cumulative distributions, functions of uniform numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int32, Shaped
from scipy import special


def beta_quantiles(
    mean: Any, deviation: Any, *, points: int = 65
) -> Float32[np.ndarray, "... points"]:
    """Return quantiles of Beta distributions at `points` even levels from 0 to 1, float32.

    It runs on the host. The levels 0 and 1 are moved inward by half a step, so that a narrow
    distribution stays narrow. `from_quantiles` interpolates between levels.

    Args:
      mean: means in (0, 1), any shape `[...]`.
      deviation: standard deviations, each below √(mean (1 - mean)).
      points: number of levels.

    Returns:
      Quantiles, float32 `[..., points]`.

    Raises:
      ValueError: a mean, a deviation or `points` is out of range.
    """
    if not points >= 2:
        raise ValueError(f"points is {points}: expected 2 at least")
    mean, deviation = np.broadcast_arrays(np.float64(mean), np.float64(deviation))
    good = (mean > 0) & (mean < 1) & (deviation > 0) & (deviation**2 < mean * (1 - mean))
    if not good.all():
        index = np.unravel_index(np.argmin(good), good.shape)
        raise ValueError(
            f"mean {mean[index]} and deviation {deviation[index]} at {tuple(map(int, index))}: "
            "no Beta distribution has these"
        )
    weight = mean * (1 - mean) / deviation**2 - 1
    edge = 0.5 / (points - 1)
    levels = np.clip(np.linspace(0, 1, points), edge, 1 - edge)
    a, b = (mean * weight)[..., None], ((1 - mean) * weight)[..., None]
    return special.betaincinv(a, b, levels).astype(np.float32)


def from_quantiles(
    quantiles: Shaped[jax.Array, "B points"],
    row: Int32[jax.Array, " ..."],
    u: Shaped[jax.Array, "P ..."],
) -> jax.Array:
    """Map uniforms to keys by linear interpolation in a table of quantiles, `[P, ...]`.

    Args:
      quantiles: one row per distribution, `[B, points]`, see `beta_quantiles`.
      row: index of the distribution of each gene, int32 `[...]`.
      u: uniforms in [0, 1), `[P, ...]`.
    """
    points = quantiles.shape[-1]
    position = u * (points - 1)
    below = jnp.minimum(position.astype(jnp.int32), points - 2)
    start = jnp.expand_dims(row * points, tuple(range(u.ndim - jnp.ndim(row)))) + below
    low, high = jnp.ravel(quantiles)[start], jnp.ravel(quantiles)[start + 1]
    return low + (position - below.astype(position.dtype)) * (high - low)
