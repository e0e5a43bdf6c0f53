"""Sample data and train the networks of the experiment."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from rich.progress import track

from experiments.harness import store
from experiments.local_advantage.graphs import DEFAULT, SPLITS, Case, case
from experiments.local_advantage.settings import Settings
from gopt.fusion import CPU
from gopt.learning.train import run
from gopt.systems import local_advantage

CHECKPOINT_EVERY = 500  # steps
Data = Sequence[tuple[Case, local_advantage.Records]]
Network = tuple[Any, local_advantage.Settings]  # parameters and settings


def sampled(settings: Settings, split: str) -> Data:
    """Return the graphs of a split and their records, which are kept in the folder.

    Raises:
      UsageError: the folder holds records of other settings.
    """
    sampling, seed = settings.sampling, settings.seed
    about = {**dataclasses.asdict(sampling), "seed": seed, "rates": CPU._asdict()}
    kept, found = store.Store(settings.folder / "data" / f"{split}.sqlite", about), []

    def sample(case: Case) -> dict[str, Any]:
        # The key depends on the graph's size, not on its place in a list.
        key = jax.random.fold_in(jax.random.key(seed), len(case.problem.compute))
        made = local_advantage.sample(key, case.problem, case.found[DEFAULT], sampling=sampling)
        jax.clear_caches()  # the programs of all graphs exceed the memory maps of a process
        return made._asdict()

    for made in map(case, track(SPLITS[split], f"sampling {split} graphs")):
        arrays = kept.arrays(made.name, partial(sample, made))
        found.append((made, local_advantage.Records(**arrays)))
    return found


def trained(settings: Settings, name: str = "network") -> Network:
    """Return the parameters and settings of an advantage network after training and saving it."""
    samples = {
        case.name: local_advantage.samples(
            case.graphs, case.problem.configurable, records, settings=settings.network
        )
        for case, records in sampled(settings, "train")
    }
    params = fit(samples, local_advantage, settings, name)
    path, origin = settings.folder / f"{name}.npz", store.origin(settings)
    local_advantage.save(path, params, settings.network, origin=origin)
    return params, settings.network


def fit(
    data: Mapping[str, Any], model: Any, settings: Settings, name: str, shown: str = "loss"
) -> Any:
    """Return trained parameters; graphs alternate between steps.

    Resumes from its checkpoints in the folder after an interruption. The metrics of each step are
    in `history.json` beside them.

    Args:
      data: data of each graph by its name, with a field `graphs`.
      model: module with the functions `init` and `step` of `gopt.systems`.
      settings: settings of the experiment, whose `network` is trained.
      name: name of what is trained.
      shown: metric shown beside the bar.
    """
    sizes = settings.network
    every = [jax.tree.map(jnp.asarray, each) for each in data.values()]
    to_init, to_run = jax.random.split(jax.random.key(settings.seed))
    params = model.init(to_init, every[0].graphs, settings=sizes)
    step = jax.jit(partial(model.step, settings=sizes))
    state, _ = run(
        local_advantage.start(params, settings=sizes),
        lambda index, state: step(
            state, jax.random.fold_in(to_run, index), every[index % len(every)]
        ),
        steps=sizes.steps,
        folder=settings.folder / "checkpoints" / name,
        described={**dataclasses.asdict(sizes), "seed": settings.seed, "graphs": list(data)},
        checkpoint_every=CHECKPOINT_EVERY,
        label=f"training {name}",
        shown=shown,
    )
    return jax.device_get(state.params)
