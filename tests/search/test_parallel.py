import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.search.parallel import on_host, shard_candidates


def rows(x: jax.Array, tree: dict) -> dict:
    """Independent rows, with a loop that starts from a constant and stops where the data says."""

    def one(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        limit = jnp.sum(a).astype(jnp.int32) % 7
        end = jax.lax.while_loop(
            lambda s: s[0] < limit, lambda s: (s[0] + 1, s[1] * 1.1 + x), (0, 0.0)
        )
        return end[1] + b

    return {"sum": jax.vmap(one)(x, tree["a"], tree["b"][1]), "x": x}


def arguments(count: int) -> tuple:
    rng = np.random.default_rng(count)
    x = rng.normal(size=count).astype(np.float32)
    tree = {"a": rng.integers(0, 9, (count, 3)), "b": (x + 1, rng.random(count, np.float32))}
    return x, tree


def test_there_are_several_devices():
    assert jax.device_count() == 4


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("jit", [False, True])
def test_spread_equals_one_device_bit_for_bit(count, jit):
    args = arguments(count)
    fn = shard_candidates(rows)
    got = (jax.jit(fn) if jit else fn)(*args)
    expected = shard_candidates(rows, num_devices=1)(*args)
    assert len(np.unique(expected["sum"])) == count
    jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_each_device_gets_a_share_of_the_rows():
    seen = []

    def fn(x: jax.Array) -> jax.Array:
        seen.append(x.shape)
        return 2 * x

    np.testing.assert_array_equal(shard_candidates(fn)(jnp.arange(5.0)), 2 * np.arange(5.0))
    assert set(seen) == {(2,)}


@pytest.mark.parametrize(("count", "devices"), [(1, 1), (2, 2), (3, 2)])
def test_no_row_is_computed_again_but_the_last_one(count, devices):
    seen = []

    def fn(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda rows: seen.extend(rows.tolist()), x)
        return 2 * x

    x = jnp.arange(float(count))
    np.testing.assert_array_equal(jax.jit(shard_candidates(fn, num_devices=devices))(x), 2 * x)
    jax.effects_barrier()
    assert len(seen) == -(-count // devices) * devices and set(seen) == set(range(count))


def test_nothing_but_results_travels_between_devices():
    def search(key: jax.Array) -> jax.Array:
        rows = jax.random.uniform(key, (8, 3))
        cost = shard_candidates(lambda x: x.sum(1))(rows)
        return rows[jnp.argsort(cost)]

    run = jax.jit(search).lower(jax.random.key(0)).compile()
    travels = re.findall(r"(all-[a-z]+|collective-[a-z]+)\(", run.as_text())
    assert travels == ["all-gather"]
    assert run(jax.random.key(0)).sharding.is_fully_replicated


def test_one_device_leaves_the_function_alone():
    assert shard_candidates(rows, num_devices=1) is rows


def test_random_keys_are_rows_too():
    fn = jax.vmap(lambda key: jax.random.uniform(key, (2,)))
    keys = jax.random.split(jax.random.key(0), 3)
    np.testing.assert_array_equal(shard_candidates(fn)(keys), fn(keys))


@pytest.mark.parametrize("count", [-1, 0, 5])
def test_numbers_of_devices_that_there_are_not_raise(count):
    with pytest.raises(ValueError, match=rf"num_devices is {count}: expected 1\.\.4"):
        shard_candidates(rows, num_devices=count)


def test_devices_that_leave_out_a_process_raise(monkeypatch):
    devices = 2 * jax.devices()
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="num_devices is 4: expected 1, or the 8 of all processes"):
        shard_candidates(rows, num_devices=4)
    assert shard_candidates(rows, num_devices=1) is rows


def test_work_on_the_host_leaves_the_default_device():
    cpu, *_, last = jax.devices("cpu")
    where = on_host(lambda x: jnp.sin(x).devices())
    with jax.default_device(last):
        assert where(1.0) == {cpu}
        assert jnp.sin(1.0).devices() == {last}
