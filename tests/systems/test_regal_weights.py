import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from gopt.cost.schedule.objectives import OBJECTIVES
from gopt.graph.graph import Op, Output, from_ops
from gopt.learning.checkpoints import load_weights, save_weights
from gopt.learning.graphs import to_graphs_tuple
from gopt.systems import regal

SETTINGS = regal.Settings(bins=6, width=8, rounds=1)
FOR = {"objective": "makespan", "devices": 2}


@pytest.fixture(scope="module")
def params() -> Any:
    graph = to_graphs_tuple(from_ops([Op(outputs=(Output(4),))]))
    return jax.jit(partial(regal.init, settings=SETTINGS))(jax.random.key(0), graph).params


@pytest.fixture
def path(params, tmp_path):
    path = tmp_path / "policy.npz"
    regal.save_policy(path, params, SETTINGS, objective="makespan", devices=2, origin={"seed": 3})
    return path


def test_a_policy_is_loaded_as_it_was_saved(params, path):
    weights, settings = regal.load_policy(path, **FOR)
    assert settings == SETTINGS
    jax.tree.map(np.testing.assert_array_equal, weights, params)
    assert regal.load_origin(path, objective="makespan") == {"seed": 3}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_policies_that_ship_can_be_loaded(objective):
    weights, _ = regal.load_policy(objective=objective, devices=2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights))
    assert regal.load_origin(objective=objective)["training"]["evaluations"] > 0


def test_no_policy_ships_for_the_objective():
    shipped = "capped_makespan, makespan, peak_memory"
    with pytest.raises(ValueError, match=f"'energy': gopt ships a policy for {shipped}; train"):
        regal.load_policy(objective="energy", devices=2)
    with pytest.raises(ValueError, match=f"'energy': gopt ships a policy for {shipped}; train"):
        regal.load_origin(objective="energy")


def test_a_policy_for_something_else_raises(path):
    with pytest.raises(ValueError, match="with objective 'makespan': expected 'peak_memory'"):
        regal.load_policy(path, objective="peak_memory", devices=2)
    with pytest.raises(ValueError, match="with devices 2: expected 3"):
        regal.load_policy(path, objective="makespan", devices=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 0}, "with version 0: expected"),
        ({"features": ["flops"]}, "other features than this version"),
        ({"kinds": ["conv"]}, "other kinds than this version"),
        (
            {"settings": {"parts": ["placement"], "bins": 6, "depth": 3}},
            "no settings of a policy.*'depth'",
        ),
        ({"settings": None}, "no settings of a policy"),
        ({"settings": {"bins": 6}}, "no settings of a policy"),
        ({"settings": {**dataclasses.asdict(SETTINGS), "width": 9}}, "of other shapes"),
    ],
)
def test_a_policy_of_another_version_raises(params, path, changes, message):
    _, values = load_weights(path)
    save_weights(path, params, values | changes)
    with pytest.raises(ValueError, match=message):
        regal.load_policy(path, **FOR)


def test_truncated_and_foreign_files_raise(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="does not hold weights that gopt saved"):
        regal.load_policy(path, **FOR)
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match="does not hold weights that gopt saved: it has no"):
        regal.load_policy(path, **FOR)
    save_weights(path, {"layer": {"kernel": np.ones(3)}}, {"arms": 3})
    with pytest.raises(ValueError, match="a policy with objective None"):
        regal.load_policy(path, **FOR)
    with pytest.raises(FileNotFoundError):
        regal.load_policy(path.with_name("nowhere.npz"), **FOR)
