import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.learning import losses
from tests.reference import losses as reference

pytestmark = pytest.mark.small

SHAPES = [(1,), (5,), (3, 4), (2, 3, 2)]


def batch(shape: tuple[int, ...], arms: int = 6, scale: float = 3.0):
    rng = np.random.default_rng(len(shape) * 100 + arms)
    logits = (scale * rng.normal(size=(*shape, arms))).astype(np.float32)
    action = rng.integers(0, arms, shape)
    reward, baseline = rng.normal(size=(2, *shape)).astype(np.float32)
    return logits, action, reward, baseline


@pytest.mark.parametrize("shape", SHAPES)
def test_log_probabilities_equal_the_reference(shape):
    logits, action, _, _ = batch(shape)
    got = losses.categorical_log_prob(logits, action)
    assert got.shape == shape and np.ptp(np.append(got, 0)) > 0.1
    np.testing.assert_allclose(got, reference.log_prob(logits, action), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_entropies_equal_the_reference(shape):
    logits = batch(shape)[0]
    got = losses.categorical_entropy(logits)
    assert got.shape == shape
    np.testing.assert_allclose(got, reference.entropy(logits), rtol=2e-5, atol=1e-6)


def test_entropy_of_known_distributions():
    rows = np.float32([[0, 0, 0, 0], [0, 0, -1e30, -1e30], [1000, 0, 0, 0]])
    np.testing.assert_allclose(
        losses.categorical_entropy(rows), [np.log(4), np.log(2), 0], rtol=1e-6
    )


@pytest.mark.parametrize("fn", ["entropy", "log_prob"])
def test_excluded_and_large_logits_are_finite_and_so_are_gradients(fn):
    """A logit of minus infinity excludes an action: it has no probability and no gradient."""
    logits = np.float32([[0, -np.inf, 1], [1e4, -1e4, 0], [-1e30, 0, 0]])
    action = np.array([0, 0, 1])

    def total(logits: jax.Array) -> jax.Array:
        if fn == "entropy":
            return losses.categorical_entropy(logits).sum()
        return losses.categorical_log_prob(logits, action).sum()

    value, gradient = jax.value_and_grad(total)(logits)
    expected = reference.entropy(logits) if fn == "entropy" else reference.log_prob(logits, action)
    np.testing.assert_allclose(value, expected.sum(), rtol=1e-5)
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0.1
    assert gradient[0, 1] == 0


@pytest.mark.parametrize("logits", [(0.0, 0.0), (1.0, -2.0, 0.5)])
def test_gradient_of_the_entropy_equals_differences(logits):
    logits = np.float64(logits)
    got = jax.grad(losses.categorical_entropy)(np.float32(logits))
    for arm, step in enumerate(1e-5 * np.eye(len(logits))):
        slope = (reference.entropy(logits + step) - reference.entropy(logits - step)) / 2e-5
        np.testing.assert_allclose(got[arm], slope, atol=1e-5)


def test_gradient_equals_the_score_function():
    logits, action, reward, baseline = batch((7,))

    def loss(logits: jax.Array) -> jax.Array:
        log_prob = losses.categorical_log_prob(logits, action)
        return losses.reinforce(log_prob, reward, baseline)

    expected = reference.reinforce_gradient(logits, action, reward, baseline)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(jax.grad(loss)(logits), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("baseline", [0.0, 2.5])
def test_the_gradient_is_unbiased_on_a_bandit(baseline):
    """Over all actions of three arms, the mean gradient is that of the expected reward."""
    logits = jnp.float32([0.3, -1.0, 0.8])
    prize = np.array([1.0, 4.0, -2.0], np.float32)

    def loss(logits: jax.Array, action: jax.Array) -> jax.Array:
        log_prob = losses.categorical_log_prob(logits, action)
        return losses.reinforce(log_prob, prize[action], jnp.float32(baseline))

    chances = reference.softmax(logits)
    mean = sum(p * np.asarray(jax.grad(loss)(logits, jnp.int32(a))) for a, p in enumerate(chances))
    exact = -chances * (prize - chances @ prize)
    assert np.abs(exact).min() > 0.1
    np.testing.assert_allclose(mean, exact, rtol=1e-4, atol=1e-6)


def test_only_the_log_probability_is_differentiated():
    log_prob, reward, baseline = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    slopes = jax.grad(losses.reinforce, argnums=(0, 1, 2))(log_prob, reward, baseline)
    np.testing.assert_allclose(slopes[0], -(reward - baseline) / 4, rtol=1e-6)
    np.testing.assert_array_equal(slopes[1:], 0)
    slopes = jax.grad(losses.baseline_error, argnums=(0, 1))(reward, baseline)
    np.testing.assert_array_equal(slopes[0], 0)
    np.testing.assert_allclose(slopes[1], -2 * (reward - baseline) / 4, rtol=1e-6)


def test_the_baseline_error_is_the_mean_square():
    reward, baseline = np.float32([1, -2, 3]), np.float32([0, 0, 1])
    assert float(losses.baseline_error(reward, baseline)) == 3


def test_a_baseline_that_fits_leaves_no_gradient():
    logits, action, reward, _ = batch((5,))

    def loss(logits: jax.Array) -> jax.Array:
        return losses.reinforce(losses.categorical_log_prob(logits, action), reward, reward)

    np.testing.assert_array_equal(jax.grad(loss)(logits), 0)


@pytest.mark.parametrize("samples", [2, 5])
def test_leave_one_out_equals_the_reference(samples):
    reward = np.random.default_rng(samples).normal(size=(3, samples))
    got = losses.leave_one_out(jnp.float32(reward))
    np.testing.assert_allclose(got, reference.leave_one_out(reward), atol=1e-6)


def test_leave_one_out_of_one_sample_raises():
    with pytest.raises(ValueError, match="reward has 1 sample of each state"):
        losses.leave_one_out(jnp.zeros((3, 1)))


@pytest.mark.slow
def test_leave_one_out_is_unbiased_and_does_not_vary_more():
    """Over all pairs of actions of three arms, the mean gradient is the exact one."""
    logits = jnp.float32([0.3, -1.0, 0.8])
    prize = np.array([11.0, 14.0, 8.0], np.float32)
    chances = reference.softmax(logits)
    pairs = np.array([(a, b) for a in range(3) for b in range(3)])
    weight = chances[pairs[:, 0]] * chances[pairs[:, 1]]

    def loss(logits: jax.Array, pair: jax.Array, corrected: bool) -> jax.Array:
        baseline = jnp.zeros((1, 2))
        if corrected:
            baseline = losses.leave_one_out(jnp.asarray(prize)[pair][None])
        log_prob = losses.categorical_log_prob(jnp.broadcast_to(logits, (2, 3)), pair)
        return losses.reinforce(log_prob[None], jnp.asarray(prize)[pair][None], baseline)

    each = {
        corrected: np.array(
            [jax.grad(loss)(logits, jnp.asarray(pair), corrected) for pair in pairs]
        )
        for corrected in (False, True)
    }
    exact = -chances * (prize - chances @ prize)
    for gradients in each.values():
        np.testing.assert_allclose(weight @ gradients, exact, rtol=1e-4, atol=1e-4)
    spread = {c: weight @ ((g - exact) ** 2).sum(1) for c, g in each.items()}
    assert spread[True] < 0.5 * spread[False]


@pytest.mark.parametrize("clip", [0.1, 0.3])
def test_ppo_equals_the_reference(clip):
    rng = np.random.default_rng(0)
    old, advantage = rng.normal(size=(4, 30)), rng.normal(size=(4, 30))
    new = old + rng.normal(scale=0.3, size=old.shape)
    found = losses.ppo(jnp.float32(new), jnp.float32(old), jnp.float32(advantage), clip=clip)
    assert float(found) == pytest.approx(reference.ppo(new, old, advantage, clip), rel=1e-4)


def test_ppo_is_reinforce_at_first_and_stops_where_it_is_clipped():
    """The ratio is 1, or beyond the clip in the direction of the advantage, or against it."""
    old = jnp.zeros(5)
    new = jnp.float32([0.0, 0.5, -0.5, -0.5, 0.5])
    advantage = jnp.float32([2.0, 1.0, -1.0, 1.0, -1.0])

    def loss(new, old, advantage):
        return losses.ppo(new, old, advantage, clip=0.2)

    gradient, of_old, of_advantage = jax.grad(loss, (0, 1, 2))(new, old, advantage)
    expected = -np.array([2.0, 0, 0, np.exp(-0.5), -np.exp(0.5)]) / 5
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)
    assert not np.any(of_old) and not np.any(of_advantage)


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_ppo_is_finite_however_likely_an_action_has_become(advantage):
    def loss(new):
        return losses.ppo(new, jnp.zeros(2), jnp.full(2, advantage), clip=0.2)

    value, gradient = jax.value_and_grad(loss)(jnp.float32([-200.0, 200.0]))
    assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.mark.parametrize("shape", [(1,), (7,), (2, 5)])
def test_generalized_advantages_equal_the_reference(shape):
    rng = np.random.default_rng(len(shape))
    reward, value, after = np.float32(rng.normal(size=(3, *shape)))
    for discount, trace in ((0.99, 0.95), (1, 1), (0.5, 0), (0, 0.5)):
        found = losses.generalized_advantages(reward, value, after, discount=discount, trace=trace)
        expected = reference.advantages(reward, value, after, discount, trace)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_episode_that_was_cut_off_is_told_from_one_that_has_ended():
    reward, value = jnp.zeros(3), jnp.ones(3)
    ended, cut = (
        losses.generalized_advantages(reward, value, jnp.array([1, 1, last]), discount=1, trace=1)
        for last in (0.0, 1.0)
    )
    np.testing.assert_allclose(ended, -np.ones(3))
    np.testing.assert_allclose(cut, np.zeros(3), atol=1e-7)
