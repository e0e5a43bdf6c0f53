import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from gopt.cost.schedule.objectives import OBJECTIVES
from gopt.graph.graph import Op, Output, from_ops
from gopt.learning.graphs import to_graphs_tuple
from gopt.learning.weights import load_weights, save_weights
from gopt.systems import regal

SETTINGS = regal.Settings(bins=6, width=8, rounds=1)
FOR = {"objective": "makespan", "devices": 2}


@pytest.fixture(scope="module")
def params() -> Any:
    graph = to_graphs_tuple(from_ops([Op(outputs=(Output(4),))]))
    return regal.init(jax.random.key(0), regal.on_devices(graph, 2), settings=SETTINGS)


@pytest.fixture
def path(params, tmp_path):
    path = tmp_path / "policy.npz"
    regal.save(path, params, SETTINGS, objective="makespan", devices=2, origin={"seed": 3})
    return path


def test_a_policy_is_loaded_as_it_was_saved(params, path):
    weights, settings = regal.load(path, **FOR)
    assert settings == SETTINGS
    jax.tree.map(np.testing.assert_array_equal, weights, params)
    assert regal.load_origin(path, objective="makespan") == {"seed": 3}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_policies_that_ship_can_be_loaded(objective):
    weights, _ = regal.load(objective=objective, devices=2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights))
    assert regal.load_origin(objective=objective)["training"]["evaluations"] > 0


def test_no_policy_ships_for_the_objective():
    shipped = "capped_makespan, makespan, peak_memory"
    with pytest.raises(ValueError, match=f"'energy': gopt ships a policy for {shipped}; train"):
        regal.load(objective="energy", devices=2)
    with pytest.raises(ValueError, match=f"'energy': gopt ships a policy for {shipped}; train"):
        regal.load_origin(objective="energy")


def test_a_policy_for_something_else_raises(path):
    with pytest.raises(ValueError, match="with objective 'makespan': expected 'peak_memory'"):
        regal.load(path, objective="peak_memory", devices=2)
    with pytest.raises(ValueError, match="with devices 2: expected 3"):
        regal.load(path, objective="makespan", devices=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 0}, "with version 0: expected"),
        ({"system": "go"}, "with system 'go': expected 'regal'"),
        ({"features": ["flops"]}, "other features than this version"),
        ({"kinds": ["conv"]}, "other kinds than this version"),
        (
            {"settings": {"parts": ["placement"], "bins": 6, "depth": 3}},
            "no settings of regal.*'depth'",
        ),
        ({"settings": None}, "no settings of regal"),
        ({"settings": {"bins": 6}}, "no settings of regal"),
        ({"settings": {**dataclasses.asdict(SETTINGS), "width": 9}}, "of other shapes"),
    ],
)
def test_a_policy_of_another_version_raises(params, path, changes, message):
    _, values = load_weights(path)
    save_weights(path, params, values | changes)
    with pytest.raises(ValueError, match=message):
        regal.load(path, **FOR)


def test_truncated_and_foreign_files_raise(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="does not hold weights that gopt saved"):
        regal.load(path, **FOR)
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match="does not hold weights that gopt saved: it has no"):
        regal.load(path, **FOR)
    save_weights(path, {"layer": {"kernel": np.ones(3)}}, {"arms": 3})
    with pytest.raises(ValueError, match="with system None"):
        regal.load(path, **FOR)
    with pytest.raises(FileNotFoundError):
        regal.load(path.with_name("nowhere.npz"), **FOR)
