"""Tiny graphs, problems and candidates, the same in every mode: NumPy arrays."""

from functools import cache
from typing import Any

import numpy as np

import gopt
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.joint.problem import prepare_joint
from gopt.cost.recompute import problem as recompute
from gopt.sources.synthetic import layered
from tests.systems.test_contract import SHAPE

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def model(w: Any, x: Any) -> Any:
    y = x @ w
    return (y * y + y) @ w


@cache
def machine() -> gopt.Hardware:
    return gopt.unit_rate_devices(2, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4)


@cache
def graph() -> gopt.Graph:
    return gopt.pad(layered(0, 14), SHAPE)


@cache
def problem() -> gopt.Problem:
    return gopt.prepare(graph(), machine())


@cache
def population() -> gopt.Keys:
    rng = np.random.default_rng(0)
    shapes = gopt.keys_shape(problem())
    return gopt.Keys(*(rng.random((4, *leaf.shape), np.float32) for leaf in shapes))


def candidate() -> gopt.Keys:
    return gopt.Keys(*(leaf[0] for leaf in population()))


@cache
def recompute_problem() -> recompute.Problem:
    hardware = gopt.unit_rate_devices(1, flop_rate=1e3, memory_bandwidth=1e3)
    return recompute.prepare(graph(), hardware, max_runs=2)


@cache
def fusible_graph() -> gopt.Graph:
    return gopt.pad(gopt.trace(model, X, X).graph, SHAPE)


@cache
def fusion_problem() -> Any:
    return prepare_fusion(fusible_graph(), gopt.unit_rate_devices(1))


@cache
def joint_problem() -> Any:
    return prepare_joint(fusible_graph(), machine())
