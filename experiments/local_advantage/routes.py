"""Other ways to learn from training graphs: a cost model, and a shared policy."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.local_advantage.graphs import Case
from experiments.local_advantage.methods import Learned, Task, costs, found_after_each, guided_by
from experiments.local_advantage.settings import Settings
from experiments.local_advantage.training import fit, sampled
from gopt.search.population import DecisionResult
from gopt.search.result import SearchResult
from gopt.systems import local_advantage
from gopt.systems.local_advantage import cost_model, policy

BATCH = 16  # configurations


def routes(settings: Settings) -> dict[str, Learned]:
    """Return the searches by what they learned on the training graphs, trained first.

    The width, rounds and steps of `settings.network` are used.
    """
    sizes = dataclasses.replace(settings.network, configurations=BATCH)
    settings = dataclasses.replace(settings, network=sizes)
    data = sampled(settings, "train")
    given = {case.name: _configurations(case, records) for case, records in data}
    how: dict[str, Any] = {"evaluations": settings.evaluations, "settings": sizes}
    slope = fit(given, cost_model, settings, "cost_model")
    shared = fit(given, policy, settings, "policy", shown="share")
    return {
        "cost model": Learned(partial(_by_cost_model, **how), slope),
        "policy, zero-shot": Learned(partial(_drawn, policy.best_of, **how), shared),
        "policy, fine-tuned": Learned(partial(_drawn, policy.minimize, **how), shared),
    }


def _configurations(case: Case, records: local_advantage.Records) -> cost_model.Configurations:
    spread = np.float32(np.std(np.float64(records.cost)))
    return cost_model.Configurations(case.graphs, case.problem, records.fuse, max(spread, 1.0))


def _by_cost_model(
    key: jax.Array, task: Task, *, evaluations: int, settings: local_advantage.Settings
) -> SearchResult:
    can = task.problem.configurable
    guide = cost_model.guide(task.params, task.graphs, can, settings=settings)
    return guided_by(key, task, guide, evaluations=evaluations)


def _drawn(
    best: Callable[..., DecisionResult], key: jax.Array, task: Task, **how: Any
) -> SearchResult:
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
