"""Where work runs: spread over devices, of one process or of several, or on the host."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = Any
Function = TypeVar("Function", bound=Callable[..., Any])


def spread(fn: Callable[..., Tree], *, num_devices: int | None = None) -> Callable[..., Tree]:
    """Returns `fn` with its rows, along the first axis of every argument, computed on all devices.

    For functions that treat the rows of that axis independently, such as a `jax.vmap`: the
    result is the same on any number of devices. Rows that do not divide the devices are made up
    for by repeating the last one; a single row is not split.

    Arguments and results are whole on every device, and so is what is computed from them under the
    same `jax.jit`: nothing but results travels between devices, but each of them holds the whole
    population of a search, and draws and sorts it. After `jax.distributed.initialize`
    these are the devices of all processes, each of which makes the same calls with the same
    arguments; `np.asarray` reads a result in every one.

    Args:
      fn: maps trees of arrays `[A, ...]` to a tree of arrays `[A, ...]`.
      num_devices: how many devices to use; by default all. With one, `fn` itself is returned,
        which every process computes alone.

    Raises:
      ValueError: there are not so many devices, or they would leave out some of several processes.
    """
    devices = jax.devices()
    if num_devices is not None:
        if not 1 <= num_devices <= len(devices):
            raise ValueError(f"num_devices is {num_devices}: expected 1..{len(devices)}")
        if jax.process_count() > 1 and 1 < num_devices < len(devices):
            raise ValueError(
                f"num_devices is {num_devices}: expected 1, or the {len(devices)} of all processes"
            )
        devices = devices[:num_devices]
    if len(devices) == 1:
        return fn

    mesh = Mesh(np.array(devices), ("pop",))
    split, whole = PartitionSpec("pop"), NamedSharding(mesh, PartitionSpec())
    # The loops of a cost start from constants, which a check of replication would refuse.
    sharded = jax.shard_map(fn, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)

    def run(*args: Tree) -> Tree:
        rows = len(jax.tree.leaves(args)[0])
        if rows < 2:
            return fn(*args)
        extra = -rows % len(devices)
        if extra:
            args = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], extra, 0)]), args)
        # Else XLA splits what makes the arguments, too: a generation of a search then waits many
        # times for the other devices, and of several processes one lacks what it has to return.
        args = jax.lax.with_sharding_constraint(args, whole)
        result = jax.lax.with_sharding_constraint(sharded(*args), whole)
        return jax.tree.map(lambda x: x[:rows], result)

    return run


def on_host(fn: Function) -> Function:
    """Returns `fn` with a CPU as JAX's default device while it runs, if JAX has one.

    For what costs one candidate after another: that keeps a single thread of a GPU busy.
    """

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            (cpu, *_) = jax.local_devices(backend="cpu")
        except RuntimeError:  # JAX_PLATFORMS leaves it out
            return fn(*args, **kwargs)
        with jax.default_device(cpu):
            return fn(*args, **kwargs)

    return run  # type: ignore[return-value]
