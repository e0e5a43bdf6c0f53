"""Orders that are searched, compiled and compared with XLA's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.ordering import least_memory
from gopt.sources.synthetic import small_world

S = jax.ShapeDtypeStruct((64, 128), jnp.float32)
W = jax.ShapeDtypeStruct((128, 128), jnp.float32)


SEED = 0
EDGES = small_world(np.random.default_rng(SEED), 20, 4, 0.75).tolist()


def wired(x, weights):
    """A randomly wired network: each node adds what it reads."""
    made = []
    for node, w in enumerate(weights):
        reads = [made[u] for u, v in EDGES if v == node] or [x]
        made.append(jax.nn.relu(sum(reads[1:], reads[0])) @ w)
    return [made[node] for node in range(20) if all(u != node for u, _ in EDGES)]


@pytest.fixture(scope="module")
def result():
    return least_memory(wired, S, [W] * 20, evaluations=1000, confirm=9)


def test_a_better_order_is_found_and_has_the_values_of_the_function(result):
    assert result.after.memory.beside < 0.9 * result.before.memory.beside
    assert result.after.predicted is not None
    rng = np.random.default_rng(0)
    x, *weights = (jnp.asarray(rng.normal(size=s.shape), s.dtype) for s in (S, *[W] * 20))
    ours, theirs = result.apply()(x, weights), jax.jit(wired)(x, weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3), ours, theirs)


def test_the_model_predicts_what_xla_needs(result):
    errors = {
        candidate.name: abs(candidate.predicted / candidate.memory.beside - 1)
        for candidate in result.candidates
        if candidate.predicted is not None
    }
    assert max(errors.values()) < 0.2  # two tensors of eleven
    assert errors[result.after.name] < 0.05


def test_the_table_names_every_candidate_and_the_chosen_one(result):
    text = str(result)
    assert all(candidate.name in text for candidate in result.candidates)
    assert f"chosen: {result.after.name}" in text
    assert "searched" in text


def test_xlas_own_program_is_kept_where_nothing_needs_less():
    result = least_memory(lambda x: x + 1, S, evaluations=10)
    assert result.after is result.before
    assert "chosen: XLA (nothing needs less)" in str(result)
    np.testing.assert_array_equal(result.apply()(jnp.ones(S.shape)), 2 * jnp.ones(S.shape))


def test_a_function_without_kernels():
    result = least_memory(lambda x: x, S)
    assert result.num_kernels == 0
    assert result.after is result.before


def test_donated_arguments_stay_donated():
    result = least_memory(lambda x, w: (x - (x @ w) @ w.T, x.sum()), S, W, donate_argnums=0)
    assert all(c.memory.aliases == 64 * 128 * 4 for c in result.candidates)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"evaluations": 0}, "evaluations is 0"), ({"confirm": -1}, "confirm is -1")],
)
def test_settings_are_checked(kwargs, message):
    with pytest.raises(ValueError, match=message):
        least_memory(jnp.sin, S, **kwargs)


def test_side_effects_are_named():
    def prints(x):
        jax.debug.print("{}", x)
        return x + 1

    with pytest.raises(ValueError, match="side effects"):
        least_memory(prints, S)


def test_an_argument_that_is_returned_is_not_overwritten():
    result = least_memory(lambda w, x: (x, w - 0.1 * (w @ x)), W, W, donate_argnums=0)
    assert all(candidate.memory.aliases == 128 * 128 * 4 for candidate in result.candidates)


def test_functions_on_several_devices_are_named():
    mesh = jax.make_mesh((1,), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    fn = jax.shard_map(jnp.sin, mesh=mesh, in_specs=spec, out_specs=spec)
    with pytest.raises(ValueError, match="shard_map"):
        least_memory(fn, S)


def test_what_is_checkpointed_is_computed_again():
    @jax.checkpoint
    def block(x, w):
        return jnp.tanh(jnp.sin(jnp.tanh(x @ w) @ w) @ w)

    def gradient(weights, x):
        return jax.grad(lambda weights: (functools.reduce(block, weights, x) ** 2).mean())(weights)

    result = least_memory(gradient, [W] * 4, S, evaluations=100)
    # XLA on a CPU merges what is computed again with what was computed before.
    assert result.after.memory.beside < 0.7 * result.before.memory.beside
    assert result.after.name.endswith("duplicates apart")
    assert abs(result.after.predicted / result.after.memory.beside - 1) < 0.2
