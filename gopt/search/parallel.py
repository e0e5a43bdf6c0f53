"""Run functions over several devices or processes, or on the host."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = Any
Function = TypeVar("Function", bound=Callable[..., Any])


def shard_candidates(
    fn: Callable[..., Tree], *, num_devices: int | None = None
) -> Callable[..., Tree]:
    """Shard a function over devices, along the first axis of every argument.

    The function must treat the rows of that axis independently, like a `jax.vmap`. The result is
    then the same on any number of devices. Rows are padded to a multiple of the number of devices
    by repeating the last one. A single row is not split.

    Arguments and results are replicated on every device, and so is the rest of the same `jax.jit`.
    Only results travel between devices, but each device holds, draws and sorts the whole population
    of a search. After `jax.distributed.initialize`, the devices of all processes are used. Each
    process must make the same calls with the same arguments; `np.asarray` reads a result in every
    process.

    Args:
      fn: function from trees of arrays `[A, ...]` to a tree of arrays `[A, ...]`.
      num_devices: number of devices to use; by default all. With one, `fn` itself is returned, and
        every process computes it alone.

    Raises:
      ValueError: `num_devices` exceeds the available devices, or excludes some of several
        processes.
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
    # The loops of a cost start from constants, which a replication check would reject.
    sharded = jax.shard_map(fn, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)

    def run(*args: Tree) -> Tree:
        rows = len(jax.tree.leaves(args)[0])
        if rows < 2:
            return fn(*args)
        extra = -rows % len(devices)
        if extra:
            args = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], extra, 0)]), args)
        # Otherwise XLA also shards the computation of the arguments. A generation of a search then
        # waits for other devices many times, and a process may lack data that it must return.
        args = jax.lax.with_sharding_constraint(args, whole)
        result = jax.lax.with_sharding_constraint(sharded(*args), whole)
        return jax.tree.map(lambda x: x[:rows], result)

    return run


def on_host(fn: Function) -> Function:
    """Run a function with a CPU as JAX's default device, if JAX has one.

    Use it for code that costs candidates one after another, which uses one thread of a GPU.
    """

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            (cpu, *_) = jax.local_devices(backend="cpu")
        except RuntimeError:  # JAX_PLATFORMS excludes the CPU
            return fn(*args, **kwargs)
        with jax.default_device(cpu):
            return fn(*args, **kwargs)

    return run  # type: ignore[return-value]
