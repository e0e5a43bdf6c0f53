"""Exploration noise on the places of ops, with which a policy is trained."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from gopt.learning.graphs import GraphsTuple
from gopt.learning.layers.graph import op_mask
from gopt.systems.regal.settings import PLACES, Settings, is_led

CENTRED = ("x", "y", "priority")  # only differences between the ops of a graph count


def draw_noise(
    key: jax.Array, graphs: GraphsTuple, *, samples: int, settings: Settings
) -> Float32[jax.Array, "S N L"]:
    """Return noise for the places of the ops of one graph, float32 `[S, N, L]`.

    Ops with similar features share it (see `noise_basis`). Independent noise for each op averages
    out over a graph of a thousand ops, and teaches nothing. Places of parts that the policy does
    not guide have no noise. Where `quantise` removes the mean, ops do not move together.
    """
    basis = settings.exploration * noise_basis(graphs)
    noise = jax.random.normal(key, (samples, basis.shape[1], len(PLACES)), jnp.float32)
    return basis @ (noise * _explored_mask(basis.shape[1], settings)[None])


def log_prob(
    places: jax.Array, taken: jax.Array, graphs: GraphsTuple, *, settings: Settings
) -> jax.Array:
    """Return the log-density of sampled places `[S, N, L]`, up to a constant, `[S]`.

    The density is the normal distribution that `sample` draws from, in the directions in which it
    varies. Other directions get no gradient, so training follows a projection of the reward's
    gradient.

    Args:
      places: output of `apply`.
      taken: sampled places.
      graphs: the graph.
      settings: settings of the policy.
    """
    basis = noise_basis(graphs)
    # The columns of the basis are orthogonal and of equal length, or zero.
    length = jnp.max(jnp.sum(basis**2, 0))
    drawn = basis.T @ (taken - places[None]) / (length * settings.exploration)
    return -0.5 * jnp.sum(drawn**2 * _explored_mask(basis.shape[1], settings)[None], (1, 2))


def noise_basis(graphs: GraphsTuple) -> Float32[jax.Array, "N F+1"]:
    """Return the directions of the noise, orthogonal columns over the ops, float32 `[N, F + 1]`.

    They are a constant, and the principal components of this graph's features that vary more than
    one feature does (Kaiser's rule); the other columns are zero. The sum of squares of a row is 1
    on average over the ops; rows of padding are zero.

    Source: Rückstieß et al., "State-dependent exploration for policy gradient methods", ECML 2008,
    for noise that features of the state share. The components are our choice.
    """
    mask = op_mask(graphs)[:, None].astype(jnp.float32)
    count = jnp.maximum(mask.sum(), 1)
    features = cast(jax.Array, graphs.nodes["features"])
    mean = jnp.sum(features * mask, 0, keepdims=True) / count
    centred = (features - mean) * mask
    deviation = jnp.sqrt(jnp.sum(centred**2, 0, keepdims=True) / count)
    scaled = jnp.where(deviation > 1e-4, centred / jnp.maximum(deviation, 1e-4), 0)
    values, vectors = jnp.linalg.eigh(scaled.T @ scaled / count)
    kept = values > 1
    length = jnp.where(kept, 1 / jnp.sqrt(jnp.maximum(values, 1)), 0)
    columns = jnp.concatenate([mask, scaled @ vectors * length[None]], 1)
    return columns / jnp.sqrt(1 + kept.sum(dtype=jnp.float32))


def _explored_mask(directions: int, settings: Settings) -> np.ndarray:
    """Return 1 where a place varies in a direction of `noise_basis`, float32 `[F + 1, L]`."""
    explored = np.tile(is_led(settings), (directions, 1)).astype(np.float32)
    explored[0, [PLACES.index(place) for place in CENTRED]] = 0
    return explored
