"""One process of `test_processes`: costs and whole searches, spread over the devices there are.

Run by `python -m tests.search.process FOLDER DEVICES PROCESSES PROCESS PORT`; writes what it found
to FOLDER/PROCESS.npz.
"""

import os
import sys
import traceback
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.decoding import keys_shape
from gopt.cost.schedule.execution import evaluate
from gopt.cost.schedule.objectives import population_cost
from gopt.cost.schedule.problem import prepare
from gopt.search import brkga
from gopt.search.parallel import shard_candidates
from gopt.search.population import uniforms
from gopt.sources.synthetic import erdos_renyi

SIZES = brkga.Settings(population=16, elites=11, mutants=2)  # 16, then 5 candidates are costed


def find() -> dict[str, np.ndarray]:
    """Returns costs, a whole search and more, the same on any number of devices."""
    problem = prepare(erdos_renyi(0, 30), unit_rate_devices(2))
    keys = uniforms(jax.random.key(0), keys_shape(problem), 13)
    costs = jax.jit(shard_candidates(jax.vmap(partial(evaluate, problem))))
    cost = shard_candidates(population_cost(problem, "makespan"))
    search = jax.jit(
        lambda key: brkga.minimize(key, cost, keys_shape(problem), evaluations=36, settings=SIZES)
    )
    twice = shard_candidates(lambda x: 2 * x)
    fold = shard_candidates(jax.vmap(partial(jax.random.fold_in, data=1)))
    found = {
        # Processes wait half a minute for the first call of each other, and any time for the next.
        "fewer rows than devices": jax.jit(twice)(jax.jit(twice)(jnp.arange(3.0))),
        "costs": costs(jax.tree.map(np.asarray, keys)),
        "search": search(jax.random.key(1)),
        "without jit": twice(jnp.arange(16.0)),
        "one row": jax.jit(twice)(jnp.ones(1)),
        "vmap": jax.jit(jax.vmap(twice))(jnp.arange(10.0).reshape(2, 5)),
        "random keys": jax.random.key_data(jax.jit(fold)(jax.random.split(jax.random.key(2), 3))),
    }
    leaves, _ = jax.tree_util.tree_flatten_with_path(found)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def main(folder: str, *numbers: str) -> None:
    devices, processes, process, port = map(int, numbers)
    jax.config.update("jax_num_cpu_devices", devices)
    if processes > 1:
        jax.distributed.initialize(f"localhost:{port}", processes, process)
    assert jax.device_count() == processes * devices
    np.savez(Path(folder) / f"{process}.npz", **find())


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # at once: an orderly exit waits for the other processes
