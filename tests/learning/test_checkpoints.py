import dataclasses
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from orbax.checkpoint._src.path import atomicity

from gopt.learning.checkpoints import Checkpoints
from gopt.learning.weights import load_weights, save_weights

SETTINGS = {"seed": 3, "policy": {"width": 8, "bins": (1, 2)}}


class State(NamedTuple):
    params: Any
    optimizer: Any
    step: Any


def state(seed: int) -> State:
    rng = np.random.default_rng(seed)
    params = {"dense": {"kernel": jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)}}
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    moments = optimizer.init(params)
    for _ in range(seed):
        gradient = jax.tree.map(lambda x: jnp.sin(100 * x), params)
        updates, moments = optimizer.update(gradient, moments, params)
        params = optax.apply_updates(params, updates)
    return State(params, moments, jnp.int32(seed))


def assert_same(a: Any, b: Any):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(x, y)


def restored(folder: Any) -> tuple[int, Any]:
    checkpoints = Checkpoints(folder, SETTINGS)
    found = checkpoints.restore(state(0))
    checkpoints.close()
    return found


def test_what_is_saved_is_restored(tmp_path):
    checkpoints = Checkpoints(tmp_path / "a" / "run", SETTINGS)
    checkpoints.save(7, state(5))
    checkpoints.close()
    step, found = restored(tmp_path / "a" / "run")
    assert step == 7
    assert_same(found, state(5))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found))


def test_without_a_checkpoint_the_template_is_returned(tmp_path):
    template = state(2)
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    step, found = checkpoints.restore(template)
    checkpoints.close()
    assert step == 0 and found is template


def test_the_newest_two_are_kept_and_the_newest_is_restored(tmp_path):
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    for step in (1, 2, 10):
        checkpoints.save(step, state(step))
    step, found = checkpoints.restore(state(0))
    checkpoints.close()
    assert step == 10
    assert_same(found, state(10))
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == ["10", "2"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 4, "policy": SETTINGS["policy"]}, r"run with seed = 3: expected 4"),
        ({"seed": 3, "policy": {"width": 9, "bins": [1, 2]}}, "policy = .*'width': 8.*'width': 9"),
        ({"seed": 3}, "policy = .*: expected None"),
        (SETTINGS | {"objective": "makespan"}, "objective = None: expected 'makespan'"),
    ],
)
def test_checkpoints_of_another_configuration_are_refused(tmp_path, other, message):
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    checkpoints.save(1, state(1))
    checkpoints.close()
    with pytest.raises(ValueError, match=message) as caught:
        Checkpoints(tmp_path, other)
    assert str(tmp_path) in str(caught.value)
    step, found = restored(tmp_path)
    assert step == 1
    assert_same(found, state(1))


def test_the_same_settings_may_come_as_tuples_or_lists(tmp_path):
    Checkpoints(tmp_path, SETTINGS).close()
    Checkpoints(tmp_path, {"policy": {"bins": [1, 2], "width": 8}, "seed": 3}).close()


def test_a_folder_in_use_is_refused_until_its_run_ends(tmp_path):
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    for settings in (SETTINGS, {"seed": 4}):
        with pytest.raises(ValueError, match=f"{tmp_path} is in use by another training run"):
            Checkpoints(tmp_path, settings)
    checkpoints.save(1, state(1))
    checkpoints.close()
    assert restored(tmp_path)[0] == 1
    with pytest.raises(ValueError, match="holds a run with"):
        Checkpoints(tmp_path, {"seed": 4})  # leaves no lock
    assert restored(tmp_path)[0] == 1


def test_an_interrupted_save_leaves_the_older_checkpoint(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    checkpoints.save(1, state(1))

    async def interrupted(*_: Any) -> None:
        raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        for kind in (atomicity.AtomicRenameTemporaryPath, atomicity.CommitFileTemporaryPath):
            patch.setattr(kind, "finalize", interrupted)
        with pytest.raises(RuntimeError, match="interrupted"):
            checkpoints.save(2, state(2))
    checkpoints.close()
    # What a killed process leaves behind: everything is written, nothing is renamed.
    left = sorted(os.listdir(tmp_path / "steps"))
    assert left[0] == "1" and left[1].startswith("2.") and len(left) == 2
    step, found = restored(tmp_path)
    assert step == 1
    assert_same(found, state(1))

    again = Checkpoints(tmp_path, SETTINGS)
    again.save(2, state(4))
    again.close()
    step, found = restored(tmp_path)
    assert step == 2
    assert_same(found, state(4))


# Weights.

WEIGHTS = {
    "params": {
        "Dense_0": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(3)},
        "MLP_1": {"Dense_0": {"kernel": np.float32([[np.pi]])}},
    }
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    width: int = 3
    rate: float = 0.1
    name: str = "β"


def test_weights_come_back_with_their_settings(tmp_path):
    path = tmp_path / "deep" / "weights.npz"
    save_weights(path, jax.tree.map(jnp.asarray, WEIGHTS), dataclasses.asdict(Sizes(width=5)))
    weights, settings = load_weights(path)
    assert_same(weights, jax.device_get(jax.tree.map(jnp.asarray, WEIGHTS)))
    assert Sizes(**settings) == Sizes(width=5)
    assert os.listdir(path.parent) == ["weights.npz"]


def test_weights_replace_older_ones(tmp_path):
    path = tmp_path / "weights.npz"
    save_weights(path, WEIGHTS, {})
    save_weights(path, {"other": np.ones(2)}, {"a": 1})
    weights, settings = load_weights(path)
    assert_same(weights, {"other": np.ones(2)})
    assert settings == {"a": 1}


def refuse(path: Any):
    with pytest.raises(ValueError, match="does not hold weights that gopt saved") as caught:
        load_weights(path)
    assert str(path) in str(caught.value)


def test_truncated_weights_are_refused(tmp_path):
    path = tmp_path / "weights.npz"
    save_weights(path, WEIGHTS, {})
    whole = path.read_bytes()
    for length in (0, 1, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refuse(path)
    path.write_bytes(whole)
    load_weights(path)


def test_damaged_weights_are_refused(tmp_path):
    path = tmp_path / "weights.npz"
    save_weights(path, {"kernel": np.random.default_rng(0).normal(size=500)}, {})
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 255
    path.write_bytes(whole)
    refuse(path)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, kernel=np.ones(3))
    refuse(path)
    np.savez(path, **{"gopt.weights": np.str_("not JSON"), "kernel": np.ones(3)})
    refuse(path)
    path.write_text('{"weights": []}')
    refuse(path)
    np.save(tmp_path / "one.npy", np.ones(3))
    refuse(tmp_path / "one.npy")
    np.savez(path, **{"gopt.weights": np.str_("{}"), "kernel": np.array([{}], object)})
    refuse(path)


def test_missing_weights_are_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"weights\.npz"):
        load_weights(tmp_path / "weights.npz")
