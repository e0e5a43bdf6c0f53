"""What the places of ops mean to a search: levels of Betas, and of an elite bias."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from gopt.heuristics.schedule.placement.spectral import sides
from gopt.learning.graphs import OP_FEATURES, GraphsTuple
from gopt.learning.layers.graph import op_mask
from gopt.systems.regal.settings import PLACES, STANDARD, Settings, is_led


class Action(NamedTuple):
    """What a search does about each op: levels of `Settings.bins`."""

    genes: Any  # int32 [N, D + 1, 2], mean and deviation for each device, then of the priority
    elite_bias: Any  # int32 [N]
    transfer: Any  # int32 [N, 2], added to the levels of the priority of the first reader


def quantise(places: jax.Array, graphs: GraphsTuple, *, devices: int, settings: Settings) -> Action:
    """Returns the action of places `[..., N, L]`, with the leading axes of the places.

    The origin of the plane is where the guide has it: what the policy adds to `Settings.lean` times
    the sides of the guide is moved to the mean of zero over the ops, weighted by the logarithm of
    the bytes that they make. So a policy does not drift towards a device, and a guide on one device
    stays there, however a policy scales its sides. The mean of the priorities of ops that run is
    put to 1/2: what counts is mostly how they differ. Ops that read or make much are led less (see
    `loosen_heavy`).
    """
    features = cast(jax.Array, graphs.nodes["features"])
    mask = op_mask(graphs)
    weight = (features[:, OP_FEATURES.index("made")] * mask)[:, None]
    plane = places[..., :2]
    guide = settings.lean * features[:, [OP_FEATURES.index(f"side_{axis}") for axis in "xy"]]
    added = jnp.sum((plane - guide) * weight, -2, keepdims=True)
    added = added / jnp.maximum(weight.sum(), 1e-6)
    runs = mask & (features[:, OP_FEATURES.index("is_input")] == 0)
    priority = places[..., PLACES.index("priority")]
    mean = jnp.sum(priority * runs, -1, keepdims=True) / jnp.maximum(runs.sum(), 1)
    places = places.at[..., :2].set(plane - added)
    places = places.at[..., PLACES.index("priority")].set(priority - mean + 0.5)
    places = loosen_heavy(places, features[:, OP_FEATURES.index("share")], settings)
    return levels(places, devices=devices, settings=settings)


def loosen_heavy(places: jax.Array, share: jax.Array, settings: Settings) -> jax.Array:
    """Returns places `[..., N, L]` that lead an op the less, the more bytes it reads or makes.

    Its place in the plane fades to the origin, and the deviation of its priority to the widest,
    around the mean that it had. Which of the few largest tensors share a device, and which is
    freed before the next is made, is a matter of packing: searches find it better if they are
    led less. To fade the mean of the priority, too, was no better on training graphs.

    Args:
      places: as of `apply`, with the origin in the middle of the graph.
      share: of all bytes that each op reads, or makes, whichever is more, in 0..1, `[N]`.
      settings: the settings of the policy.
    """
    kept = jnp.exp(-share / settings.heavy)
    deviation = PLACES.index("priority_deviation")
    places = places.at[..., :2].multiply(kept[:, None])
    return places.at[..., deviation].set(1 - kept * (1 - places[..., deviation]))


def levels(places: jax.Array, *, devices: int, settings: Settings) -> Action:
    """Returns the levels of places `[..., N, L]` as they are.

    Devices are taken to be alike: they lie in even directions of the plane. The mean of a device
    is 1/2 at the origin, and more in its direction. Where a part is not led, places count as those
    that are nearest to standard BRKGA: to uniform keys, and to its elite bias.
    """
    places = jnp.where(is_led(settings), places, jnp.float32(list(STANDARD.values())))
    at = dict(zip(PLACES, jnp.moveaxis(places, -1, 0), strict=True))
    means = 0.5 + places[..., :2] @ sides(np.arange(devices), devices).T
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
