"""Rules for what to run again, on chains, random programs and edge cases."""

import math

import numpy as np
import pytest

from gopt.cost.recompute.cost import cost_of_runs, runs_of
from gopt.cost.recompute.problem import prepare
from gopt.graph import padding
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics.recompute import (
    RULES,
    all_again,
    best_segments,
    dtr,
    greedy,
    segmented,
    square_root,
    without_superfluous,
)
from gopt.heuristics.recompute.bound import LowerBounds
from gopt.heuristics.recompute.residuals import halves
from tests import strategies
from tests.heuristics.recompute.graphs import ONE, chain_problem, random_training
from tests.strategies import NASTY, SMALL
from tests.tiers import slow

pytestmark = pytest.mark.optimized


def costs(problem, choices):
    return cost_of_runs(problem, runs_of(problem, choices))


def once(problem):
    return cost_of_runs(problem, in_order(problem))


def in_order(problem):
    ops = range(int(problem.num_ops))
    return sorted(ops, key=lambda op: not problem.is_input[op])


def test_the_turning_point_of_a_chain_lies_between_its_halves():
    half = halves(chain_problem(9))
    assert half.turn == 9
    assert half.residual.sum() == 9


def test_segments_of_a_small_chain():
    problem = chain_problem(9)
    # Three segments: 2 and 5 are held, and the last segment; the others run again when needed.
    second = [*range(9), 9, 10, 11, 12, 3, 4, 13, 14, 15, 0, 1, 16, 17]
    tick = int(problem.ticks[0])
    assert runs_of(problem, segmented(problem, 3)) == second
    assert once(problem) == (18 * tick, 10)
    assert costs(problem, segmented(problem, 3)) == (22 * tick, 6)
    assert runs_of(problem, square_root(problem)) == second
    assert runs_of(problem, segmented(problem, 1)) == list(range(18))


@pytest.mark.parametrize("n", [16, 64, 256])
def test_square_root_segments_need_square_root_bytes(n):
    problem = chain_problem(n)
    ticks, peak = costs(problem, square_root(problem))
    assert peak <= 2 * math.isqrt(n) + 2
    assert ticks <= 1.5 * once(problem)[0]


def test_segments_are_larger_where_only_a_share_of_them_counts():
    problem = chain_problem(64)
    ticks = [costs(problem, square_root(problem, inside=share))[0] for share in (0.25, 1.0)]
    assert once(problem)[0] < ticks[0] < ticks[1]
    assert costs(problem, square_root(problem, inside=0.0)) == once(problem)


def test_of_numbers_of_segments_that_are_near_the_smallest_is_taken():
    problem = chain_problem(64)
    assert costs(problem, square_root(problem))[1] == 16
    ticks, peak = costs(problem, square_root(problem, near=1.3))
    assert 16 < peak <= 1.3 * 16
    assert ticks < costs(problem, square_root(problem))[0]


def test_the_best_number_of_segments_is_the_fastest_that_fits():
    problem = chain_problem(16)
    assert costs(problem, best_segments(problem, 17)) == once(problem)
    for budget in (10, 12):
        ticks, peak = costs(problem, best_segments(problem, budget))
        assert peak <= budget
        for count in range(1, 9):
            other = costs(problem, segmented(problem, count))
            assert other[1] > budget or other[0] >= ticks
    least = min(costs(problem, segmented(problem, count))[1] for count in range(1, 9))
    assert costs(problem, best_segments(problem, 3))[1] == least


def test_no_segments_are_refused():
    with pytest.raises(ValueError, match="count is 0: expected 1 at least"):
        segmented(chain_problem(3), 0)


def test_all_again_runs_the_first_half_twice():
    problem = chain_problem(4)  # op 3 is held for its only reader, op 4
    assert runs_of(problem, all_again(problem)) == [0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7]


def random_problem(seed):
    rng = np.random.default_rng(seed)
    if seed % 2:
        return random_training(rng, int(rng.integers(1, 10)), SMALL), rng
    n = int(rng.integers(1, SMALL.ops - 1))
    sizes = rng.choice(list(strategies.SIZES))
    graph = strategies.random_graph(rng, n, rng.choice([0.05, 0.2, 0.6]), sizes)
    pairs = zip(graph.producer[graph.tensor].tolist(), graph.consumer.tolist(), strict=True)
    waits = {pair for pair in pairs if rng.random() < 0.1} if sizes == "zero" else ()
    problem = prepare(
        padding.pad(graph, SMALL),
        ONE,
        max_runs=2,
        seconds=rng.integers(0, 9, n).astype(float),
        may_repeat=rng.random(n) < rng.choice([0.5, 1.0]),
        waits=waits,
    )
    return problem, rng


def check_rules(problem, budget):
    ticks, peak = once(problem)
    bounds = LowerBounds(problem)
    for name, rule in RULES.items():
        runs = rule(problem, budget)
        if runs is None:
            assert name == "DTR"
            continue
        found = cost_of_runs(problem, runs)  # raises if the runs are no program
        assert found[0] >= ticks, name
        assert found[1] >= bounds.peak, name
        assert found[0] >= bounds.ticks(found[1]), name
        if name == "DTR":
            assert found[1] <= budget
        if name in ("greedy", "best segments"):
            assert found[1] <= max(peak, budget), name
            if peak <= budget:
                assert found == (ticks, peak), name


@pytest.mark.parametrize("seed", [*range(30), *slow(*range(30, 600))])
def test_random_programs(seed):
    problem, rng = random_problem(seed)
    peak = once(problem)[1]
    for budget in {0, int(peak * rng.random()), int(peak * 0.9), peak}:
        check_rules(problem, budget)


@pytest.mark.parametrize("name", NASTY)
def test_nasty_programs(name):
    graph = NASTY[name]()
    problem = prepare(padding.pad(graph, SMALL), ONE, max_runs=2, seconds=np.ones(graph.num_ops))
    peak = once(problem)[1]
    for budget in {0, peak // 2, peak, peak + 5}:
        check_rules(problem, budget)


def test_nothing_runs_again_where_nothing_may():
    graph = strategies.random_graph(np.random.default_rng(5), 20, 0.2)
    problem = prepare(padding.pad(graph, SMALL), ONE, max_runs=2, may_repeat=np.zeros(20, bool))
    for name, rule in RULES.items():
        runs = rule(problem, once(problem)[1])
        assert runs == in_order(problem), name


def test_greedy_fits_an_easy_budget_and_undoes_what_it_does_not_need():
    problem = chain_problem(16)
    tick = int(problem.ticks[0])
    for budget, extra in ((17, 0), (16, 1), (15, 2)):
        ticks, peak = costs(problem, greedy(problem, budget))
        assert peak <= budget
        assert ticks <= (32 + extra) * tick
    assert costs(problem, greedy(problem, 9))[1] <= 9


def test_greedy_stops_at_its_evaluations():
    problem = chain_problem(16)
    choices = greedy(problem, 9, evaluations=1)
    assert costs(problem, choices) == once(problem)
    few = costs(problem, greedy(problem, 9, evaluations=300))[1]
    assert 9 < few < once(problem)[1]


def test_dtr_runs_once_if_memory_suffices_and_keeps_a_budget():
    problem = chain_problem(64)
    assert dtr(problem, 65) == list(range(128))
    runs = dtr(problem, 20)
    assert cost_of_runs(problem, runs)[1] <= 20
    assert len(runs) <= 2 * 128
    assert dtr(problem, 20, most_runs=1) is None
    assert dtr(problem, 2) is None  # an op, and what it reads and makes


def test_dtr_runs_an_op_more_than_twice_for_little_memory():
    problem = chain_problem(64)
    runs = dtr(problem, 9)
    assert runs is not None
    assert max(np.bincount(runs)) > 2
    assert cost_of_runs(problem, runs)[1] <= 9


@pytest.mark.parametrize("seed", [*range(20), *slow(*range(20, 300))])
def test_a_rule_has_no_more_runs_and_fits_without_superfluous_ones(seed):
    problem, rng = random_problem(seed)
    budget = int(once(problem)[1] * rng.uniform(0.6, 1.2))
    runs = dtr(problem, budget)
    if runs is None or cost_of_runs(problem, runs)[1] > budget:
        runs, budget = in_order(problem), once(problem)[1]
    # Ops that run again at the end, unread.
    again = [op for op in runs if problem.may_repeat[op] and not problem.is_input[op]]
    wasteful = [*runs, *again]
    more = max(budget, cost_of_runs(problem, wasteful)[1])
    left = without_superfluous(problem, wasteful, more)
    ticks, peak = cost_of_runs(problem, left)
    assert peak <= more
    assert len(left) <= len(runs)
    assert set(left) == set(runs)
    if len(runs) == len(set(runs)):
        assert ticks == once(problem)[0]


def test_superfluous_runs_of_a_chain_are_left_out():
    problem = chain_problem(16)
    runs = dtr(problem, 9)
    left = without_superfluous(problem, runs, 20)  # 17 suffice for every op once
    assert left == list(range(32))
    assert without_superfluous(problem, runs, 9, show=lambda done: False) == runs
    fewer = without_superfluous(problem, runs, 12)
    assert cost_of_runs(problem, fewer)[1] <= 12
    assert len(fewer) < len(runs)
    with pytest.raises(ValueError, match="runs need 17 units: expected at most the budget, 5"):
        without_superfluous(problem, list(range(32)), 5)


def test_what_a_superfluous_run_reads_is_left_out_with_it():
    # One run of c suffices. But the second runs of a and b would take memory without it.
    a, b, c, p, d = range(5)
    ops = [
        Op(outputs=(Output(10.0),)),
        Op(inputs=((a, 0),), outputs=(Output(10.0),)),
        Op(inputs=((b, 0),), outputs=(Output(1.0),)),
        Op(inputs=((c, 0),), outputs=(Output(1.0),), workspace=17.0),
        Op(inputs=((c, 0), (p, 0)), outputs=(Output(1.0),)),
    ]
    problem = prepare(padding.pad(from_ops(ops)), ONE, max_runs=2, seconds=np.ones(5))
    runs = [a, b, c, p, a, b, c, d]
    budget = cost_of_runs(problem, runs)[1]
    assert cost_of_runs(problem, [a, b, c, p, a, b, d])[1] > budget
    assert without_superfluous(problem, runs, budget) == [a, b, c, p, d]
