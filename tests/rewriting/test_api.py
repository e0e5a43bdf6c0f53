"""`gopt.rewrite`: an equal function, chosen only if it is equal and surely faster."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.measure.timing import Times
from gopt.rewriting import api
from gopt.rewriting.ir.to_function import RewrittenProgram
from gopt.rewriting.rules.patterns import matmul
from gopt.rewriting.rules.rule import Rule

pytestmark = pytest.mark.small

W = [jnp.asarray(np.random.default_rng(k).standard_normal((8, 8)), jnp.float32) for k in range(3)]
X = jnp.asarray(np.random.default_rng(3).standard_normal((5, 8)), jnp.float32)


def chain(w, x):
    return ((x @ w[0]) @ w[1]) @ w[2]


@pytest.fixture
def takes(monkeypatch):
    """Sets what both programs take; they run, but are not timed."""

    def set_times(before, found, *, wall=1.0, turns=20):
        def times(functions, *, repeats):
            assert list(functions) == ["before", "folded", "found"]
            for function in functions.values():
                jax.block_until_ready(function())
            spread = 1 + 0.001 * np.arange(turns)
            process = {"before": before, "folded": before, "found": found}
            return {
                name: Times(process[name] * spread, (wall if name == "found" else 1.0) * spread)
                for name in functions
            }

        monkeypatch.setattr(api, "turns", times)

    set_times(2.0, 1.0)
    return set_times


def test_what_is_faster_is_chosen_and_has_the_same_values(takes):
    result = gopt.rewrite(chain, W, X, constant_argnums=0)
    assert result.rules == ("(xa)b = x(ab)",) * 2
    assert result.found.cost < result.before.cost
    assert result.difference < 1e-5
    assert result.refused == "" and result.after is result.found
    faster = result.apply()
    assert isinstance(faster, RewrittenProgram)
    np.testing.assert_allclose(faster(W, X), chain(W, X), rtol=1e-4, atol=1e-4)
    folded = faster.fold(W)
    assert len(folded) == 1
    np.testing.assert_allclose(jax.jit(faster.run)(folded, X), chain(W, X), rtol=1e-4, atol=1e-4)
    text = str(result)
    assert "2 × (xa)b = x(ab)" in text
    assert "0.500" in text
    assert text.endswith("chosen: found")


def test_arrays_are_on_the_device_before_anything_is_timed(monkeypatch):
    def turns(calls, *, repeats):
        for call in calls.values():
            assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(call.args))
        return dict.fromkeys(calls, Times(np.ones(repeats), np.ones(repeats)))

    monkeypatch.setattr(api, "turns", turns)
    gopt.rewrite(chain, *jax.tree.map(np.asarray, (W, X)), constant_argnums=0)


def test_values_on_given_arguments_count_as_well(takes):
    """Of these numbers a product of constants alone is infinite; of random ones it is not."""

    def fn(c, x):
        return x * c[0] * c[0] * c[1]

    takes(before=2.0, found=1.0)
    given = [jnp.full(3, 1e30), jnp.full(3, 1e-30)], jnp.full((2, 3), 1e-30)
    result = gopt.rewrite(fn, *given, constant_argnums=0)
    assert result.refused == "its values differ by inf"
    # What is chosen is the function itself: as terms it would have that product as well.
    kept, expected = result.apply(), fn(*given)
    assert np.isfinite(expected).all() and not np.isfinite(result.folded.written(*given)).any()
    np.testing.assert_array_equal(kept(*given), expected)
    np.testing.assert_array_equal(kept.run(kept.fold(given[0]), given[1]), expected)
    assert gopt.rewrite(fn, [jnp.ones(3)] * 2, given[1], constant_argnums=0).refused == ""


def test_what_is_folded_is_checked(takes):
    better = gopt.rewrite(chain, W, X, constant_argnums=np.int64(0)).apply()
    takes(1.0, 2.0)
    kept = gopt.rewrite(chain, W, X, constant_argnums=0).apply()
    assert len(better.fold(W)) == 1 and len(kept.fold(W)) == 3
    with pytest.raises(ValueError, match=r"folded has \[float32\[8, 8\], float32\[8, 8\], float32"):
        better.run(W, X)
    with pytest.raises(ValueError, match=r"fold\(\) returns, \[float32\[8, 8\], float32\[8, 8\],"):
        kept.run(W[:2], X)
    for wrong in (W[0][:4], W[0].astype(jnp.int32)):
        with pytest.raises(ValueError, match="folded has"):
            better.run([wrong], X)
        with pytest.raises(ValueError, match="folded has"):
            kept.run([*W[:2], wrong], X)
    # One array is what there is to fold as well, not its rows.
    single = gopt.rewrite(lambda b, x: (b, x), W[0][:1], X, constant_argnums=0)
    for written in (single.before.written, single.folded.written):
        assert written.run(W[0][:1], X)[0].shape == (1, 8)


def test_values_that_are_nowhere_finite_tell_nothing(takes):
    takes(before=2.0, found=1.0)
    result = gopt.rewrite(lambda x: jnp.log(-jnp.exp(x)), X)  # no rule changes anything
    assert not result.tells and result.refused.startswith("its values tell nothing")


def test_scalars_of_python_take_the_dtype_of_what_they_meet(takes):
    takes(before=2.0, found=1.0)
    narrow = [each.astype(jnp.bfloat16) for each in (X, W[0])]
    result = gopt.rewrite(lambda s, x, w: (x * s) @ w, 2.0, *narrow)
    assert result.refused == ""
    assert result.apply()(2.0, *narrow).dtype == jnp.bfloat16


def test_what_no_rule_knows_is_told(takes):
    def fn(x):
        x, _ = jax.lax.scan(lambda c, _: (jnp.tanh(c) + c, None), jnp.sin(x), None, length=3)
        return jax.lax.while_loop(lambda c: c.sum() < 1, lambda c: c + 1, jnp.sin(x))

    takes(before=1.0, found=1.0)
    result = gopt.rewrite(fn, X)
    assert result.unknown == {"sin": 2, "scan of 2 equations": 1, "while of 3 equations": 1}
    assert "no rule knows: 2 × sin, 1 × scan of 2 equations, 1 × while of" in str(result)
    takes(before=2.0, found=1.0)
    assert "no rule knows" not in str(gopt.rewrite(chain, W, X, constant_argnums=0))


@pytest.mark.parametrize(
    ("times", "why"),
    [
        (dict(before=1.0, found=1.0), "it is not surely faster"),
        (dict(before=1.0, found=2.0), "it is not surely faster"),
        (dict(before=2.0, found=1.0, wall=1.2), "it surely takes longer on the wall"),
        (dict(before=2.0, found=1.0, turns=5), "turns are too few to tell what is faster: 6"),
    ],
)
def test_what_is_not_surely_faster_is_refused(takes, times, why):
    takes(**times)
    result = gopt.rewrite(chain, W, X, constant_argnums=0)
    assert result.refused.startswith(why)
    assert result.after is result.before
    assert f"chosen: before ({why}" in str(result)
    np.testing.assert_allclose(result.apply()(W, X), chain(W, X), rtol=1e-4, atol=1e-4)


WRONG = Rule("(xa)b = xa", (matmul(matmul("x", "a"), "b"),), (matmul("x", "a"),), {"b": "n n"})


def test_a_wrong_rule_is_caught(takes):
    result = gopt.rewrite(chain, W, X, constant_argnums=0, rules=[WRONG])
    assert result.rules == (WRONG.name,) * 2
    assert result.refused.startswith("its values differ by")


def test_values_that_tell_nothing_are_no_proof(takes):
    def fn(w, x):
        return jnp.zeros(8) * chain(w, x)

    result = gopt.rewrite(fn, W, X, constant_argnums=0)
    assert not result.tells
    assert "its values tell nothing" in result.refused


def test_a_number_can_be_rewritten(takes):
    result = gopt.rewrite(lambda w, x: jnp.sum(chain(w, x)), W, X, constant_argnums=0)
    assert result.rules and result.refused == ""


def test_what_is_folded_only_is_measured_apart():
    result = gopt.rewrite(lambda w, x: x @ jnp.sin(w[0]), W, X, constant_argnums=0, repeats=2)
    assert result.rules == ()
    assert result.folded.cost == result.before.cost == result.found.cost
    lines = [line.split()[0] for line in str(result).splitlines()[2:5]]
    assert lines == ["before", "folded", "found"]


def test_a_loss_may_return_a_key(takes):
    def fn(w, x):
        return chain(w, x), jax.random.key(0)

    assert gopt.rewrite(fn, W, X, constant_argnums=0).refused == ""


def test_shapes_are_enough_and_nothing_need_be_constant(takes):
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (W, X))
    result = gopt.rewrite(chain, *shapes)
    assert result.rules == ()  # the matrices are smaller than what is multiplied by them
    np.testing.assert_allclose(result.apply()(W, X), chain(W, X), rtol=1e-4, atol=1e-4)


def test_a_function_may_have_one_op_or_none(takes):
    for fn in (lambda x: x, lambda x: x + 1, lambda x: (x, 2.0)):
        result = gopt.rewrite(fn, X)
        for ours, theirs in zip(
            jax.tree.leaves(result.apply()(X)), jax.tree.leaves(fn(X)), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("position", [-1, 2])
def test_constant_arguments_are_arguments(position):
    with pytest.raises(ValueError, match=f"constant_argnums has {position}, expected 0..1"):
        gopt.rewrite(chain, W, X, constant_argnums=position)


def test_both_are_timed():
    result = gopt.rewrite(chain, W, X, constant_argnums=(0,), repeats=2)
    assert len(result.before.times.process) == len(result.found.times.wall) == 2
    assert result.refused.startswith("turns are too few")


def test_a_function_without_a_finite_cost_is_refused():
    with pytest.raises(ValueError, match="repeats is 0"):
        gopt.rewrite(chain, W, X, repeats=0, search=None)  # before anything is searched
    with pytest.raises(ValueError, match="the function costs inf s"):
        gopt.rewrite(chain, W, X, cost=lambda *op: float("inf"))
