"""The search for what runs again, and its random changes."""

import jax
import numpy as np
import pytest

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.recompute.cost import Cost, cost_of_runs, evaluate, runs_of
from gopt.cost.recompute.problem import prepare
from gopt.cost.recompute.runs import Choices, behind_all
from gopt.graph.graph import Op, Output, from_ops
from gopt.graph.padding import pad
from gopt.heuristics.recompute import greedy
from gopt.host.progress import Progress
from gopt.scheduling.recompute.moves import moves, neighbour
from gopt.scheduling.recompute.search import EXCESS, OVER, PEAK, objective, search
from gopt.search.loop import Slices
from tests import strategies

ONE = unit_rate_devices(1)


def chain(length, max_runs=2):
    """Returns forward ops of 4 bytes in a chain, and backward ops that read them in reverse."""
    ops = [Op(outputs=(Output(4.0),))]
    ops += [Op(inputs=((k, 0),), outputs=(Output(4.0),)) for k in range(length - 1)]
    for k in reversed(range(length)):
        inputs = ((k, 0), (len(ops) - 1, 0)) if k < length - 1 else ((k, 0),)
        ops.append(Op(inputs=inputs, outputs=(Output(1.0, pinned=k == 0),)))
    return prepare(pad(from_ops(ops)), ONE, max_runs=max_runs, seconds=np.ones(2 * length))


@pytest.mark.parametrize("share", [0.9, 0.6, 0.5])
def test_it_fits_and_is_no_slower_than_the_greedy_rule(share):
    problem = chain(12)
    budget = int(share * cost_of_runs(problem, runs_of(problem, None))[1])
    found = search(jax.random.key(0), problem, budget=budget, evaluations=3000).best
    ticks, peak = cost_of_runs(problem, runs_of(problem, found))
    rule = cost_of_runs(problem, runs_of(problem, greedy(problem, budget)))
    assert peak <= budget
    assert rule[1] > budget or ticks <= rule[0]


def test_with_enough_memory_nothing_runs_again():
    problem = chain(6)
    found = search(jax.random.key(0), problem, budget=1000, evaluations=500).best
    assert len(runs_of(problem, found)) == 12


def test_the_square_root_of_a_chain():
    problem = chain(16)
    once = cost_of_runs(problem, runs_of(problem, None))[1]
    found = search(jax.random.key(1), problem, budget=once // 2, evaluations=8000).best
    ticks, peak = cost_of_runs(problem, runs_of(problem, found))
    assert peak <= once // 2
    assert ticks <= 32 + 12  # at most twelve of sixteen forward ops run again


@pytest.mark.slow
def test_slices_find_the_same():
    problem = chain(8)
    options = {"budget": 20, "evaluations": 600}
    whole = search(jax.random.key(3), problem, **options)
    sliced = search(
        jax.random.key(3), problem, run=Slices(Progress("test", False), "steps"), **options
    )
    jax.tree.map(np.testing.assert_array_equal, whole.best, sliced.best)
    assert whole.cost == sliced.cost


def test_one_evaluation_is_enough_and_none_is_refused():
    problem = chain(4)
    assert search(jax.random.key(0), problem, budget=9, evaluations=1).cost > 0
    with pytest.raises(ValueError, match="evaluations is 0: expected 1 at least"):
        search(jax.random.key(0), problem, budget=9, evaluations=0)


@pytest.mark.slow
def test_given_candidates_are_kept_if_they_are_best():
    problem = chain(10, max_runs=3)
    best = search(jax.random.key(0), problem, budget=24, evaluations=6000, max_runs=3)
    given = jax.tree.map(lambda leaf: np.asarray(leaf)[None], best.best)
    again = search(jax.random.key(1), problem, budget=24, evaluations=3, max_runs=3, initial=given)
    assert again.cost <= best.cost


def test_the_objective_orders_candidates_by_fit_then_time():
    problem = chain(4)
    cost = Cost(np.array([8, 9, 8]), np.array([10, 10, 30]), np.array([0, 0, 5]))
    found = np.asarray(objective(jax.tree.map(np.asarray, problem), cost, np.int32(10)))
    unit = 2 ** int(problem.excess_shift) / 8 / 10
    over = EXCESS * 5 * unit + PEAK * (30 - 10) / 10
    np.testing.assert_allclose(found, [1, 9 / 8, OVER + over + 1], rtol=1e-6)


@pytest.mark.parametrize("max_runs", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_changes_keep_shapes_and_ranges(seed, max_runs):
    rng = np.random.default_rng(seed)
    graph = strategies.random_graph(rng, 20, 0.2)
    problem = prepare(pad(graph), ONE, max_runs=max_runs, seconds=np.ones(int(graph.num_ops)))
    tables, counts = moves(problem), np.diff(problem.first_reader)
    change = jax.jit(lambda key, choices: neighbour(problem_on_device, tables, key, choices))
    problem_on_device = jax.tree.map(jax.numpy.asarray, problem)
    order = np.arange(problem.num_rows, dtype=np.float32) / problem.num_rows
    choices, changed = behind_all(problem, max_runs)._replace(priority=order), set()
    is_negative = False
    for k in range(200):
        new = jax.device_get(change(jax.random.key(1000 * seed + k), choices))
        assert (abs(new.splits) <= counts[:, None]).all()
        assert (new.priority >= 0).all() and (new.priority <= 1).all()
        moved = int((new.priority != choices.priority).sum())
        assert moved <= 1 and not (moved and (new.splits != choices.splits).any())
        is_negative |= bool((new.splits < 0).any())
        changed |= set(np.flatnonzero((new.splits != choices.splits).any(1)).tolist())
        choices = Choices(*new)
    assert changed <= set(tables.ops.tolist())
    assert is_negative or not (counts[tables.ops] > 1).any()
    assert len(changed) >= min(3, len(np.flatnonzero(problem.may_repeat & (counts > 0))))


def test_usual_splits_lie_at_the_gaps_between_readers():
    ops = [Op(outputs=(Output(1.0),))]
    makers = (0, 1, 0, 3, 4, 5, 6, 7, 0)  # op 0 is read by 1, 3 and 9
    ops += [Op(inputs=((maker, 0),), outputs=(Output(1.0),)) for maker in makers]
    options = moves(prepare(pad(from_ops(ops)), ONE, max_runs=2)).options
    assert options[0].tolist() == [0, 3, 2, 1, -3, -2]
    assert options[4].tolist() == [0, 1, 0, 0, 1, 1]  # one reader: no gap


def test_ops_of_repeated_blocks_look_alike():
    alike = moves(chain(20)).alike
    assert len({*alike[5:15].tolist()}) == 1  # the middle of the forward chain
    assert alike[10] != alike[30]
    assert (alike[40:] == -1).all()  # padding


def test_a_search_over_a_program_without_choices():
    problem = prepare(pad(from_ops([Op(outputs=(Output(3.0, pinned=True),))])), ONE, max_runs=2)
    found = search(jax.random.key(0), problem, budget=1, evaluations=50)
    assert int(evaluate(problem, found.best, 1).peak) == 3
