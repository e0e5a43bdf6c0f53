"""Actions of REGAL: places of ops quantised to levels of Betas and of an elite bias."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from gopt.heuristics.schedule.placement.spectral import sides
from gopt.learning.graphs import OP_FEATURES, GraphsTuple
from gopt.learning.layers.graph import op_mask
from gopt.systems.regal.settings import PLACES, STANDARD, Settings, is_led


class Action(NamedTuple):
    """Parameters of a search for each op, as levels of `Settings.bins`.

    Attributes:
      genes: int32 `[N, D + 1, 2]`, mean and deviation for each device, then of the priority.
      elite_bias: int32 `[N]`.
      transfer: int32 `[N, 2]`, added to the levels of the priority of the first reader.
    """

    genes: Any
    elite_bias: Any
    transfer: Any


def quantise(places: jax.Array, graphs: GraphsTuple, *, devices: int, settings: Settings) -> Action:
    """Return the action of places `[..., N, L]`, with the leading axes of the places.

    The origin of the plane stays where the guide has it. The policy adds an offset to
    `Settings.lean` times the sides of the guide. The mean of that offset over the ops, weighted by
    the logarithm of the bytes that they make, is moved to 0. So a policy does not drift towards a
    device, and a guide on one device stays there, however a policy scales its sides.

    The mean priority of ops that run is moved to 1/2, as mostly differences count. Ops that read or
    make many bytes are guided less (see `loosen_heavy`).
    """
    features = cast(jax.Array, graphs.nodes["features"])
    mask = op_mask(graphs)
    plane = places[..., :2]
    weight = jnp.where(mask, features[:, OP_FEATURES.index("made")], 0)[:, None]
    total = jnp.maximum(weight.sum(), 1e-6)
    guide = settings.lean * features[:, [OP_FEATURES.index(f"side_{axis}") for axis in "xy"]]
    weight, guide = (jnp.broadcast_to(each, plane.shape) for each in (weight, guide))
    added = jnp.sum((plane - guide) * weight, -2, keepdims=True) / total
    runs = (mask & (features[:, OP_FEATURES.index("is_input")] == 0)).astype(jnp.float32)
    priority = places[..., PLACES.index("priority")]
    total = jnp.maximum(runs.sum(), 1)
    runs = jnp.broadcast_to(runs, priority.shape)
    mean = jnp.sum(priority * runs, -1, keepdims=True) / total
    places = places.at[..., :2].set(plane - added)
    places = places.at[..., PLACES.index("priority")].set(priority - mean + 0.5)
    places = loosen_heavy(places, features[:, OP_FEATURES.index("share")], settings)
    return levels(places, devices=devices, settings=settings)


def loosen_heavy(
    places: jax.Array, share: Shaped[jax.Array, " N"], settings: Settings
) -> jax.Array:
    """Return places `[..., N, L]` that guide an op less, the more bytes it reads or makes.

    Its place in the plane shrinks towards the origin. The deviation of its priority grows to the
    widest, around an unchanged mean. Which of the few largest tensors share a device, and which is
    freed before the next is made, is a packing problem: searches solve it better with less
    guidance. On training graphs, moving the mean of the priority as well was not better.

    Args:
      places: output of `apply`, with the origin in the middle of the graph.
      share: `[N]`, share of all bytes that each op reads or makes, whichever is more, in 0..1.
      settings: settings of the policy.
    """
    kept = jnp.broadcast_to(jnp.exp(-share / settings.heavy_share), places.shape[:-1])
    deviation = PLACES.index("priority_deviation")
    places = places.at[..., :2].multiply(kept[..., None])
    return places.at[..., deviation].set(1 - kept * (1 - places[..., deviation]))


def levels(places: jax.Array, *, devices: int, settings: Settings) -> Action:
    """Return the levels of places `[..., N, L]` as they are.

    Devices are assumed to be equal: they are evenly spaced directions of the plane. The mean of a
    device is 1/2 at the origin, and larger in its direction. Parts that the policy does not guide
    get the places nearest to standard BRKGA: uniform keys, and its elite bias.
    """
    standard = jnp.float32(list(STANDARD.values()))
    choice = (jnp.broadcast_to(each, places.shape) for each in (is_led(settings), standard))
    places = jnp.where(next(choice), places, next(choice))
    at = dict(zip(PLACES, jnp.moveaxis(places, -1, 0), strict=True))
    means = 0.5 + places[..., :2] @ jnp.float32(sides(np.arange(devices), devices).T)
    deviations = jnp.broadcast_to(at["device_deviation"][..., None], means.shape)
    genes = jnp.stack(
        [
            jnp.concatenate([means, at["priority"][..., None]], -1),
            jnp.concatenate([deviations, at["priority_deviation"][..., None]], -1),
        ],
        -1,
    )
    bins = settings.bins

    def level(place: jax.Array) -> jax.Array:
        return jnp.clip(jnp.floor(place * bins), 0, bins - 1).astype(jnp.int32)

    shift = jnp.stack([at["transfer"], at["transfer_deviation"]], -1)
    shift = jnp.clip(jnp.round(shift * bins), -bins, bins).astype(jnp.int32)
    return Action(level(genes), level(at["elite_bias"]), shift)
