"""The order in which memory is freed early and taken late."""

import numpy as np
import pytest

from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.graph.padding import pad
from gopt.heuristics.recompute.early import early
from gopt.heuristics.recompute.uses import uses_of
from tests import strategies
from tests.heuristics.recompute.graphs import ONE, chain_problem, random_training


def check(problem):
    order = early(problem)
    n, links = int(problem.num_ops), int(problem.num_links)
    assert sorted(order) == list(range(n))
    place = np.empty(n, int)
    place[order] = np.arange(n)
    inputs = problem.is_input[:n]
    assert place[inputs].max(initial=-1) < place[~inputs].min(initial=n)
    for maker, reader in zip(problem.maker[:links], problem.reader[:links], strict=True):
        assert place[maker] < place[reader]
    return order


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_keep_their_links(seed):
    check(random_training(np.random.default_rng(seed), 12))


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_need_no_more_and_keep_what_writes_over_the_last_result(seed):
    rng = np.random.default_rng(seed)
    graph = strategies.random_graph(rng, 20, 0.2)
    n = int(graph.num_ops)
    pairs = [*zip(graph.tensor.tolist(), graph.consumer.tolist(), strict=True)]
    in_place = [pair for pair in pairs if rng.random() < 0.3]
    problem = prepare(pad(graph), ONE, max_runs=1, seconds=rng.random(n), in_place=in_place)
    order = check(problem)
    place = np.argsort(order)
    over = uses_of(problem).in_place
    for op in range(n - 1):
        if (op, op + 1) in over and not problem.is_input[op]:
            assert place[op + 1] == place[op] + 1


def updates(n, *, in_place=()):
    """Return n gradients in a row, and n updates at the end that make nothing of them."""
    ops = [Op("input", outputs=(Output(1.0),))]
    ops += [Op(inputs=((k, 0),), outputs=(Output(1.0), Output(4.0))) for k in range(n)]
    ops += [Op(inputs=((1 + k, 1),), outputs=(Output(0.0),)) for k in range(n)]
    return prepare(pad(from_ops(ops)), ONE, max_runs=1, in_place=in_place)


def test_an_update_follows_its_gradient():
    problem = updates(3)
    order = check(problem)
    assert order == [0, 1, 4, 2, 5, 3, 6]
    (_, held), (_, freed) = (cost_of_runs(problem, [*runs]) for runs in (range(7), order))
    assert (held, freed) == (14, 6)


def test_nothing_comes_before_an_op_that_writes_over_the_last_result():
    order = check(updates(3, in_place=[(1, 2)]))  # the first result of op 1, for op 2
    assert order == [0, 1, 2, 4, 5, 3, 6]


def test_what_takes_memory_comes_just_before_its_reader():
    ops = [Op("input", outputs=(Output(1.0),)), Op(inputs=((0, 0),), outputs=(Output(5.0),))]
    ops += [Op(inputs=((k, 0),), outputs=(Output(2.0),)) for k in (0, 2)]
    ops += [Op(inputs=((3, 0), (1, 0)), outputs=(Output(1.0),))]
    problem = prepare(pad(from_ops(ops)), ONE, max_runs=1)
    assert check(problem) == [0, 2, 3, 1, 4]


def test_what_holds_more_when_it_is_late_stays():
    ops = [Op("input", outputs=(Output(1.0),)), Op(inputs=((0, 0),), outputs=(Output(7.0),))]
    ops += [Op(inputs=((1, 0),), outputs=(Output(5.0),))]  # later it would hold 7 for so long
    ops += [Op(inputs=((0, 0),), outputs=(Output(2.0),))]
    ops += [Op(inputs=((3, 0), (2, 0)), outputs=(Output(1.0),))]
    assert check(prepare(pad(from_ops(ops)), ONE, max_runs=1)) == [0, 1, 2, 3, 4]


def test_without_anything_to_free_the_order_stays():
    ops = [Op(inputs=((k - 1, 0),) if k else (), outputs=(Output(1.0 + k),)) for k in range(5)]
    assert check(prepare(pad(from_ops(ops)), ONE, max_runs=1)) == list(range(5))
    assert check(chain_problem(1)) == [0, 1]


def test_a_hub_with_many_readers():
    ops = [Op(outputs=(Output(9.0),))]
    ops += [Op(inputs=((0, 0),), outputs=(Output(1.0),)) for _ in range(1000)]
    assert check(prepare(pad(from_ops(ops)), ONE, max_runs=1)) == list(range(1001))
