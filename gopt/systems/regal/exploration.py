"""The noise on the places of ops with which a policy is trained."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.graph import op_mask
from gopt.systems.regal.settings import PLACES, Settings, is_led

CENTRED = ("x", "y", "priority")  # only how they differ between the ops of a graph counts


def draw_noise(
    key: jax.Array, graphs: GraphsTuple, *, samples: int, settings: Settings
) -> jax.Array:
    """Returns noise for the places of the ops of one graph, float32 `[S, N, L]`.

    It is shared by ops with like features (see `noise_basis`). Noise that is drawn for each op on
    its own averages out over a graph of a thousand ops, and teaches nothing. Places of parts that
    the policy does not lead have none, and where `quantise` takes away the mean, ops do not move
    together.
    """
    basis = settings.exploration * noise_basis(graphs)
    noise = jax.random.normal(key, (samples, basis.shape[1], len(PLACES)))
    return basis @ (noise * _is_explored(basis.shape[1], settings))


def log_prob(
    places: jax.Array, taken: jax.Array, graphs: GraphsTuple, *, settings: Settings
) -> jax.Array:
    """Returns the log-density of places taken `[S, N, L]`, but for a constant, `[S]`.

    Of the normal distribution that `sample` draws from, in the directions in which it varies. Other
    directions get no gradient, so that training follows a projection of that of the reward.

    Args:
      places: as of `apply`.
      taken: places sampled.
      graphs: the graph.
      settings: the settings of the policy.
    """
    basis = noise_basis(graphs)
    # The columns of the basis are orthogonal and equally long, or zero.
    length = jnp.max(jnp.sum(basis**2, 0))
    drawn = basis.T @ (taken - places) / (length * settings.exploration)
    return -0.5 * jnp.sum(drawn**2 * _is_explored(basis.shape[1], settings), (1, 2))


def noise_basis(graphs: GraphsTuple) -> jax.Array:
    """Returns the directions of the noise, orthogonal columns over the ops, float32 `[N, F + 1]`.

    A constant, and the principal components of the features of this graph that vary more than
    one feature does (Kaiser's rule); the other columns are zero. The sum of squares of a row is 1
    on average over the ops; rows of padding are zero.

    Source: noise that features of the state share is that of Rückstieß et al., "State-dependent
    exploration for policy gradient methods", ECML 2008; the components are our choice.
    """
    mask = op_mask(graphs)[:, None]
    count = jnp.maximum(mask.sum(), 1)
    features = cast(jax.Array, graphs.nodes["features"])
    centred = (features - jnp.sum(features * mask, 0) / count) * mask
    deviation = jnp.sqrt(jnp.sum(centred**2, 0) / count)
    scaled = jnp.where(deviation > 1e-4, centred / jnp.maximum(deviation, 1e-4), 0)
    values, vectors = jnp.linalg.eigh(scaled.T @ scaled / count)
    kept = values > 1
    components = scaled @ vectors * jnp.where(kept, 1 / jnp.sqrt(jnp.maximum(values, 1)), 0)
    columns = jnp.concatenate([mask.astype(jnp.float32), components], 1)
    return columns / jnp.sqrt(1 + kept.sum())


def _is_explored(directions: int, settings: Settings) -> np.ndarray:
    """Returns which places vary in which directions of `noise_basis`, bool `[F + 1, L]`."""
    explored = np.tile(is_led(settings), (directions, 1))
    explored[0, [PLACES.index(place) for place in CENTRED]] = False
    return explored
