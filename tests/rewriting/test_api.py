"""`gopt.rewrite`: an equal function, chosen only if it is equal and significantly faster."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.measure.timing import Times, memory
from gopt.rewriting import api
from gopt.rewriting.plan import compiled_candidate
from gopt.rewriting.rules.patterns import matmul
from gopt.rewriting.rules.rule import Rule
from gopt.xla.applied import Executable

pytestmark = pytest.mark.small

W = [jnp.asarray(np.random.default_rng(k).standard_normal((8, 8)), jnp.float32) for k in range(3)]
X = jnp.asarray(np.random.default_rng(3).standard_normal((5, 8)), jnp.float32)


def chain(w, x):
    return ((x @ w[0]) @ w[1]) @ w[2]


@pytest.fixture
def takes(monkeypatch):
    """Sets what programs take; they run, but are not timed."""

    def set_times(before, found, *, wall=1.0, rounds=20):
        def times(functions, arguments, *, repeats, progress):
            assert list(functions)[:2] == ["XLA", "rewritten"]
            for function in functions.values():
                jax.block_until_ready(function(*arguments()))
            spread = 1 + 0.001 * np.arange(rounds)
            return {
                name: Times(
                    (found if name.startswith("rewritten") else before) * spread,
                    (wall if name.startswith("rewritten") else 1.0) * spread,
                )
                for name in functions
            }

        monkeypatch.setattr(api, "time_interleaved", times)

    set_times(2.0, 1.0)
    return set_times


def close(ours, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, theirs)


def test_what_is_faster_is_chosen_and_has_the_same_values(takes):
    result = gopt.rewrite(chain, W, X, constant_argnums=0)
    names = ["XLA", "rewritten", "XLA, folded", "rewritten, folded"]
    assert [candidate.name for candidate in result.candidates] == names
    assert result.report.rules == ("(xa)b = x(ab)",) * 2
    assert result["rewritten, folded"].predicted < result["XLA, folded"].predicted
    assert result.report.difference < 1e-5
    assert result.after.name == "rewritten" and result.report.refused == {}
    assert result.after_folded.name == "rewritten, folded"
    close(result.apply()(W, X), chain(W, X))
    folded = result.apply(constants={0: W})
    assert jax.tree.map(jnp.shape, folded.folded) == ((8, 8),)
    close(folded(X), chain(W, X))
    assert result.after_folded.folded_bytes == 8 * 8 * 4
    assert result["XLA, folded"].folded_bytes == 3 * 8 * 8 * 4
    text = str(result)
    assert "2 × (xa)b = x(ab)" in text
    assert "0.500" in text
    assert "chosen: rewritten (it is significantly faster than XLA" in text
    assert repr(result) == "<Result of gopt.rewrite: 'rewritten' of 4 candidates>"


def test_the_program_that_was_measured_is_returned(takes):
    result = gopt.rewrite(chain, W, X, constant_argnums=0)
    assert memory(result.apply().lower(W, X).compile()) == result.after.memory
    folded = result.apply(constants={0: W})
    assert memory(folded.lower(X).compile()) == result.after_folded.memory


def test_results_keep_pytrees_dtypes_and_weak_types(takes):
    def fn(w, x, s):
        return {"y": chain(w, x), "s": s * 2, "number": 1.5, "many": (s, jnp.ones(2, jnp.int8))}

    result = gopt.rewrite(fn, W, X, 3.0, constant_argnums=0)
    expected = jax.eval_shape(fn, W, X, 3.0)
    assert result.after.name == "rewritten"
    for values in (result.apply()(W, X, 3.0), result.apply(constants={0: W})(X, 3.0)):
        assert jax.tree.structure(values) == jax.tree.structure(expected)
        for ours, theirs in zip(*map(jax.tree.leaves, (values, expected)), strict=True):
            assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)


def test_tracers_are_as_good_as_arrays(takes):
    function = gopt.rewrite(chain, W, X, constant_argnums=0).apply()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there are no compiler options to be lost
        close(jax.jit(function)(W, X), chain(W, X))
        close(jax.vmap(lambda x: function(W, x))(X[None])[0], chain(W, X))
        ours, theirs = (jax.grad(lambda x: f(W, x).sum())(X) for f in (function, chain))  # noqa: B023
    close(ours, theirs)


@pytest.mark.parametrize("verb", [gopt.schedule, gopt.fuse])
def test_a_rewritten_function_is_scheduled_or_fused(takes, verb):
    function = gopt.rewrite(chain, W, X, constant_argnums=0).apply()
    options = {"confirm": 1} if verb is gopt.schedule else {"repeats": 1}
    result = verb(function, W, X, evaluations=2, **options)
    close(result.apply()(W, X), chain(W, X))


@pytest.mark.parametrize("faster", [True, False])
def test_decisions_are_saved_and_loaded(takes, tmp_path, faster):
    takes(2.0, 1.0 if faster else 3.0)
    result = gopt.rewrite(chain, W, X, constant_argnums=0)
    result.save(tmp_path / "rewriting.json")
    plan = gopt.load(tmp_path / "rewriting.json")
    assert "\n" not in repr(plan)
    assert (plan.chosen, plan.chosen_folded) == (result.after.name, result.after_folded.name)
    ours, theirs = plan.apply(chain, W, X), result.apply()
    assert ours.lower(W, X).as_text() == theirs.lower(W, X).as_text()
    close(plan.apply(chain, W, X, constants={0: W})(X), chain(W, X))
    with pytest.raises(ValueError, match="the plan is of another program"):
        plan.apply(lambda w, x: x, W, X)


@pytest.mark.parametrize("constants", [{}, {1: X}, {0: W, 1: X}, W])
def test_constants_are_those_that_were_named(takes, constants):
    result = gopt.rewrite(chain, W, X, constant_argnums=0)
    with pytest.raises(ValueError, match=r"expected values by position, for \[0\]"):
        result.apply(constants=constants)


def test_without_constants_there_is_nothing_to_fold(takes):
    result = gopt.rewrite(chain, W, X)
    assert len(result.candidates) == 2
    with pytest.raises(ValueError, match="constants are given: expected none"):
        result.apply(constants={0: W})


def test_arrays_are_on_the_device_before_anything_is_timed(monkeypatch):
    def times(calls, arguments, *, repeats, progress):
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(arguments()))
        return dict.fromkeys(calls, Times(np.ones(repeats), np.ones(repeats)))

    monkeypatch.setattr(api, "time_interleaved", times)
    gopt.rewrite(chain, *jax.tree.map(np.asarray, (W, X)), constant_argnums=0)


def test_values_on_given_arguments_count_as_well(takes):
    """Of these numbers a product of constants alone is infinite; of random ones it is not."""

    def fn(c, x):
        return x * c[0] * c[0] * c[1]

    takes(before=2.0, found=1.0)
    given = [jnp.full(3, 1e30), jnp.full(3, 1e-30)], jnp.full((2, 3), 1e-30)
    result = gopt.rewrite(fn, *given, constant_argnums=0)
    why = "its values differ by inf"
    assert set(result.report.refused.items()) == {
        (name, why) for name in ("rewritten", "rewritten, folded", "XLA, folded")
    }
    # The function itself is chosen: as terms it would have that product as well.
    expected = fn(*given)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(result.apply()(*given), expected)
    np.testing.assert_array_equal(result.apply(constants={0: given[0]})(given[1]), expected)
    fine = gopt.rewrite(fn, [jnp.ones(3)] * 2, given[1], constant_argnums=0)
    assert fine.report.refused == {}


def test_folded_constants_are_those_of_the_plan(takes):
    result = gopt.rewrite(chain, W, X, constant_argnums=np.int64(0))
    with pytest.raises(ValueError, match="arguments have structure"):
        result.apply(constants={0: W[:2]})
    with pytest.raises(ValueError, match=r"args\[0\]\[0\] is float32\[4,8\]"):
        result.apply(constants={0: [W[0][:4], *W[1:]]})
    # A constant that is one array is not taken for its rows.
    single = gopt.rewrite(lambda b, x: (b, x), W[0][:1], X, constant_argnums=0)
    for name in ("XLA, folded", "rewritten, folded"):
        run = single[name].executable
        assert run.function(run.fold(W[0][:1]), X)[0].shape == (1, 8)


def test_values_that_are_nowhere_finite_tell_nothing(takes):
    takes(before=2.0, found=1.0)
    result = gopt.rewrite(lambda x: jnp.log(-jnp.exp(x)), X)  # no rule changes anything
    assert not result.report.is_telling
    assert result.report.refused["rewritten"].startswith("its values tell nothing")


def test_scalars_of_python_take_the_dtype_of_what_they_meet(takes):
    takes(before=2.0, found=1.0)
    narrow = [each.astype(jnp.bfloat16) for each in (X, W[0])]
    result = gopt.rewrite(lambda s, x, w: (x * s) @ w, 2.0, *narrow)
    assert result.report.refused == {}
    assert result.apply()(2.0, *narrow).dtype == jnp.bfloat16


def test_what_no_rule_knows_is_told(takes):
    def fn(x):
        x, _ = jax.lax.scan(lambda c, _: (jnp.tanh(c) + c, None), jnp.sin(x), None, length=3)
        return jax.lax.while_loop(lambda c: c.sum() < 1, lambda c: c + 1, jnp.sin(x))

    takes(before=1.0, found=1.0)
    result = gopt.rewrite(fn, X)
    assert result.report.unknown == {"sin": 2, "scan of 2 equations": 1, "while of 3 equations": 1}
    assert "no rule knows: 2 × sin, 1 × scan of 2 equations, 1 × while of" in str(result)
    takes(before=2.0, found=1.0)
    assert "no rule knows" not in str(gopt.rewrite(chain, W, X, constant_argnums=0))


@pytest.mark.parametrize(
    ("times", "why"),
    [
        (dict(before=1.0, found=1.0), "nothing is faster"),
        (dict(before=1.0, found=2.0), "nothing is faster"),
        (dict(before=2.0, found=1.0, wall=1.2), "rewritten takes significantly more wall time"),
        (dict(before=2.0, found=1.0, rounds=11), "11 rounds are too few to tell what is faster"),
    ],
)
def test_what_is_not_significantly_faster_is_refused(takes, times, why):
    takes(**times)
    result = gopt.rewrite(chain, W, X, constant_argnums=0)
    assert result.reason.startswith(why)
    assert result.after is result.before
    assert result.after_folded is result.before
    assert f"chosen: XLA ({why}" in str(result)
    close(result.apply()(W, X), chain(W, X))
    close(result.apply(constants={0: W})(X), chain(W, X))


WRONG = Rule("(xa)b = xa", (matmul(matmul("x", "a"), "b"),), (matmul("x", "a"),), {"b": "n n"})


def test_a_wrong_rule_is_caught(takes):
    result = gopt.rewrite(chain, W, X, constant_argnums=0, rules=[WRONG])
    assert result.report.rules == (WRONG.name,) * 2
    assert "rewritten is refused: its values differ by" in result.reason
    assert result.after is result.before


def test_values_that_tell_nothing_are_no_proof(takes):
    def fn(w, x):
        return jnp.zeros(8) * chain(w, x)

    result = gopt.rewrite(fn, W, X, constant_argnums=0)
    assert not result.report.is_telling
    assert "its values tell nothing" in result.reason


def test_a_number_can_be_rewritten(takes):
    result = gopt.rewrite(lambda w, x: jnp.sum(chain(w, x)), W, X, constant_argnums=0)
    assert result.report.rules and result.report.refused == {}


def test_what_is_folded_only_is_measured_apart():
    result = gopt.rewrite(lambda w, x: x @ jnp.sin(w[0]), W, X, constant_argnums=0, repeats=2)
    assert result.report.rules == ()
    assert result["XLA, folded"].predicted == result["rewritten, folded"].predicted
    lines = str(result).splitlines()[2:6]
    assert [line.split("  ")[0] for line in lines] == [c.name for c in result.candidates]


def test_a_loss_may_return_a_key(takes):
    def fn(w, x):
        return chain(w, x), jax.random.key(0)

    assert gopt.rewrite(fn, W, X, constant_argnums=0).report.refused == {}


def test_shapes_are_enough_and_nothing_need_be_constant(takes):
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (W, X))
    result = gopt.rewrite(chain, *shapes)
    assert result.report.rules == ()  # the matrices are smaller than what is multiplied by them
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
    assert len(result.before.times.process) == len(result.candidates[-1].times.wall) == 2
    assert result.reason.startswith("2 rounds are too few")


def test_a_function_without_a_finite_cost_is_refused():
    with pytest.raises(ValueError, match="repeats is 0"):
        gopt.rewrite(chain, W, X, repeats=0, search=None)  # before anything is searched
    with pytest.raises(ValueError, match="the function costs inf s"):
        gopt.rewrite(chain, W, X, cost=lambda *op: float("inf"))


def test_folded_constants_are_counted_as_xla_stores_them():
    folded = jnp.ones((256, 256), jnp.int4)
    double = jax.jit(lambda x: x + x)
    found = Executable(double, double, {})
    candidate = compiled_candidate("folded", None, None, found, (folded,), folded=[folded])
    assert candidate.folded_bytes == candidate.memory.arguments == 32768
