"""Schedules that are carried out op by op: the values of the function, the bytes of the model."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import gopt
from gopt.hardware import homogeneous
from gopt.workloads import WORKLOADS

TABLE = np.linspace(0, 1, 48, dtype=np.float32).reshape(8, 6)


def gradient(w: Any, x: jax.Array) -> Any:
    return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w["in"]) @ w["out"]))(w)


def views(x: jax.Array, y: jax.Array) -> Any:
    """Views are read and returned; so are an argument, a captured array and a literal."""
    flat = (x + 1).reshape(-1)
    return flat[::2], flat.reshape(6, 8), x, TABLE.T @ y, 3.0, jnp.zeros(4)


def unread(x: jax.Array) -> Any:
    values, _ = lax.top_k(x @ x.T, 3)
    return values.sum()


def loops(x: jax.Array, keys: jax.Array) -> Any:
    def step(carry: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = jnp.sin(carry) + jax.random.normal(key, carry.shape)
        return carry, carry.sum()

    last, sums = lax.scan(step, x, keys)
    return lax.cond(sums[0] > 0, jnp.sum, jnp.prod, last), sums


X = jnp.asarray(TABLE)
CASES = {
    "gradient": (gradient, ({"in": X, "out": X.T}, jnp.ones((5, 8)))),
    "views": (views, (X, X[:, 0].reshape(-1))),
    "unread": (unread, (X,)),
    "loops": (loops, (X, jax.random.split(jax.random.key(0), 4))),
}


def model(result: gopt.Scheduling) -> np.ndarray:
    """Returns the bytes of the model for each item, without what an op needs while it runs."""
    items = result.schedule.order[: int(result.schedule.num_items)]
    rows = result.problem.shape.ops
    workspace = np.where(items < rows, result.problem.workspace[np.minimum(items, rows - 1)], 0)
    assert result.problem.unit == 1
    return result.schedule.usage[: len(items)] - workspace


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_any_schedule_has_the_values_of_the_function_and_the_bytes_of_the_model(
    name, seed, devices
):
    fn, args = CASES[name]
    result = gopt.schedule(
        fn, *args, hardware=homogeneous(devices), method="brkga", evaluations=1, seed=seed
    )
    found = result.execute(*args)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), found.value, fn(*args))
    assert jax.tree.structure(found.value) == jax.tree.structure(fn(*args))
    np.testing.assert_array_equal(found.usage, model(result))
    if not result.problem.workspace.any():
        assert found.peak == result.after.peak
    assert (devices == 1) or len({*result.schedule.device.tolist()}) == 2


def test_a_training_step_on_two_devices():
    step, shapes = WORKLOADS["rnnlm"](
        batch=2, length=2, hidden=8, vocabulary=10, layers=1
    ).train_step()
    rng = np.random.default_rng(0)

    def draw(shape: Any) -> jax.Array:
        if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        if jnp.issubdtype(shape.dtype, jnp.floating):
            return jnp.asarray(rng.random(shape.shape), shape.dtype)
        return jnp.ones(shape.shape, shape.dtype)

    args = jax.tree.map(draw, shapes)
    result = gopt.schedule(step, *args, donate_argnums=(0, 1), evaluations=60)
    found = result.execute(*args)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), found.value, step(*args)
    )
    np.testing.assert_array_equal(found.usage, model(result))
    assert found.peak == result.after.peak and max(found.peak) < max(result.before.peak)


def test_arrays_are_where_the_schedule_leaves_them():
    fn, args = CASES["gradient"]
    result = gopt.schedule(fn, *args, method="brkga", evaluations=1)
    first, second = jax.devices()
    found = result.execute(*args, devices=[second, first])
    program, home = result.traced.program, {}
    for op, index in enumerate(result.traced.equations):
        if index >= 0:
            outs = program.equations[index].outvars
            home |= dict.fromkeys(outs, result.schedule.device[op])
    for leaf, variable in zip(jax.tree.leaves(found.value), program.outputs, strict=True):
        if variable in home:
            assert leaf.devices() == {[second, first][home[variable]]}


def test_bad_calls_raise():
    fn, args = CASES["unread"]
    result = gopt.schedule(fn, *args, method="heft")
    with pytest.raises(ValueError, match="arguments have structure"):
        result.execute()
    with pytest.raises(ValueError, match=r"args\[0\] is float32\[4\], expected float32\[8,6\]"):
        result.execute(jnp.ones(4))
    with pytest.raises(ValueError, match="devices are 1: expected 2; one may be named twice"):
        result.execute(*args, devices=jax.devices()[:1])
