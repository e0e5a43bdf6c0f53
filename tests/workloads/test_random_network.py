"""Random networks: trees of so many layers, each of a known kind, joined as they say."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.workloads.architecture_search.random_network import (
    JOINTS,
    LAYERS,
    Block,
    Plan,
    draw,
    random_network,
)

SHAPE = (2, 8, 6)


def leaves(plan: Plan) -> list[str]:
    kind, *parts = plan
    return [name for part in parts for name in leaves(part)] if parts else [str(kind)]


def joints(plan: Plan) -> list[str]:
    joint, *parts = plan
    return [str(joint), *(name for part in parts for name in joints(part))] if parts else []


@cache
def plans() -> list[Plan]:
    return [draw(np.random.default_rng(seed), 1 + seed % 13, 32) for seed in range(100)]


def test_a_plan_has_as_many_layers_as_asked_for_of_all_kinds():
    assert [len(leaves(plan)) for plan in plans()] == [1 + seed % 13 for seed in range(100)]
    assert {name for plan in plans() for name in leaves(plan)} == {*LAYERS}
    assert {name for plan in plans() for name in joints(plan)} == {*JOINTS}


def test_a_plan_is_drawn_from_its_seed():
    again = [draw(np.random.default_rng(seed), 1 + seed % 13, 32) for seed in range(100)]
    assert again == plans() and len(set(plans())) > 80


@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_every_network_of_every_length_can_be_traced(length):
    for seed in range(20):
        workload = random_network(batch=2, length=length, width=5, layers=7, seed=seed)
        # It is traced once: while its parameters are made.
        outputs, _ = jax.eval_shape(
            workload.module.init_with_output, jax.random.key(0), *workload.inputs
        )
        assert outputs.shape == (2, 100)


def value(plan: Plan, x: np.ndarray) -> tuple[np.ndarray, Any]:
    """What a block makes of an input, and its parameters."""
    block = Block(plan)
    params = block.init(jax.random.key(0), x)
    return np.asarray(block.apply(params, x)), params["params"]


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_keeps_the_shape_and_does_something(kind):
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    y, _ = value((kind,), x)
    assert y.shape == SHAPE and np.isfinite(y).all() and np.abs(y - x).max() > 0.1


def dense(params: Any, x: np.ndarray) -> np.ndarray:
    return x @ params["kernel"] + params["bias"]


def relu(params: Any, x: np.ndarray) -> np.ndarray:
    return np.maximum(dense(params["Layer_0"]["Dense_0"], x), 0)


@pytest.mark.parametrize("joint", JOINTS)
def test_parts_are_joined_as_the_plan_says(joint):
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    y, params = value((joint, ("dense",), ("dense",)), x)
    first, second = params["Block_0"], params["Block_1"]
    chain = relu(second, relu(first, x))
    if joint == "sequence":
        expected = chain
    elif joint == "residual":
        expected = x + chain
    elif joint == "sum":
        expected = relu(first, x) + relu(second, x)
    elif joint == "product":
        gates = [1 / (1 + np.exp(-relu(part, x))) for part in (first, second)]
        expected = x * gates[0] * gates[1]
    elif joint == "concatenation":
        both = np.concatenate([relu(first, x), relu(second, x)], -1)
        expected = dense(params["Dense_0"], both)
    elif joint == "dense_block":
        one = np.concatenate([x, relu(first, dense(params["Dense_0"], x))], -1)
        two = np.concatenate([one, relu(second, dense(params["Dense_1"], one))], -1)
        expected = dense(params["Dense_2"], two)
    else:
        half = (x[:, ::2] + x[:, 1::2]) / 2
        inner = np.repeat(relu(second, relu(first, half)), 2, 1)
        expected = dense(params["Dense_0"], np.concatenate([x, inner], -1))
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_a_recurrence_goes_through_the_sequence_in_pieces():
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    y, params = value(("recurrence",), x)
    mix, state, states = params["Layer_0"]["Dense_0"], np.zeros((2, 2, 6)), []
    for piece in np.split(x, 4, 1):
        state = np.tanh(dense(mix, np.concatenate([state, piece], -1)))
        states.append(state)
    np.testing.assert_allclose(y, np.concatenate(states, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["somewhere", "sums"])
def test_unknown_kinds_and_joints_raise(kind):
    plan: Plan = (kind,) if kind == "somewhere" else (kind, ("dense",))
    with pytest.raises(ValueError, match=f"is '{kind}': expected one of"):
        value(plan, jnp.ones(SHAPE))


@pytest.mark.parametrize("name", ["batch", "length", "width", "layers"])
def test_sizes_that_are_too_small_raise(name):
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        random_network(**{name: 0})
