"""Inputs of losses that are wrong, or at the edge: shapes, no actions, integers, empty batches."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.learning import losses
from tests.reference import losses as reference

pytestmark = pytest.mark.small

# Each loss, with the names of its arguments; all have the shape of the first.
ARGUMENTS = {
    losses.reinforce: ("log_prob", "reward", "baseline"),
    losses.baseline_error: ("reward", "baseline"),
    losses.ppo: ("log_prob", "old_log_prob", "advantage"),
    losses.log_ratio: ("log_prob", "old_log_prob"),
    losses.generalized_advantages: ("reward", "value", "next_value"),
}
OTHERS = [(fn, name) for fn, names in ARGUMENTS.items() for name in names[1:]]
MEANS = (losses.reinforce, losses.baseline_error, losses.ppo, losses.log_ratio)
INF = np.inf


def arrays(fn, shape=(5,), **other):
    """Arguments of a loss; `other` maps names to shapes that differ."""
    rng = np.random.default_rng(0)
    return {n: jnp.float32(rng.normal(size=other.get(n, shape))) for n in ARGUMENTS[fn]}


def test_all_losses_of_several_arrays_are_here():
    public = {f for n, f in vars(losses).items() if callable(f) and not n.startswith("_")}
    own = {f for f in public if f.__module__ == losses.__name__}
    one = {losses.leave_one_out, losses.categorical_log_prob, losses.categorical_entropy}
    assert own == one | set(ARGUMENTS)


@pytest.mark.parametrize("wrong", [(5, 1), (1, 5), (1,), (4,), (6,), (5, 5)])
@pytest.mark.parametrize(("fn", "name"), OTHERS)
def test_an_argument_of_another_shape_is_refused_by_name(fn, name, wrong):
    message = re.escape(f"{name} has shape {wrong}: expected (5,) of {ARGUMENTS[fn][0]}")
    given = arrays(fn, **{name: wrong})
    for call in (fn, jax.jit(fn), jax.grad(fn)):
        with pytest.raises(ValueError, match=message):
            call(*given.values())


@pytest.mark.parametrize("fn", ARGUMENTS)
def test_a_column_is_refused_under_vmap(fn):
    """Each row is right in itself, and the whole batch is: only one argument is a column."""
    given = arrays(fn, (3, 5))
    jax.vmap(lambda rows: fn(**rows))(given)
    name = ARGUMENTS[fn][1]
    given[name] = given[name][..., None]
    with pytest.raises(ValueError, match=re.escape(f"{name} has shape (5, 1): expected (5,)")):
        jax.vmap(lambda rows: fn(**rows))(given)


@pytest.mark.parametrize("fn", [losses.reinforce, losses.baseline_error])
def test_one_baseline_may_be_for_all(fn):
    given = arrays(fn)
    one, each = (fn(**{**given, "baseline": b}) for b in (jnp.float32(2), jnp.full(5, 2.0)))
    assert one == each
    # A scalar of another argument is refused.
    with pytest.raises(ValueError, match=r"baseline has shape \(5,\): expected \(\) of "):
        fn(**{**given, ARGUMENTS[fn][0]: 1.0, "reward": 1.0})


@pytest.mark.parametrize("fn", MEANS)
def test_empty_batches_are_refused(fn):
    with pytest.raises(ValueError, match=r" has shape \(0,\): expected one number at least"):
        fn(**arrays(fn, (0,)))


def test_episodes_without_steps_have_no_advantages():
    given = arrays(losses.generalized_advantages, (3, 0))
    assert losses.generalized_advantages(**given).shape == (3, 0)


@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (losses.leave_one_out, [1.0], "reward has shape (): expected [..., S]"),
        (losses.categorical_entropy, [1.0], "logits has shape (): expected [..., K]"),
        (losses.generalized_advantages, [1.0] * 3, "reward has shape (): expected [..., T]"),
        (losses.categorical_entropy, [np.ones((2, 0))], "expected one action at least"),
        (losses.categorical_log_prob, [np.ones((2, 3)), np.zeros(3, int)], "action has shape (3,)"),
        (losses.categorical_log_prob, [np.ones((2, 3)), np.zeros((2, 1), int)], "expected (2,)"),
        (losses.categorical_log_prob, [np.ones((1, 3)), np.zeros(4, int)], "expected (1,)"),
        (losses.categorical_log_prob, [np.ones((2, 3)), np.zeros(2)], "expected integers"),
    ],
)
def test_other_shapes_and_dtypes_are_refused(fn, args, message):
    for call in (fn, jax.jit(fn)):
        with pytest.raises(ValueError, match=re.escape(message)):
            call(*args)


@pytest.mark.parametrize("value", [-0.1, np.nan, INF])
def test_settings_out_of_range_are_refused(value):
    with pytest.raises(ValueError, match=f"clip is {value}: expected more than 0"):
        losses.ppo(**arrays(losses.ppo), clip=value)
    for name in ("discount", "trace"):
        with pytest.raises(ValueError, match=f"{name} is {value}: expected 0..1"):
            losses.generalized_advantages(**arrays(losses.generalized_advantages), **{name: value})


@pytest.mark.parametrize("advantage", [-1.5, 0.0, 2.0])
def test_ppo_of_impossible_actions_equals_the_reference(advantage):
    """Impossible both times: the ratio is 1, without a gradient. Once: it is at its limit."""
    new = np.float32([-INF, -INF, -1.0, -0.5, -INF])
    old = np.float32([-INF, -1.0, -INF, -0.4, -INF])
    gains = np.float32(advantage) * np.float32([1, 1, 1, 1, -1])
    value, (slope, of_old) = jax.value_and_grad(losses.ppo, (0, 1))(new, old, gains)
    assert float(value) == pytest.approx(reference.ppo(new, old, gains, 0.2), rel=1e-5, abs=1e-7)
    expected = [0, 0, 0, -advantage * np.exp(-0.1) / 5, 0]
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-7)
    assert not np.any(of_old)
    with jax.debug_nans(True):
        jax.jit(jax.grad(losses.ppo))(new, old, gains)


def test_ppo_ignores_excluded_actions_of_a_policy():
    """A masked action was taken by mistake; the other row is still trained."""
    logits = jnp.float32([[0.0, -INF, 1.0], [0.5, 0.2, -0.3]])
    action = jnp.int32([1, 2])
    old = losses.categorical_log_prob(logits, action)

    def loss(logits):
        return losses.ppo(losses.categorical_log_prob(logits, action), old, jnp.ones(2))

    slope = jax.grad(loss)(logits)
    np.testing.assert_array_equal(slope[0], 0)
    expected = -(np.eye(3)[2] - reference.softmax(logits[1])) / 2
    np.testing.assert_allclose(slope[1], expected, rtol=1e-5)


@pytest.mark.parametrize("actions", [1, 4])
def test_distributions_without_actions_have_no_entropy_and_no_gradient(actions):
    logits = np.random.default_rng(0).normal(size=(3, actions)).astype(np.float32)
    logits[1] = -INF
    action = np.array([0, 0, actions - 1])
    entropy, log_prob = losses.categorical_entropy, losses.categorical_log_prob
    np.testing.assert_allclose(entropy(logits), reference.entropy(logits), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        log_prob(logits, action), reference.log_prob(logits, action), rtol=1e-5, atol=1e-6
    )
    rows = jnp.array([0, 2])  # the sum of all would be minus infinity
    with jax.debug_nans(True):
        for fn in (entropy, partial(log_prob, action=action)):
            slope = jax.jit(jax.grad(lambda logits, fn=fn: fn(logits)[rows].sum()))(logits)
            assert np.isfinite(slope).all() and not np.any(slope[1])
        np.testing.assert_array_equal(jax.jit(jax.grad(entropy))(logits[1]), 0)


def test_a_logit_that_is_no_number_is_not_hidden():
    logits = jnp.float32([[np.nan, 0.0], [np.nan, np.nan], [np.nan, -INF]])
    assert np.isnan(losses.categorical_entropy(logits)).all()
    assert np.isnan(losses.categorical_log_prob(logits, jnp.zeros(3, jnp.int32))).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, bool, np.float16])
def test_other_dtypes_count_as_floating_point_numbers(dtype):
    """Unsigned integers would wrap around: 1 - 2 is 255."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2 if dtype is bool else 200, (3, 4)).astype(dtype)
    rows[:2, 0] = 0, 1
    new = np.float32(rng.normal(size=4))
    found = [
        losses.reinforce(new, rows[0], rows[1]),
        losses.baseline_error(rows[0], rows[1]),
        losses.leave_one_out(rows),
        losses.generalized_advantages(rows[0], rows[1], rows[2]),
        losses.ppo(new, new - 0.1, rows[0]),
    ]
    expected = [
        reference.reinforce(new, rows[0], rows[1]),
        reference.baseline_error(rows[0], rows[1]),
        reference.leave_one_out(rows),
        reference.advantages(rows[0], rows[1], rows[2], 0.99, 0.95),
        reference.ppo(new, new - np.float32(0.1), rows[0].astype(float), 0.2),
    ]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-2 if dtype is np.float16 else 1e-5)
