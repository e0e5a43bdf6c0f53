"""From a function to the fastest of several programs that compute the same."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.decisions import load
from gopt.fusion import api
from gopt.fusion.api import fuse
from gopt.fusion.search import search
from gopt.measure import isolated_kernel, kernel_times
from gopt.measure.comparison import Choice
from gopt.measure.timing import median_ratio
from gopt.program.program import trace_program
from gopt.search import guided
from tests.measure.row_files import stored_rows

pytestmark = pytest.mark.small

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((32, 48), np.float32))
W = jnp.asarray(RNG.standard_normal((48, 48), np.float32))


def step(w, x):
    def loss(w):
        y = jnp.tanh(x @ w)
        return jnp.mean((y - jnp.mean(y, 1, keepdims=True)) ** 2 * jnp.exp(-y))

    value, gradient = jax.value_and_grad(loss)(w)
    return w - 0.1 * gradient, value


OWN = [f"XLA{kind}{how}" for kind in ("", ", simplified") for how in ("", ", memory scheduler")]


@pytest.fixture(scope="module")
def times(tmp_path_factory):
    return tmp_path_factory.mktemp("times") / "times.sqlite"


@pytest.fixture(scope="module")
def found(times):
    return fuse(step, W, X, evaluations=6, repeats=3, times=times)


def test_all_programs_have_the_values_of_the_function(found):
    names = [candidate.name for candidate in found.candidates]
    assert names[:5] == [*OWN, "XLA's kernels, apart"]
    for candidate in found.candidates:
        for ours, theirs in zip(candidate.executable.function(W, X), step(W, X), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_table_has_a_line_for_each_and_says_what_was_chosen(found):
    lines = str(found).splitlines()
    assert len(lines) == 3 + len(found.candidates)
    assert lines[-1].startswith(f"chosen: {found.after.name}")
    assert found.apply()(W, X)[0].shape == W.shape
    assert (
        repr(found)
        == f"<Result of gopt.fuse: {found.after.name!r} of {len(found.candidates)} candidates>"
    )
    assert all(c.name in found._repr_html_() for c in found.candidates if "'" not in c.name)
    assert [row["name"] for row in found.table()] == [c.name for c in found.candidates]
    for line, candidate in zip(lines[2:], found.candidates, strict=False):
        assert line.startswith(candidate.name)
        kernels = candidate.decision.kernels
        assert kernels is None or f"{candidate.name} {kernels}" in lines[0]


def test_the_search_never_loses_what_it_has(found):
    assert len(found.report.searched) == 6 and not found.report.failures
    assert (np.diff(found.report.searched) <= 0).all()
    starts = [
        c.predicted for c in found.candidates if c.predicted is not None and c.name != "searched"
    ]
    assert found.report.searched[0] == min(starts)


def test_the_plot_shows_the_search(found):
    (axes,) = found.plot().axes
    assert axes.get_ylabel() == "time, ms" and axes.get_xlabel() == "evaluations"


@pytest.mark.usefixtures("found")
def test_kernels_that_were_timed_are_not_timed_again(times, monkeypatch):
    rows = stored_rows(times)
    monkeypatch.setattr(kernel_times.KernelTimes, "_learn", lambda *_: pytest.fail("timed again"))
    fuse(step, W, X, evaluations=1, repeats=1, times=times)
    assert stored_rows(times) == rows != {}


@pytest.mark.slow
def test_a_kernel_that_fails_is_told_and_the_others_go_on(monkeypatch):
    timed, tried = isolated_kernel.timed, []

    def fails(function, calls, *, longest=math.inf):
        if longest < math.inf:  # a kernel
            tried.append(function)
            if len(tried) == 2:
                raise TimeoutError("too long")
        return timed(function, calls, longest=longest)

    monkeypatch.setattr(isolated_kernel, "timed", fails)
    result = fuse(step, W, X, evaluations=3, repeats=1)
    assert list(result.report.failures.values()) == ["TimeoutError: too long"]
    assert "1 kernels failed" in str(result)
    np.testing.assert_allclose(result.apply()(W, X)[0], step(W, X)[0], rtol=1e-4, atol=1e-5)


def test_in_the_place_of_shapes_there_are_numbers_that_differ():
    shape = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    args = shape, {"x": shape}
    program = trace_program(lambda *args: args, *args)
    first, second = api._given(program.as_function(), args, program)
    assert (first != second["x"]).all()


@pytest.mark.slow
def test_shapes_stand_for_arrays_and_arguments_may_be_donated():
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (W, X)]
    result = fuse(step, *shapes, evaluations=1, repeats=1, donate_argnums=0)
    w = jnp.copy(W)
    result.candidates[-1].executable.function(w, X)
    assert w.is_deleted()


@pytest.mark.parametrize(
    ("function", "args"),
    [(lambda x: x @ x, (W,)), (lambda x: x, (W,)), (lambda: 3.0, ())],
)
def test_what_cannot_be_fused_has_the_programs_of_xla_only(function, args):
    result = fuse(function, *args, repeats=1)
    assert [c.name for c in result.candidates] == OWN[:2]  # nor is there anything to simplify
    np.testing.assert_allclose(result.apply()(*args), function(*args), rtol=1e-6)
    assert str(result).count("\n") == 4
    assert result.report.searched.shape == (0,)
    with pytest.raises(ValueError, match="nothing was searched"):
        result.plot()


def test_what_is_spread_over_devices_is_refused():
    mesh = jax.make_mesh((2,), ("i",))
    x = jax.device_put(W, jax.NamedSharding(mesh, jax.P("i")))
    with pytest.raises(ValueError, match=r"args\[0\] is on 2 devices, expected one"):
        fuse(jnp.tanh, x)
    with pytest.raises(ValueError, match="captured array 0 is on 2 devices"):
        fuse(lambda y: y + x, W)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"evaluations": 0}, ValueError, "evaluations is 0: expected a whole number, 1 at least"),
        ({"evaluations": 2.5}, ValueError, "evaluations is 2.5"),
        ({"repeats": 0}, ValueError, "repeats is 0: expected a whole number, 1 at least"),
        ({"repeats": "many"}, ValueError, "repeats is 'many'"),
        ({"weights": "nowhere.npz"}, FileNotFoundError, "nowhere.npz"),
        ({"weights": __file__}, ValueError, "test_api.py does not hold weights"),
        ({"times": __file__}, ValueError, "test_api.py is not a SQLite file"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_traced(options, error, match):
    with pytest.raises(error, match=match):
        fuse(lambda _: pytest.fail("it was traced"), W, **options)


@pytest.fixture
def fused_result(monkeypatch):
    """A result in which the configuration of instruction fusion was chosen."""
    monkeypatch.setattr(
        api, "choose", lambda times: Choice("XLA's kernels, apart", "it is significantly faster")
    )
    return fuse(step, W, X, evaluations=1, repeats=1)


@pytest.mark.slow
def test_the_chosen_program_is_measured_without_options_too(fused_result):
    *_, nested = fused_result.candidates
    assert nested.name == "XLA's kernels, apart, nested"
    assert nested.times is not None and nested.memory is not None
    assert nested.executable.function is fused_result.apply(nested=True)
    assert f"chosen: {fused_result.after.name} (it is" in str(fused_result)


@pytest.mark.slow
def test_tracers_have_the_same_equations_and_one_warning(fused_result):
    function = fused_result.apply()
    inside, nested = (jax.jit(f) for f in (fused_result.apply(), fused_result.apply(nested=True)))
    with pytest.warns(UserWarning, match="without the compiler options"):
        assert str(inside.trace(W, X).jaxpr) == str(nested.trace(W, X).jaxpr)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = jax.jit(function)(W, X)
        gradient = jax.grad(lambda x: function(W, x)[1])(X)
        batch = jax.vmap(function, (None, 0))(W, X[None])
    assert [w.category for w in caught] == [UserWarning]
    assert "without the compiler options" in str(caught[0].message)
    assert caught[0].filename == __file__ or "jax" in caught[0].filename
    close(value, step(W, X))
    close(gradient, jax.grad(lambda x: step(W, x)[1])(X))
    close(jax.tree.map(lambda x: x[0], batch), step(W, X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(jax.jit(fused_result.apply(nested=True))(W, X), step(W, X))


@pytest.mark.slow
def test_what_was_fused_is_saved_and_loaded(fused_result, tmp_path):
    path = tmp_path / "fusion.json"
    fused_result.save(path)
    plan = load(path)
    assert plan == fused_result.plan and "\n" not in repr(plan)
    function = plan.apply(step, W, X)
    assert function.lower(W, X).as_text() == fused_result.apply().lower(W, X).as_text()
    close(function(W, X), step(W, X))
    with pytest.raises(ValueError, match="the plan is of another program"):
        plan.apply(lambda w, x: w, W, X)


@pytest.mark.slow
def test_what_was_fused_can_be_scheduled(fused_result):
    with pytest.warns(UserWarning, match="without the compiler options"):
        result = gopt.schedule(fused_result.apply(), W, X, evaluations=10, confirm=1)
    close(result.apply()(W, X), step(W, X))


def test_a_fused_function_has_no_constants_nor_devices(found):
    with pytest.raises(ValueError, match="constants are given: expected none"):
        found.apply(constants={0: W})
    with pytest.raises(ValueError, match="devices are given: expected none"):
        found.apply(devices=jax.devices())


def close(ours, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), ours, theirs)


def test_the_interval_of_a_median_holds_it_19_times_of_20():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        _, low, high = median_ratio(np.exp(rng.standard_normal(20)), np.ones(20))
        hits += low <= 1 <= high
    assert 0.93 < hits / 400 < 0.99  # 0.959 by the binomial distribution


def test_of_few_turns_there_is_no_interval_of_the_median():
    assert median_ratio(np.arange(1.0, 7), np.ones(6)) == (3.5, 1, 6)
    assert median_ratio(np.arange(1.0, 6), np.ones(5)) == (3, 0, np.inf)


def test_a_search_by_measured_times_takes_what_is_faster_and_passes_what_failed():
    def cost(fuse):
        return np.inf if fuse[2] else 5.0 - 2 * fuse[0] - fuse[1]

    found = search(
        jax.random.key(0),
        cost,
        np.zeros(3, bool),
        lambda decisions: jnp.zeros(3),
        evaluations=20,
        settings=guided.Settings(top_share=1.0, rest_share=0.0),
    )
    assert found.fuse.tolist() == [True, True, False]
    assert found.seconds.shape == (20,) and found.seconds[0] == 5 and found.seconds[-1] == 2


@pytest.mark.slow
@pytest.mark.parametrize("start", [0, 1])
def test_a_search_by_measured_times_makes_the_steps_of_that_by_costs(start):
    rng = np.random.default_rng(0)
    weights = rng.integers(-9, 10, 12)
    cold = jnp.asarray(rng.standard_normal(12), jnp.float32)
    tried = []

    def cost(fuse):
        tried.append(fuse.tolist())
        failed = not fuse[:2].any() or fuse[4:7].all()
        return np.inf if failed else float(200 + weights @ fuse)

    def costs(decisions):
        shape = jax.ShapeDtypeStruct(decisions.shape[:1], jnp.float32)
        return jax.pure_callback(
            lambda rows: np.array([cost(row > 0) for row in rows], np.float32), shape, decisions
        )

    def guide(decisions):  # what it says changes with the decisions
        return jnp.where(jnp.arange(12) < 11, cold * (1 - 2 * decisions), -jnp.inf)

    def swap(key, decisions, node):
        other = jax.random.randint(key, (), 0, 11)
        return decisions.at[node].set(decisions[other]).at[other].set(decisions[node])

    options = {
        "evaluations": 60,
        "settings": guided.Settings(
            top_share=0.4, rest_share=0.5, patience_share=0.2, guide_interval=7
        ),
        "moves": (guided.flip, swap),
    }
    first = np.zeros(12, np.int32)
    first[0] = start  # 0: of infinite cost
    key = jax.random.key(3)
    measured = search(key, cost, first > 0, guide, **options)
    steps = tried.copy()
    tried.clear()
    result = guided.minimize(key, costs, jnp.asarray(first), guide, **options)
    np.testing.assert_array_equal(measured.seconds, result.history)
    np.testing.assert_array_equal(measured.fuse, result.decisions > 0)
    assert steps == tried and len(steps) == 60
    assert np.isinf(measured.seconds[0]) == (start == 0)
    later = [np.isinf(cost(np.array(step))) for step in steps[20:]]
    assert any(later) and len(set(measured.seconds.tolist())) > 4


def test_a_search_by_measured_times_starts_somewhere():
    with pytest.raises(ValueError, match="evaluations is 0"):
        search(jax.random.key(0), lambda _: 1.0, np.zeros(2, bool), lambda d: d, evaluations=0)
