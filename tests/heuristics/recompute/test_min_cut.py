"""The least cut against all sets of held values."""

import itertools

import numpy as np
import pytest

from gopt.cost.recompute.cost import cost_of_runs, runs_of
from gopt.cost.recompute.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.graph.padding import pad
from gopt.heuristics.recompute.min_cut import capacities, cheap, least_cut, min_cut
from gopt.heuristics.recompute.residuals import halves
from tests.heuristics.recompute.graphs import ONE, random_training
from tests.tiers import slow


def held_bytes(problem, turn, again):
    """Return the bytes held across the turning point if some ops run again."""
    links = int(problem.num_links)
    reads = {op: [] for op in range(problem.num_rows)}
    for maker, reader in zip(problem.maker[:links], problem.reader[:links], strict=True):
        reads[int(reader)].append(int(maker))
    wanted = [m for op, makers in reads.items() if op >= turn for m in makers if m < turn]
    needed = set()
    while wanted:
        op = wanted.pop()
        if op not in needed:
            needed.add(op)
            wanted += reads[op] if again[op] else []
    return sum(int(capacities(problem)[op]) for op in needed if not again[op])


@pytest.mark.parametrize("seed", [*range(20), *slow(*range(20, 200))])
def test_no_set_of_held_values_has_fewer_bytes(seed):
    rng = np.random.default_rng(seed)
    problem = random_training(rng, int(rng.integers(2, 9)))
    half = halves(problem)
    allowed = rng.random(problem.num_rows) < 0.8
    free = np.flatnonzero((allowed & half.droppable)[: half.turn])
    again = least_cut(problem, half, allowed)
    assert set(np.flatnonzero(again)) <= set(free)
    least = min(
        held_bytes(problem, half.turn, np.isin(np.arange(problem.num_rows), some))
        for count in range(len(free) + 1)
        for some in itertools.combinations(free, count)
    )
    assert held_bytes(problem, half.turn, again) == least


def pipeline():
    """Return a product, two cheap ops on it, a loss, and an op that reads them all."""
    ops = [Op("input", outputs=(Output(8.0),))]
    ops += [Op(inputs=((k, 0),), outputs=(Output(8.0),)) for k in range(3)]
    ops += [Op(inputs=((3, 0),), outputs=(Output(1.0),))]
    ops += [Op(inputs=((4, 0), (3, 0), (2, 0), (1, 0)), outputs=(Output(1.0),))]
    return from_ops(ops)


def test_what_takes_long_is_held_and_what_is_cheap_runs_again():
    problem = prepare(pad(pipeline()), ONE, max_runs=2, seconds=[0, 100, 1, 1, 1, 1])
    assert cheap(problem)[:6].tolist() == [True, False, True, True, True, True]
    assert halves(problem).turn == 5
    assert runs_of(problem, min_cut(problem)) == [0, 1, 2, 3, 4, 2, 3, 5]
    everything = np.ones(problem.num_rows, bool)
    assert runs_of(problem, min_cut(problem, everything)) == [0, 1, 2, 3, 4, 1, 2, 3, 5]


def test_sizes_beyond_the_capacities_are_scaled():
    ops = [Op(outputs=(Output(2.0**30),)), Op(inputs=((0, 0),), outputs=(Output(2.0**28),))]
    ops += [Op(inputs=((1, 0),), outputs=(Output(1.0),)) for _ in range(9)]
    ops += [Op(inputs=((0, 0), *((k, 0) for k in range(1, 11))))]
    problem = prepare(pad(from_ops(ops)), ONE, max_runs=2)
    assert capacities(problem).sum() < 2**29
    runs = runs_of(problem, min_cut(problem, np.ones(problem.num_rows, bool)))
    assert cost_of_runs(problem, runs)
