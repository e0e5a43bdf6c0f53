"""The training loop: steps, metrics, checkpoints, and runs that go on from them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.learning.train import run


def double(index, carry):
    (value,) = carry
    return (2 * value + index,), {"value": jnp.array([value, value + 2])}


def train(steps, folder=None, **options):
    return run((jnp.float32(1),), double, steps=steps, folder=folder, **options)


def by_hand(steps):
    carry, means = 1.0, []
    for index in range(steps):
        means.append(carry + 1)
        carry = 2 * carry + index
    return carry, means


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_all_steps_are_done_in_order(steps):
    carry, history = train(steps)
    expected, means = by_hand(steps)
    assert float(carry[0]) == expected
    assert [row["value"] for row in history] == means


@pytest.mark.parametrize("first", [1, 3, 6, 7])
def test_a_run_goes_on_from_the_last_checkpoint(tmp_path, first):
    train(first, tmp_path, checkpoint_every=3)
    done = []

    def counted(index, carry):
        done.append(index)
        return double(index, carry)

    carry, history = run((jnp.float32(1),), counted, steps=7, folder=tmp_path, checkpoint_every=3)
    expected, means = by_hand(7)
    assert done == list(range(first, 7))
    assert float(np.asarray(carry[0])) == expected
    assert [row["value"] for row in history] == means
    assert json.loads((tmp_path / "history.json").read_text()) == history


@pytest.mark.parametrize("carry", [np.float32(1), {"a": [np.ones(2, np.int8)]}])
def test_a_carry_is_any_pytree(tmp_path, carry):
    def same(index, carry):
        return carry, {}

    for steps in (1, 2):
        found, _ = run(carry, same, steps=steps, folder=tmp_path)
        jax.tree.map(np.testing.assert_array_equal, found, carry)
        assert jax.tree.structure(found) == jax.tree.structure(carry)


@pytest.mark.parametrize("content", [None, "", "{}", "[]", "[{}]", "[1, 2]", "[{}, {}"])
def test_a_folder_without_its_metrics_is_refused(tmp_path, content):
    train(2, tmp_path)
    path = tmp_path / "history.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(ValueError, match=r"history.json (cannot be read|has not the metrics of 2)"):
        train(3, tmp_path)


def test_an_interrupted_run_goes_on_from_the_checkpoint_before(tmp_path):
    def stopped(index, carry):
        if index == 5:
            raise KeyboardInterrupt
        return double(index, carry)

    with pytest.raises(KeyboardInterrupt):
        run((jnp.float32(1),), stopped, steps=7, folder=tmp_path, checkpoint_every=2)
    carry, history = train(7, tmp_path, checkpoint_every=2)
    expected, means = by_hand(7)
    assert float(np.asarray(carry[0])) == expected
    assert [row["value"] for row in history] == means


def test_validation_and_checkpoints_come_at_their_steps():
    seen = []
    _, history = train(
        5,
        checkpoint_every=2,
        validate=lambda done, carry: {"half": carry[0] / 2},
        on_checkpoint=lambda done, carry: seen.append((done, float(carry[0]))),
    )
    assert seen == [(done, by_hand(done)[0]) for done in (2, 4, 5)]
    found = {k: row["validation_half"] for k, row in enumerate(history) if len(row) > 1}
    assert found == {done - 1: by_hand(done)[0] / 2 for done in (2, 4, 5)}


def test_the_folder_of_another_run_is_refused(tmp_path):
    train(4, tmp_path, described={"seed": 0})
    with pytest.raises(ValueError, match="seed"):
        train(4, tmp_path, described={"seed": 1})
    with pytest.raises(ValueError, match="steps is 3: the folder holds a run of 4 steps"):
        train(3, tmp_path, described={"seed": 0})
    with pytest.raises(ValueError, match="checkpoint_every is 0: expected 1 at least"):
        train(1, checkpoint_every=0)
