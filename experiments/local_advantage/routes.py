"""Other ways to learn from training graphs: a cost model, and a shared policy."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import store
from experiments.harness.runs import Found
from experiments.local_advantage import training
from experiments.local_advantage.graphs import Case
from experiments.local_advantage.methods import Learned, Task, costs, found_after_each, guided_by
from gopt.search.population import DecisionResult
from gopt.systems import local_advantage
from gopt.systems.local_advantage import cost_model, policy

Data = Sequence[tuple[Case, local_advantage.Records]]
BATCH = 16  # configurations


def routes(
    data: Data, *, settings: local_advantage.Settings, evaluations: int, seed: int, folder: Path
) -> dict[str, Learned]:
    """Return the searches by what they learned on the training graphs, trained first.

    Args:
      data: training graphs and their records.
      settings: settings of the advantage network, whose width, rounds and steps are used.
      evaluations: budget of each run.
      seed: seed of the training.
      folder: folder of checkpoints and losses.
    """
    settings = dataclasses.replace(settings, configurations=BATCH)
    names = [made.name for made, _ in data]
    given = [_configurations(made, records) for made, records in data]

    def trained(model: Any, label: str, metric: str) -> Any:
        params, losses = training.fit(
            names,
            given,
            partial(model.init, inputs=given[0].graphs, settings=settings),
            model.step,
            settings=settings,
            seed=seed,
            folder=folder / "checkpoints" / label,
            label=f"training {label}",
            metric=metric,
        )
        store.save_json(folder / f"{label}.json", losses)
        return params

    how: dict[str, Any] = {"evaluations": evaluations, "settings": settings}
    shared = trained(policy, "policy", "share")
    return {
        "cost model": Learned(
            partial(_by_cost_model, **how),
            trained(cost_model, "cost_model", "loss"),
        ),
        "policy, zero-shot": Learned(partial(_drawn, policy.best_of, **how), shared),
        "policy, fine-tuned": Learned(partial(_drawn, policy.minimize, **how), shared),
    }


def _configurations(made: Case, records: local_advantage.Records) -> cost_model.Configurations:
    spread = np.float32(np.std(np.float64(records.cost)))
    found = cost_model.Configurations(made.graphs, made.problem, records.fuse, max(spread, 1.0))
    return jax.tree.map(jnp.asarray, found)


def _by_cost_model(
    key: jax.Array, task: Task, *, evaluations: int, settings: local_advantage.Settings
) -> Found:
    can = task.problem.configurable
    guide = cost_model.guide(task.params, task.graphs, can, settings=settings)
    return guided_by(key, task, guide, evaluations=evaluations)


def _drawn(best: Callable[..., DecisionResult], key: jax.Array, task: Task, **how: Any) -> Found:
    found = best(
        key,
        task.params,
        task.graphs,
        task.problem.configurable,
        costs(task.problem),
        task.start.astype(jnp.int32),
        **how,
    )
    return found_after_each(found.decisions > 0, found.history)
