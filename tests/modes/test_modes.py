"""Every public function in JAX's modes: 64 bits, no rank promotion, no NaN, no leaks, no warnings.

Modes are entered by context managers, so other tests do not see them. Pure functions are traced in
each mode, and their results have the types of the default mode. Verbs, a search and a policy run in
each mode, with the values of the default mode: integers are exact, and draws are the same.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.scheduling.recompute.search import search as search_runs
from gopt.systems import go, hdp, local_advantage, placeto, regal
from tests.modes import graphs
from tests.modes.graphs import X, graph, model
from tests.modes.policies import POLICIES, SETTINGS, given, order
from tests.modes.pure import PURE, starts
from tests.systems import test_contract as contract
from tests.tiers import slow

MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "x64": lambda: jax.enable_x64(True),
    "rank promotion": lambda: jax.numpy_rank_promotion("raise"),
    "NaN": lambda: jax.debug_nans(True),
    "leaks": jax.checking_leaks,
    "strict promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "warnings": nullcontext,  # they are errors in all modes
}
TRACED = {**PURE, **POLICIES}
LONG = ("go", "hdp", "placeto")  # to compile
ADAM = ("hdp", "placeto")  # strict promotion refuses the Adam of optax, with which they step
QUICK = ["x64", *slow(*(which for which in MODES if which != "x64"))]


@contextmanager
def mode(name: str) -> Iterator[None]:
    """Enter a mode; warnings are errors."""
    with warnings.catch_warnings(), MODES[name]():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def on_host() -> None:
    """Arguments of functions, made once, in the default mode."""
    starts(), order(), graphs.fusion_problem(), graphs.joint_problem()
    for system in SETTINGS:
        given(system)


@cache
def types(name: str) -> Any:
    return jax.eval_shape(TRACED[name])


def assert_equal(found: Any, expected: Any) -> None:
    """Assert equal trees: integers exactly, other numbers closely, with the same dtypes."""

    def compare(ours: Any, theirs: Any) -> None:
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert ours.dtype == theirs.dtype
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        else:
            np.testing.assert_array_equal(ours, theirs)

    jax.tree.map(compare, jax.device_get(found), jax.device_get(expected))


# Types, without compiling. NaN is found only in values.


@pytest.mark.parametrize(
    ("which", "name"),
    [("x64", name) for name in TRACED if name not in LONG]
    + slow(*(("x64", name) for name in LONG))
    + slow(*((which, name) for which in ("rank promotion", "leaks") for name in TRACED))
    + slow(*(("strict promotion", name) for name in TRACED if name not in ADAM)),
)
def test_results_have_the_same_types_in_all_modes(name, which, on_host):
    expected = types(name)
    with mode(which):
        found = jax.eval_shape(lambda: TRACED[name]())  # another function: nothing is cached
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    assert all((ours.shape, ours.dtype) == (theirs.shape, theirs.dtype) for ours, theirs in pairs)


VARIANTS = [(regal, {"network": name}) for name in regal.NETWORKS]
VARIANTS += [(regal, {"head": name}) for name in regal.HEADS]
VARIANTS += [(go, {"superposition": False}), (local_advantage, {}), (hdp, {}), (placeto, {})]


@pytest.mark.parametrize(("system", "changes"), VARIANTS)
@pytest.mark.parametrize("which", QUICK[:2])
def test_new_parameters_have_the_same_types_in_all_modes(system, changes, which, on_host):
    settings, (inputs, _) = replace(SETTINGS[system], **changes), given(system)

    def init() -> Any:
        return system.init(jax.random.key(0), inputs, settings=settings)

    with mode(which):
        shapes = jax.eval_shape(init)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}


# Values.


def hosted() -> Any:
    """Functions that run on the host."""
    producers, sizes = gopt.from_arrays([0], [8], [0], [1], num_ops=2), gopt.Output(8)
    made = gopt.from_ops([gopt.Op(outputs=(sizes,)), gopt.Op(inputs=((0, 0),))])
    one = gopt.prepare(graph(), gopt.unit_rate_devices(2))
    heuristics = [heuristic(one) for heuristic in gopt.HEURISTICS.values()]
    units = gopt.to_bytes(one, one.size), gopt.to_seconds(one, one.op_ticks)
    traced = gopt.trace(model, X, X).graph
    bounds = gopt.heuristics.makespan_bound(one), gopt.heuristics.peak_bound(one)
    again = graphs.recompute_problem()
    least = search_runs(jax.random.key(0), again, budget=0, evaluations=300).best
    return producers, made, gopt.pad(made), one, heuristics, units, traced, bounds, again, least


VERBS: dict[str, Callable[..., gopt.Result]] = {
    "schedule": lambda *args: gopt.schedule(model, *args, evaluations=5, confirm=1),
    "schedule by brkga": lambda *args: gopt.schedule(
        model, *args, search="brkga", evaluations=5, confirm=1
    ),
    "front": lambda *args: gopt.memory_front(model, *args, points=2, evaluations=5).points[-1],
    "fuse": lambda *args: gopt.fuse(model, *args, evaluations=3, repeats=1),
    "rewrite": lambda *args: gopt.rewrite(model, *args, repeats=1),
}


def decided(name: str, path: Any, *args: Any) -> Any:
    """Return the values of a function as a verb decides it, also from a file."""
    result = VERBS[name](*args)
    every = [c.executable.function(*args) for c in result.candidates if c.executable is not None]
    result.save(path)
    return every[0], every, result.apply()(*args), gopt.load(path).apply(model, *args)(*args)


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("which", QUICK)
def test_verbs_keep_values_and_dtypes_in_all_modes(name, which, tmp_path):
    with mode(which):
        own, *found = decided(name, tmp_path / "plan.json", X, X)
    for value in jax.tree.leaves((own, found)):
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, model(X, X), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_verbs_keep_float64(name, tmp_path):
    wide = X.astype(np.float64) + 1e-9 * np.arange(64).reshape(8, 8)
    with mode("x64"):
        own, *found = decided(name, tmp_path / "plan.json", wide, wide)
        expected = np.asarray(jax.jit(model)(wide, wide))
    assert expected.dtype == np.float64
    for value in jax.tree.leaves((own, found)):
        assert value.dtype == np.float64
        np.testing.assert_allclose(value, model(wide, wide), rtol=1e-12, atol=1e-12)


def test_float64_has_eight_bytes():
    narrow = gopt.trace(model, X, X).graph
    with mode("x64"):
        wide = gopt.trace(model, *[X.astype(np.float64)] * 2).graph
        same = gopt.trace(model, X, X).graph
    np.testing.assert_array_equal(wide.size, 2 * np.asarray(narrow.size))
    np.testing.assert_array_equal(same.size, narrow.size)
    assert np.asarray(narrow.size).max() == 4 * X.size


@pytest.mark.small
@pytest.mark.parametrize("run", [hosted, PURE["brkga"], POLICIES["regal"]])
@pytest.mark.parametrize("which", QUICK)
def test_the_host_a_search_and_a_policy_have_the_same_values_in_all_modes(run, which, on_host):
    jitted = run is not hosted
    expected = values(run, jitted)
    with mode(which):
        found = jax.jit(lambda: run())() if jitted else run()
    assert_equal(found, expected)


@cache
def values(run: Callable[[], Any], jitted: bool) -> Any:
    return jax.device_get(jax.jit(run)() if jitted else run())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "name"),  # the other modes decide how functions are traced
    [("x64", name) for name in TRACED if name not in LONG] + [("NaN", name) for name in PURE],
)
def test_all_have_the_same_values(name, which, on_host):
    expected = values(TRACED[name], True)
    with mode(which):
        found = jax.jit(lambda: TRACED[name]())()
    assert_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", contract.SYSTEMS)
def test_systems_train_and_act_in_all_modes_at_once(name):
    if name == "xrlflow":
        pytest.importorskip("gymnasium")
    with mode("x64"), mode("rank promotion"), mode("NaN"):
        case = contract.CASES[name](contract.system_of(name))
        state, batch = case.state, case.batch(0, case.state)
        state, _ = case.step(state, jax.random.key(0), batch, settings=case.settings)
        action = case.act(state.params, case.settings)
    leaves = jax.tree.leaves(jax.device_get((state.params, action)))
    assert all(leaf.dtype.itemsize <= 4 for leaf in map(np.asarray, leaves))


def test_all_public_functions_are_here():
    """A name that is read anywhere in this folder counts as called."""
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    for module in (gopt, gopt.losses):
        own = [n for n, f in vars(module).items() if inspect.isfunction(f) and n[0] != "_"]
        name = module.__name__.rpartition(".")[2]
        assert own and [n for n in own if f"{name}.{n}" not in source] == []
    assert {name.split(",")[0] for name in POLICIES} == {*contract.SYSTEMS} - {"xrlflow"}


def test_no_mode_is_left_on():
    with mode("x64"), mode("rank promotion"):
        assert jnp.ones(1).dtype == np.float64
    assert (jnp.ones((2, 2)) + jnp.ones(2)).dtype == np.float32
