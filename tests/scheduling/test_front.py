"""`gopt.memory_front`: programs from the fastest to the smallest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.cost.recompute.cost import cost_of_runs, runs_of
from gopt.measure.timing import memory
from gopt.program.program import trace_program
from gopt.scheduling.candidate import kernels_of
from gopt.scheduling.recompute.policies import POLICIES, backward_ops, choices_of
from gopt.scheduling.recompute.program import repeatable
from tests.scheduling.test_budget import arguments, step

pytestmark = pytest.mark.optimized


@pytest.fixture(scope="module")
def front():
    return gopt.memory_front(
        step, *arguments(), donate_argnums=0, points=4, evaluations=1500, progress=False
    )


def test_no_point_beats_another_and_others_are_beaten(front):
    figures = [(p.after.memory.total, p.after.predicted) for p in front.points]
    assert figures == sorted(figures, reverse=True)
    times = [time for _, time in figures]
    assert times == sorted(times)
    for other in front.others:
        mine = other.after.memory.total, other.after.predicted
        assert any(size <= mine[0] and time <= mine[1] for size, time in figures)


def test_points_run_and_have_the_bytes_that_they_say(front):
    smallest, expected = front.points[-1], jax.jit(step)(*arguments())
    fn = smallest.apply()
    assert memory(fn.lower(*arguments()).compile()) == smallest.after.memory
    for a, b in zip(fn(*arguments()), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert smallest.after.memory.total < 0.6 * front.points[0].after.memory.total


def test_the_programs_of_xla_and_the_policies_are_compared(front):
    names = {p.after.name for p in (*front.points, *front.others)}
    assert {"XLA", "XLA, memory scheduler", "every kernel once"} <= names
    assert {f"policy {name}" for name in POLICIES} <= names
    text = str(front)
    assert all(name in text for name in names)
    assert len(front.plot().axes) == 1


def test_within_returns_the_fastest_point_that_fits(front):
    sizes = [p.after.memory.total for p in front.points]
    assert front.within(sizes[1]) is front.points[1]
    assert front.within(10**12) is front.within("1 TB") is front.points[0]
    with pytest.raises(ValueError, match=r"memory is 0\.5: expected a whole number"):
        front.within(0.5)
    with pytest.raises(ValueError, match=f"the smallest point needs {sizes[-1]} bytes"):
        front.within(1)


def test_points_are_saved_and_loaded(front, tmp_path):
    front.points[-1].save(tmp_path / "plan.json")
    fn = gopt.load(tmp_path / "plan.json").apply(step, *arguments(), donate_argnums=0)
    assert memory(fn.lower(*arguments()).compile()) == front.points[-1].after.memory


def test_bad_arguments():
    with pytest.raises(ValueError, match="points is 1: expected a whole number, 2"):
        gopt.memory_front(step, *arguments(), points=1)
    with pytest.raises(ValueError, match="evaluations is 0"):
        gopt.memory_front(step, *arguments(), evaluations=0)
    with pytest.raises(ValueError, match="no kernel"):
        gopt.memory_front(lambda x: x, jnp.ones(3))


def test_policies_hold_what_they_say():
    program = trace_program(step, *arguments(), donate_argnums=0)
    found = repeatable(kernels_of(program, merged=True))
    backward = backward_ops(found)
    assert backward.any() and not backward.all()
    peaks = {}
    for name, policy in POLICIES.items():
        choices = choices_of(found, policy)
        held = [op for op in range(len(found.traced.equations)) if choices.splits[op, 0] == 0]
        runs = runs_of(found.problem, choices)
        again = {op for op in runs if runs.count(op) > 1}
        assert again.isdisjoint(held)
        assert not any(backward[op] for op in again)
        peaks[name] = cost_of_runs(found.problem, runs)
    once = cost_of_runs(found.problem, runs_of(found.problem, None))
    assert peaks["nothing"][0] > peaks["dots"][0] > once[0]


def test_without_a_gradient_there_are_no_policies():
    program = trace_program(lambda x: jnp.sin(x @ x), jnp.ones((4, 4)))
    found = repeatable(kernels_of(program, merged=True))
    assert choices_of(found, POLICIES["nothing"]) is None
