"""`gopt.schedule(memory=...)`: programs within a budget of bytes."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.fusion import KernelTimes
from gopt.host.progress import Progress
from gopt.measure.timing import Memory, memory
from gopt.plots.units import parse_bytes
from gopt.scheduling import budget as budgets
from gopt.scheduling.budget import budget_bytes
from gopt.scheduling.target import target_of
from tests.tiers import slow

pytestmark = pytest.mark.optimized
WIDTH = 64


def step(weights, x):
    """A training step of six layers whose activations are large beside the weights."""

    def loss(weights):
        h = x
        for w in weights:
            h = h + jnp.tanh(h @ w) * jnp.exp(-(h**2))
        return jnp.mean(h**2)

    return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]


def arguments(rows=4096):
    keys = jax.random.split(jax.random.key(0), 7)
    weights = [jax.random.normal(k, (WIDTH, WIDTH)) / 8 for k in keys[:6]]
    return weights, jax.random.normal(keys[6], (rows, WIDTH))


def schedule(budget, **options):
    options = {"evaluations": 3000, "progress": False, "donate_argnums": 0} | options
    return gopt.schedule(step, *arguments(), memory=budget, **options)


@pytest.fixture(scope="module")
def half():
    return schedule(0.5)


def test_a_budget_is_kept_by_the_account_of_xla(half):
    own = half.before.memory
    assert half.report.fits(half.after)
    assert half.after.memory.total <= half.report.budget < own.total
    assert memory(half.apply().lower(*arguments()).compile()) == half.after.memory
    least = min(
        half.before.memory.without_arguments, half["XLA, memory scheduler"].memory.without_arguments
    )
    assert half.report.budget == own.arguments + least // 2


def check_values(function, rows=4096):
    expected = jax.jit(step)(*arguments(rows))
    for a, b in zip(function(*arguments(rows)), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_values_are_equal(half):
    check_values(half.apply())


def test_a_plan_is_saved_and_applied_again(half, tmp_path):
    half.save(tmp_path / "plan.json")
    fn = gopt.load(tmp_path / "plan.json").apply(step, *arguments(), donate_argnums=0)
    assert memory(fn.lower(*arguments()).compile()) == half.after.memory
    runs = half.plan.runs
    assert len(set(runs)) < len(runs)  # something runs again


def test_the_table_and_the_plot(half):
    text = str(half)
    assert "budget" in text.splitlines()[0]
    assert f"chosen: {half.after.name} (it fits" in text
    assert half.plot().axes
    assert half.after.predicted >= half.report.least_seconds > half.before.predicted
    assert "within the budget, these kernels take at least" in text


def test_without_options_it_is_a_row(half):
    nested = half["recomputed, nested"]
    compiled = jax.jit(half.apply(nested=True), donate_argnums=0).lower(*arguments()).compile()
    assert memory(compiled) == nested.memory


def test_the_program_of_xla_is_kept_if_it_fits():
    result = schedule("1 GiB")
    assert result.after.name == "XLA"
    assert "fits" in result.reason


def test_a_loop_is_named_if_it_is_the_largest_kernel():
    def looped(x):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c) * c, c), x, None, length=9)[1]

    with pytest.raises(ValueError, match="a loop is one kernel, and max_trips= unrolls"):
        gopt.schedule(looped, jnp.ones((64, 64)), memory="32 KiB", progress=False)


def test_captured_arrays_are_named():
    captured = jnp.ones((128, 128))
    result = gopt.schedule(lambda x: x @ captured, captured, memory="1 GiB", progress=False)
    assert "captured arrays are not counted: 64.00 KiB" in str(result)


def test_a_function_without_kernels_has_nothing_to_run_again():
    with pytest.warns(UserWarning, match="nothing that was found fits"):
        result = gopt.schedule(lambda x: x, jnp.ones(1000), memory=5000, progress=False)
    assert all("recomputed" not in candidate.name for candidate in result.candidates)


@pytest.mark.slow
def test_what_nothing_fits_says_how_near_it_comes():
    with pytest.warns(UserWarning, match="nothing that was found fits: .* above the budget"):
        result = schedule("8.2 MiB", evaluations=300)
    assert not result.report.fits(result.after)
    assert "nothing that was found fits" in result.reason
    assert "above the budget" in str(result)


def test_less_than_a_kernel_needs_is_refused_with_that_number():
    with pytest.raises(
        ValueError, match=r"memory is '2 MB', 1\.91 MiB with arguments: these kernels need"
    ):
        schedule("2 MB")


@pytest.mark.slow
def test_times_may_be_measured(tmp_path):
    times = KernelTimes(tmp_path / "times.sqlite", rounds=2)
    result = schedule(0.5, cost=times, evaluations=300)
    assert "time: sum of kernels, each measured on this CPU" in str(result)
    once = times.of_kernels(
        result.before.decision.kernels.source, result.before.decision.kernels.groups
    )
    np.testing.assert_allclose(result.before.predicted, once.sum(), rtol=1e-6)
    assert result.after.predicted > result.before.predicted
    assert "time by the model" in str(schedule("1 GiB", cost=times))  # XLA's own program fits
    front = gopt.memory_front(
        step, *arguments(), points=2, evaluations=100, cost=times, progress=False
    )
    assert "time, measured" in str(front)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": "roofline"}, "cost is 'roofline': expected 'model', 'measured' or KernelTimes"),
        ({"cost": None}, "cost is None: expected 'model', 'measured' or KernelTimes"),
    ],
)
def test_bad_costs(options, message):
    with pytest.raises(ValueError, match=message):
        schedule(0.5, **options)
    with pytest.raises(ValueError, match="cost is given: expected none without memory="):
        gopt.schedule(step, *arguments(), **options)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("30", "is no number of bytes"),
        ("30 GiBs", "is no number of bytes"),
        ("0 GiB", "is no number of bytes"),
        ("-1 GiB", "is no number of bytes"),
        (0, "memory is 0: expected a positive whole number"),
        (-5, "memory is -5: expected a positive whole number"),
        (1.5, r"memory is 1\.5: expected"),
        (float("nan"), "memory is nan: expected"),
        (True, "memory is True: expected"),
        ([1], r"memory is \[1\]: expected"),
    ],
)
def test_bad_budgets(budget, message):
    with pytest.raises(ValueError, match=message):
        schedule(budget)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "peak_memory"}, "objective is given: expected none beside memory="),
        ({"hardware": "2xh100"}, "hardware is given"),
        ({"search": "heft"}, "search is 'heft': expected 'best'"),
        ({"evaluations": 0}, "evaluations is 0"),
    ],
)
def test_arguments_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        schedule(0.5, **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 GiB", 30 * 2**30),
        ("1.5MB", 1_500_000),
        ("7b", 7),
        (" .5 kib ", 512),
        ("2 TB", 2 * 10**12),
    ],
)
def test_texts_of_bytes(text, expected):
    assert parse_bytes(text) == expected


def test_a_share_is_of_the_better_program_without_arguments():
    own = [Memory(100, 50, 1000, 50), Memory(100, 50, 400, 50)]
    assert budget_bytes(0.5, own) == 100 + 200
    assert budget_bytes(np.float32(0.5), own) == 300
    assert budget_bytes(np.int64(7), own) == 7


@pytest.mark.parametrize("share", slow(0.9, 0.7, 0.5, 0.35))
def test_budgets(share):
    result = schedule(share, evaluations=20_000)
    assert result.report.fits(result.after)


def tries(monkeypatch, needs, segments=150):
    """Return the bytes that searches aimed at, and the programs, for a budget of 100 bytes.

    XLA's own program needs 200.

    Args:
      monkeypatch: replaces the searches and XLA.
      needs: bytes by the model to bytes by XLA.
      segments: bytes of a plan of segments by the model.
    """
    asked = []

    def plan(found, limit, *_):
        asked.append(limit)
        return SimpleNamespace(packed=limit)

    def compiled(name, plan, args, *, is_free):
        used = SimpleNamespace(without_arguments=needs(plan.packed))
        return SimpleNamespace(name=name, is_free=is_free, memory=used)

    monkeypatch.setattr(budgets, "search_plan", plan)
    monkeypatch.setattr(budgets, "segments_plan", lambda found: SimpleNamespace(packed=segments))
    monkeypatch.setattr(budgets, "compiled_plan", compiled)
    used = SimpleNamespace(arguments=0, without_arguments=200)
    own = SimpleNamespace(memory=used, decision=SimpleNamespace(peak=(200,)))
    report = budgets.BudgetReport(100, 0, target_of(None))
    return asked, list(budgets.recomputed((), None, report, own, 10, 0, Progress()))


def test_tries_stay_between_what_fits_and_what_does_not(monkeypatch):
    asked, found = tries(monkeypatch, lambda packed: 120 if packed > 95 else 60)  # jumps over 100
    assert len(found) == budgets.COMPILATIONS
    assert asked == [100, 82, 91]


def test_a_plan_that_needs_far_too_much_is_said_in_the_other_way(monkeypatch):
    _, found = tries(monkeypatch, lambda packed: 3 * packed)
    assert [each.is_free for each in found[:2]] == [False, True]
    assert not any("segments" in each.name for each in found)


@pytest.mark.parametrize("segments", [20, 150])  # fit, and do not
def test_where_xla_orders_kernels_segments_are_tried_once(monkeypatch, segments):
    monkeypatch.setattr(budgets, "is_order_free", lambda target: True)
    asked, found = tries(monkeypatch, lambda packed: 3 * packed, segments)
    assert len(found) == budgets.COMPILATIONS
    assert len(asked) == budgets.COMPILATIONS - 1
    assert all(each.is_free for each in found)
    assert [k for k, each in enumerate(found) if "segments" in each.name] == [1]


def test_segments_are_not_tried_if_the_first_program_is_near(monkeypatch):
    monkeypatch.setattr(budgets, "is_order_free", lambda target: True)
    _, found = tries(monkeypatch, lambda packed: 1.05 * packed)
    assert not any("segments" in each.name for each in found)
