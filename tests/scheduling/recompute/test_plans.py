"""Plans: searches in both orders of the kernels."""

import jax
import jax.numpy as jnp
import pytest

from gopt.cost.recompute.cost import runs_of
from gopt.heuristics.recompute import all_again
from gopt.host.progress import Progress
from gopt.program.program import trace_program
from gopt.scheduling.candidate import kernels_of
from gopt.scheduling.recompute import plans
from gopt.scheduling.recompute.plans import search_plan
from gopt.scheduling.recompute.program import repeatable


@pytest.fixture(scope="module")
def found():
    """Kernels of a step that updates all weights at its end."""

    def step(weights, x):
        def loss(weights):
            h = x
            for w in weights:
                h = h + jnp.tanh(h @ w)
            return jnp.mean(h**2)

        return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]

    shapes = [jax.ShapeDtypeStruct((32, 32), jnp.float32)] * 4
    x = jax.ShapeDtypeStruct((16, 32), jnp.float32)
    program = trace_program(step, shapes, x, donate_argnums=0)
    return repeatable(kernels_of(program, merged=True))


def plan(found, limit):
    return search_plan(found, limit, limit, 200, 0, Progress())


@pytest.mark.slow
def test_the_other_order_is_tried_if_nothing_fits(found):
    assert found.other is not None and found.other.other is None
    alone, other = plan(found._replace(other=None), 1), plan(found.other, 1)
    assert plan(found, 1).packed == min(alone.packed, other.packed)


def test_the_other_order_is_not_tried_if_a_plan_fits(found):
    limit = 2**20
    first = plan(found._replace(other=None), limit)
    assert first.packed <= limit
    assert plan(found._replace(other="never read"), limit).runs == first.runs


@pytest.mark.parametrize(("limit", "expected"), [(1, [2, 3]), (2**20, [2])])
def test_a_third_run_is_tried_if_two_do_not_fit(found, monkeypatch, limit, expected):
    tried = []

    def recorded(*args):
        tried.append(args[3])
        return search(*args)

    search = plans._search
    monkeypatch.setattr(plans, "_search", recorded)
    plan(found._replace(other=None), limit)
    assert tried == expected


def test_superfluous_runs_are_left_out(found, monkeypatch):
    problem = found.problem
    once = runs_of(problem, None)
    again = next(op for op in once if problem.may_repeat[op] and not problem.is_input[op])
    rule = [*once[:-1], again, once[-1]]
    monkeypatch.setattr(plans, "RULES", {"wasteful": lambda problem, budget: rule})
    monkeypatch.setattr(plans, "_search", lambda *_: all_again(problem))
    assert plan(found._replace(other=None), 2**20).runs == once
