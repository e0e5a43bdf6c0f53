"""Sample data and train the networks of the experiment."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.progress import track

from experiments.local_advantage.graphs import DEFAULT, Case, Spec, case
from gopt.files import write_whole
from gopt.fusion import CPU
from gopt.learning.train import run
from gopt.systems import local_advantage

CHECKPOINT_EVERY = 500  # steps


def shards(
    specs: Sequence[Spec],
    *,
    sampling: local_advantage.Sampling,
    seed: int,
    folder: Path,
    label: str,
) -> list[tuple[Case, local_advantage.Records]]:
    """Return the graphs and their records; a shard for each is kept in the folder.

    Raises:
      ValueError: the folder holds shards of other settings.
    """
    settings = {**dataclasses.asdict(sampling), "seed": seed, "rates": CPU._asdict()}
    _check(folder / "settings.json", json.loads(json.dumps(settings)))
    found = []
    for spec in track(specs, label):
        made = case(spec)
        path = folder / f"{made.name.replace(' ', '_').replace(',', '')}.npz"
        if not path.exists():
            # The key depends on the graph's size, not on its place in a list.
            key = jax.random.fold_in(jax.random.key(seed), len(made.problem.compute))
            records = local_advantage.sample(
                key, made.problem, made.found[DEFAULT], sampling=sampling
            )
            local_advantage.save_records(path, records)
            jax.clear_caches()  # the programs of all graphs exceed the memory maps of a process
        found.append((made, local_advantage.load_records(path)))
    return found


def _check(path: Path, settings: dict[str, Any]) -> None:
    if path.exists() and json.loads(path.read_text()) != settings:
        raise ValueError(f"{path.parent} holds shards of other settings: use another folder")
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(settings, indent=2))


def train(
    data: Sequence[tuple[Case, local_advantage.Records]],
    *,
    settings: local_advantage.Settings,
    seed: int,
    folder: Path,
    label: str = "training",
) -> tuple[Any, list[float]]:
    """Return the parameters of an advantage network, and its loss in each step.

    Resumes from the checkpoints in `folder` after an interruption.
    """
    samples = [
        jax.tree.map(
            jnp.asarray,
            local_advantage.samples(
                made.graphs, made.problem.configurable, records, settings=settings
            ),
        )
        for made, records in data
    ]
    return fit(
        [made.name for made, _ in data],
        samples,
        lambda key: local_advantage.init(key, samples[0].graphs, settings=settings),
        local_advantage.step,
        settings=settings,
        seed=seed,
        folder=folder,
        label=label,
    )


def fit(
    names: Sequence[str],
    data: Sequence[Any],
    init: Callable[[jax.Array], Any],
    step: Callable[..., tuple[local_advantage.TrainState, Any]],
    *,
    settings: local_advantage.Settings,
    seed: int,
    folder: Path,
    label: str,
    metric: str = "loss",
) -> tuple[Any, list[float]]:
    """Return trained parameters, and a metric of each step; graphs alternate between steps.

    Resumes from the checkpoints in `folder` after an interruption.

    Args:
      names: names of the graphs.
      data: data of each graph.
      init: function from a key to parameters.
      step: function from a state, a key and the data of a graph to the next state and metrics.
      settings: settings of the model.
      seed: seed of the parameters and of all steps.
      folder: folder of checkpoints.
      label: label of the progress bar.
      metric: name of the metric that is returned.
    """
    to_init, to_run = jax.random.split(jax.random.key(seed))
    compiled = jax.jit(partial(step, settings=settings))
    state, history = run(
        local_advantage.start(init(to_init), settings=settings),
        lambda index, state: compiled(
            state, jax.random.fold_in(to_run, index), data[index % len(data)]
        ),
        steps=settings.steps,
        folder=folder,
        described={**dataclasses.asdict(settings), "seed": seed, "graphs": list(names)},
        checkpoint_every=CHECKPOINT_EVERY,
        label=label,
        shown=metric,
    )
    return jax.device_get(state.params), [row[metric] for row in history]
