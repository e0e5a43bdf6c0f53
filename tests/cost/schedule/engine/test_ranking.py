"""Ranks against a sort of Python's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.schedule.engine.ranking import rank_by_key

rank = jax.jit(rank_by_key)

TINY = np.float32(1e-45)  # the smallest subnormal
KEYS = {
    "uniform": lambda rng, n: rng.random(n),
    "equal": lambda rng, n: np.full(n, 0.5),
    "few": lambda rng, n: rng.integers(0, 3, n) / 2,
    "zeros of both signs": lambda rng, n: rng.choice([0.0, -0.0], n),
    "nearly equal": lambda rng, n: np.nextafter(np.float32(0.5), rng.choice([0, 1], n), dtype="f4"),
    "falling by the least": lambda rng, n: (n - np.arange(n)) * TINY,
    "of all sizes": lambda rng, n: 2.0 ** -rng.integers(0, 149, n),
    "ones": lambda rng, n: rng.choice([1.0, np.nextafter(1, 0, dtype="f4")], n),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(("size", "count"), [(1, 1), (40, 0), (40, 23), (700, 700)])
def test_ranks_are_by_key_then_position(kind, size, count):
    rng = np.random.default_rng(size)
    key = KEYS[kind](rng, size).astype(np.float32)
    items = np.sort(rng.permutation(size)[:count])
    padded = np.pad(items, (0, size - count)).astype(np.int32)

    by_rank, ranks = jax.device_get(rank(key, padded, jnp.int32(count)))

    bits = np.maximum(key.view(np.int32), 0)  # NumPy may take subnormal numbers as zero
    expected = sorted(items.tolist(), key=lambda item: (int(bits[item]), item))
    assert by_rank[:count].tolist() == expected
    assert ranks[expected].tolist() == list(range(count))
