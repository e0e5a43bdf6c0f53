"""Spreading independent work over the devices of one process."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

Tree = Any


def spread(fn: Callable[..., Tree], *, num_devices: int | None = None) -> Callable[..., Tree]:
    """Returns `fn` with the first axis of every argument and result split over the devices.

    For functions that treat the rows of that axis independently, such as a `jax.vmap`: the
    result is the same on any number of devices. Fewer rows than devices take a device each; rows
    that do not divide the devices are made up for by repeating the last one.

    Args:
      fn: maps trees of arrays `[A, ...]` to a tree of arrays `[A, ...]`.
      num_devices: how many devices to use; by default all.

    Raises:
      ValueError: there are not so many devices.
    """
    devices = jax.devices()
    if num_devices is not None:
        if not 1 <= num_devices <= len(devices):
            raise ValueError(f"num_devices is {num_devices}: expected 1..{len(devices)}")
        devices = devices[:num_devices]
    if len(devices) == 1:
        return fn

    def run(*args: Tree) -> Tree:
        rows = len(jax.tree.leaves(args)[0])
        count = min(rows, len(devices))
        if count < 2:
            return fn(*args)
        extra = -rows % count
        if extra:
            args = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], extra, 0)]), args)
        return jax.tree.map(lambda x: x[:rows], _sharded(fn, devices[:count])(*args))

    return run


def _sharded(fn: Callable[..., Tree], devices: Sequence[jax.Device]) -> Callable[..., Tree]:
    axis = PartitionSpec("pop")
    # The loops of a cost start from constants, which a check of replication would refuse.
    return jax.shard_map(
        fn,
        mesh=Mesh(np.array(devices), ("pop",)),
        in_specs=axis,
        out_specs=axis,
        check_vma=False,
    )
