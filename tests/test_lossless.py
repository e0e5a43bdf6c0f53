"""Nothing that a program says is lost by a verb: donations, weak types, small dtypes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import gopt
from gopt.measure.timing import memory
from tests.tiers import slow

pytestmark = pytest.mark.small

X = jnp.linspace(-1, 1, 64 * 64).reshape(64, 64)
WAYS = {
    "schedule": (gopt.schedule, {"evaluations": 3, "confirm": 1}),
    "fuse": (gopt.fuse, {"evaluations": 2, "repeats": 1}),
    "rewrite": (gopt.rewrite, {"repeats": 1}),
}


def step(parameters, x):
    gradient = jax.grad(lambda p: jnp.mean(jnp.tanh(x @ p["a"] @ p["b"]) ** 2))(parameters)
    return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradient)


def parameters():
    return {"a": X + 0, "b": X * 2}


JITTED = {
    "first": jax.jit(step, donate_argnums=0),
    "second": jax.jit(lambda x, p: step(p, x), donate_argnums=1),
    "both": jax.jit(step, donate_argnums=(0, 1)),
    "by name": jax.jit(step, donate_argnames="parameters"),
    "kept unused": jax.jit(lambda p, x, y: step(p, x), donate_argnums=0, keep_unused=True),
    "nested": jax.jit(lambda p, x: jax.jit(step, donate_argnums=0)(p, x)),
    "none": jax.jit(step),
}


def arguments(name):
    given = {"second": (X, parameters()), "kept unused": (parameters(), X, X)}
    return given.get(name, (parameters(), X))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["first", *slow(*(name for name in JITTED if name != "first"))])
def test_a_jitted_function_is_planned_and_donates_as_it_is(way, name):
    verb, options = WAYS[way]
    fn, args = JITTED[name], arguments(name)
    result = verb(fn, *args, **options)
    planned = memory(fn.lower(*args).compile())
    assert result.before.memory == planned
    assert (planned.aliases > 0) == (name not in ("nested", "none"))
    for candidate in result.candidates:
        assert candidate.memory.aliases == planned.aliases
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(args))
    apply, donated = result.apply(), name not in ("nested", "none")
    ours = apply(*args)
    assert all(leaf.is_deleted() == donated for leaf in jax.tree.leaves(args[name == "second"]))
    for x, y in zip(*map(jax.tree.leaves, (ours, fn(*arguments(name)))), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_calls_that_donate_a_part_of_an_argument(way):
    verb, options = WAYS[way]
    inner = jax.jit(lambda p, x: (p * 2 + x.sum(), x * 3), donate_argnums=0)
    fn = lambda each: inner(each["p"], each["x"])  # noqa: E731
    result = verb(fn, {"p": X, "x": X + 1}, **options)
    assert result.program.donated == (True, False)
    assert all(c.memory.aliases == X.nbytes for c in result.candidates)
    given = {"p": X + 0, "x": X + 1}
    np.testing.assert_allclose(result.apply()(given)[1], given["x"] * 3, rtol=1e-6)
    assert given["p"].is_deleted() and not given["x"].is_deleted()


@pytest.mark.parametrize("way", WAYS)
def test_files_of_decisions_keep_donations(way, tmp_path):
    verb, options = WAYS[way]
    verb(JITTED["first"], parameters(), X, **options).save(tmp_path / "plan.json")
    args = parameters(), X
    gopt.load(tmp_path / "plan.json").apply(JITTED["first"], *args)(*args)
    assert args[0]["a"].is_deleted() and not X.is_deleted()
    with pytest.raises(ValueError, match="program"):
        gopt.load(tmp_path / "plan.json").apply(step, *args)


def test_folded_constants_beside_donated_arguments():
    fn = jax.jit(lambda w, x: x * 2 + (w @ w), donate_argnums=1)
    result = gopt.rewrite(fn, X, X + 1, constant_argnums=0, repeats=1)
    assert result["rewritten, folded"].memory.aliases == X.nbytes
    run, x = result["rewritten, folded"].executable, X + 1
    expected = x * 2 + X @ X
    np.testing.assert_allclose(run.function(run.fold(X), x), expected, rtol=1e-5)
    assert x.is_deleted() and not X.is_deleted()


@pytest.mark.parametrize("name", ["XLA", "XLA, folded", "rewritten, folded"])
def test_donated_constants_outlive_each_call(name):
    fn = jax.jit(lambda each, x: (each["w"] @ x, each["w"] * 2), donate_argnums=0)
    result = gopt.rewrite(fn, {"w": X + 0}, X, constant_argnums=0, repeats=1)
    index = [c.name for c in result.candidates].index(name)
    constants = {"w": X + 0}
    run = replace(result, chosen_folded=index).apply(constants={0: constants})
    for x in (X, X + 1):
        np.testing.assert_allclose(run(x)[0], X @ x, rtol=1e-4, atol=1e-5)
    assert not constants["w"].is_deleted()


def test_a_call_donates_what_nothing_reads_afterwards():
    inner = jax.jit(lambda p, x: p * 2 + x, donate_argnums=0)
    for fn, donated in {
        (lambda p, x: inner(p, x)): True,
        (lambda p, x: inner(p, jnp.sin(p))): True,
        jax.jit(lambda p, x: (p * 2 + x, p), donate_argnums=0): True,
        (lambda p, x: jnp.cos(p) * inner(p, x)): True,
        (lambda p, x: inner(p, x) * p): False,
        (lambda p, x: inner(inner(p, x), p)): False,
    }.items():
        assert gopt.trace(fn, X, X).program.donated == (donated, False)


def test_donations_of_both_kinds_add_up():
    fn = jax.jit(lambda x, y: (x + 1, y * 2), donate_argnums=0)
    result = gopt.schedule(fn, X, X, donate_argnums=1, evaluations=3)
    assert result.program.donated == (True, True)
    assert result.before.memory.aliases == 2 * X.nbytes
    assert gopt.trace(fn, X, X).program.donated == (True, False)


def weak(x, s):
    return {
        "literals": (2.0, 1, True, 1j),
        "given": s,
        "computed": [s * 2, s + 1, jnp.sin(s)],
        "broadcast": jnp.broadcast_to(2.0, (3,)) * 3.0,
        "full": lax.full((2,), 3.0),
        "mixed": x * s,
        "loop": lax.fori_loop(0, 3, lambda _, c: c * 2, s),
        "strong": jnp.asarray(1),
        "captured": np.arange(2),
        "sum": jnp.sum(x) * 0 + 1,
        "branch": lax.cond(jnp.sum(x) > 0, lambda: 1.0, lambda: 2.0),
        "scan": lax.scan(lambda c, r: (c + 1, r), s, x),
    }


@pytest.mark.slow
@pytest.mark.parametrize("scalar", [2.0, *slow(3)])
@pytest.mark.parametrize("way", [*WAYS, "stages", "function"])
def test_types_of_results_stay_as_they_are(way, scalar):
    args = X, scalar
    if way == "function":
        apply = gopt.trace(weak, *args).program.as_function()
    elif way == "stages":
        options = {"hardware": "2xh100", "search": "heft", "objective": "makespan"}
        apply = gopt.schedule(weak, *args, **options).apply(devices=2 * jax.devices()[:1])
    else:
        verb, options = WAYS[way]
        apply = verb(weak, *args, **options).apply()
    results = apply(*args)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(results))
    ours, theirs = jax.tree.map(jax.typeof, (results, jax.jit(weak)(*args)))
    assert ours == theirs
    assert {aval.weak_type for aval in jax.tree.leaves(ours)} == {False, True}


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_small_dtypes_go_through_stages(dtype):
    def fn(x, y):
        return [x.T, *(jnp.tanh(y @ y + k) for k in range(3))], x.astype(jnp.float32) @ y

    args = jnp.ones((64, 64), dtype), X
    options = {"hardware": "2xh100", "search": "heft", "objective": "makespan"}
    placed = gopt.schedule(fn, *args, **options).apply(devices=jax.devices()[:2])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), 1e-5),
        placed(*args),
        fn(*args),
    )


def test_folded_programs_donate_single_leaves():
    inner = jax.jit(lambda p, q, w: (p + w @ w, q * 2), donate_argnums=0)
    fn = lambda each, w: inner(each["p"], each["q"], w)  # noqa: E731
    result = gopt.rewrite(fn, {"p": X, "q": X}, X, constant_argnums=1, repeats=1)
    for candidate in result.candidates:
        assert candidate.memory.aliases == X.nbytes
    run, each = result["rewritten, folded"].executable, {"p": X + 0, "q": X + 0}
    np.testing.assert_allclose(run.function(run.fold(X), each)[0], X + X @ X, rtol=1e-4, atol=1e-4)
    assert each["p"].is_deleted() and not each["q"].is_deleted()


def test_arguments_that_only_the_function_keeps_are_no_gain():
    fn = jax.jit(lambda x, y: jnp.tanh(x) * 2, keep_unused=True, donate_argnums=0)
    result = gopt.schedule(fn, X + 0, jnp.ones((512, 512)), evaluations=3)
    assert result.chosen == 0 or "-" not in result.reason


def test_positions_to_donate_may_be_an_array():
    fn = jax.jit(lambda x, y: (x + 1, y + 1))
    result = gopt.schedule(fn, X, X, donate_argnums=np.array([0, 1]), evaluations=3)
    assert result.before.memory.aliases == 2 * X.nbytes
    none = gopt.schedule(fn, X, X, donate_argnums=[], evaluations=3)
    assert none.before.executable.function is fn
