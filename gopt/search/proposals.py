"""Distributions of keys, as maps from uniform numbers: inverse cumulative distributions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special


def beta_quantiles(mean: Any, deviation: Any, *, points: int = 65) -> np.ndarray:
    """Returns quantiles of Beta distributions at `points` even levels from 0 to 1, float32.

    On the host. The levels 0 and 1 are drawn in to half a step, so that a narrow distribution
    stays narrow; between levels, `from_quantiles` interpolates.

    Args:
      mean: means in (0, 1), any shape `[...]`.
      deviation: standard deviations, each below √(mean (1 - mean)).
      points: number of levels.

    Raises:
      ValueError: a mean or a deviation is out of range.
    """
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


def from_quantiles(quantiles: jax.Array, row: jax.Array, u: jax.Array) -> jax.Array:
    """Returns keys with the distributions of a table, `[P, ...]`, interpolated linearly.

    Args:
      quantiles: `[B, points]`, a row for each distribution, as of `beta_quantiles`.
      row: int32 `[...]`, the distribution of each gene.
      u: uniforms in [0, 1), `[P, ...]`.
    """
    points = quantiles.shape[-1]
    position = u * (points - 1)
    below = jnp.minimum(position.astype(jnp.int32), points - 2)
    low = jnp.ravel(quantiles)[row * points + below]
    high = jnp.ravel(quantiles)[row * points + below + 1]
    return low + (position - below) * (high - low)
