"""Trees of arrivals against lists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.schedule.engine import arrivals
from gopt.cost.schedule.engine.arrivals import NEVER


@pytest.mark.parametrize(("ops", "devices"), [(2, 1), (5, 1), (9, 3), (33, 4)])
def test_the_best_that_has_arrived(ops, devices):
    rng = np.random.default_rng(ops)
    of = arrivals.layout(ops, devices)
    device, rank = rng.integers(0, devices, ops), rng.permutation(ops)
    leaf = np.asarray(of.place(of.leaves + rank, device))
    known = np.where(rng.random(ops) < 0.5, rng.integers(0, 9, ops), NEVER)
    trees = arrivals.create(of, jnp.asarray(leaf), jnp.asarray(known))
    add, best, remove = (
        jax.jit(lambda *args, f=f: f(of, *args))
        for f in (arrivals.add, arrivals.best, arrivals.remove)
    )
    times = known.copy()
    for _ in range(6 * ops):
        on, now = int(rng.integers(devices)), int(rng.integers(10))
        earliest = np.asarray(arrivals.earliest(of, trees, devices))
        there = [min(times[device == d], default=NEVER) for d in range(devices)]
        assert earliest.tolist() == there
        ready = [i for i in np.flatnonzero(device == on) if times[i] <= now]
        if ready:
            first = min(ready, key=lambda i: rank[i])
            place = best(trees, jnp.int32(of.place(1, on)), jnp.int32(now))
            assert place == leaf[first] and of.rank(place) == rank[first]
            trees = remove(trees, place)
            times[first] = NEVER
        missing = np.flatnonzero(times == NEVER)
        if missing.size:
            op, time = int(rng.choice(missing)), int(rng.integers(9))
            trees, written = add(trees, jnp.int32(leaf[op]), jnp.int32(time))
            assert written == time
            times[op] = time


def test_nothing_is_done_at_node_0():
    of = arrivals.layout(5, 3)
    leaf = of.place(of.leaves + jnp.arange(5), jnp.zeros(5, jnp.int32))
    trees = arrivals.create(of, leaf, jnp.arange(5))
    place = arrivals.best(of, trees, of.place(jnp.int32(0), jnp.int32(2)), jnp.int32(9))
    assert place == of.place(0, 2)
    np.testing.assert_array_equal(arrivals.remove(of, trees, place), trees)
    np.testing.assert_array_equal(arrivals.add(of, trees, jnp.int32(0), jnp.int32(0))[0], trees)
