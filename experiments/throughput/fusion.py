"""Costs of fusion configurations per second: gopt, and its own algorithm in numba on all cores.

Configurations are random, with half of the bits set.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.harness.graphs import Spec, build
from experiments.throughput.peers import fusions
from experiments.throughput.timing import check_same, place, rates
from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import FusionProblem, prepare_fusion
from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import cpu_sockets
from gopt.search.parallel import shard_candidates

# Training steps of 1 000 to 20 000 ops.
STEPS: dict[str, dict[str, Any]] = {
    "rnnlm": {"length": 10},
    "densenet": {},
    "hrnet": {},
    "nasnet_a": {"cells": 10},
}
FEW = 64  # candidates, compared besides the whole population


def compare(
    name: str, problem: FusionProblem, *, population: int, rounds: int, seed: int
) -> dict[str, Any]:
    """Return a record of the speed of costing a population by gopt and by the compiled peer.

    Raises:
      RuntimeError: both compute different costs.
    """
    rng = np.random.default_rng(seed)
    fuse = rng.random((population, len(problem.compute))) < 0.5
    given = jax.tree.map(jax.numpy.asarray, problem)
    ours = jax.jit(shard_candidates(partial(jax.vmap(fusion_cost, (None, 0)), given)))
    calls = {
        "gopt": partial(ours, place(jax.numpy.asarray(fuse))),
        "compiled": partial(fusions.evaluate, fusions.tables(problem), fuse),
    }
    check_same(name, *(call() for call in calls.values()))
    return {
        "graph": name,
        "ops": int(problem.num_ops),
        "configurable": int(problem.num_choices),
        "population": population,
        "clones": bool(problem.allow_duplication),
        "per_second": rates(calls, dict.fromkeys(calls, population), rounds=rounds),
    }


def compare_step(name: str, *, population: int, rounds: int, seed: int) -> list[dict[str, Any]]:
    """Return the records of a training step, each op in one kernel or cloned into several."""
    graph, found = build(Spec(name, STEPS[name], is_step=True)), []
    for allow_duplication in (False, True):
        rules = replace(RULES["cpu"], allow_duplication=allow_duplication)
        problem = prepare_fusion(graph, cpu_sockets(1), rules=rules)
        for count in sorted({FEW, population}):
            found.append(compare(name, problem, population=count, rounds=rounds, seed=seed))
    return found
