"""XLA's instruction fusion against a plain one, and what it keeps in memory."""

import numpy as np
import pytest

from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import unit_rate_devices
from gopt.graph import graph as graphs
from gopt.graph.graph import Op, Output
from gopt.graph.kinds import INPUT, kind_index
from gopt.heuristics.fusion.presets import instruction_fusion
from tests.cost.fusion.test_cost import KINDS, machine, random_graph
from tests.reference import fusions as reference
from tests.strategies import NASTY

ROWS = (32, 128, 512)
SIZE = (10,)
DENSE = ("input", "add", "add", "sub", "mul", "neg", "exp", "reduce_sum", "dot_general")


def op(kind, *reads, elements=10, pinned=False):
    output = Output(4 * elements, (elements,), pinned=pinned)
    return Op(kind, tuple((maker, 0) for maker in reads), (output,))


def dense(rng, ops):
    """Ops of few kinds that read much, all of one size: many are kept in memory."""
    found = []
    for i in range(ops):
        kind = rng.choice(DENSE)
        reads = np.flatnonzero(rng.random(i) < min(0.8, 2.5 / (i + 1)))
        found.append(op(kind, *([] if kind == "input" else reads.tolist())))
    return graphs.from_ops(found)


def fused(ops, **settings):
    problem = prepare_fusion(graphs.from_ops(ops), unit_rate_devices(1), **settings)
    assert instruction_fusion(problem).tolist() == reference.instruction_fusion(problem)
    return np.flatnonzero(instruction_fusion(problem)).tolist()


@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize("seed", range(25))
def test_it_is_the_plain_one_on_random_graphs(seed, target):
    rng = np.random.default_rng(seed)
    rules = Rules(RULES[target].fuses_into, max_kernel_ops=int(rng.choice([1, 2, 4, 64])))
    for graph in (dense(rng, int(rng.integers(1, 26))), random_graph(rng, 31)):
        problem = prepare_fusion(graph, machine(rng), rules=rules)
        fuse = instruction_fusion(problem)
        assert fuse.tolist() == reference.instruction_fusion(problem)
        assert not fuse[~problem.configurable].any()


def test_in_many_of_these_graphs_something_is_kept_that_might_be_fused():
    counts = []
    for seed in range(25):
        problem = prepare_fusion(dense(np.random.default_rng(seed), 25), unit_rate_devices(1))
        kept = reference.kept_in_memory(problem)
        counts.append(sum(bool(problem.configurable[i]) for i in kept))
    assert sum(count > 1 for count in counts) > 15


@pytest.mark.parametrize("rows", [(23, 46, 400), ROWS, (45, 150, 600)])
@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs_with_padding_of_every_amount(name, rows):
    graph = NASTY[name]()
    kind = np.where(graph.kind == INPUT, INPUT, kind_index(KINDS[len(name) % 3]))
    problem = prepare_fusion(graph._replace(kind=kind), unit_rate_devices(1), rows=rows)
    assert instruction_fusion(problem).tolist() == reference.instruction_fusion(problem)


def test_a_sum_that_a_product_reads_too_is_kept():
    inputs = [op("input"), op("input")]
    reads_more = op("add", 0, 1)
    ends = [op("neg", 2, pinned=True), op("dot_general", 2, pinned=True)]
    assert fused([*inputs, reads_more, *ends]) == []
    # Both of its readers may have it.
    assert fused([*inputs, reads_more, ends[0], ends[0]]) == [2]
    # It reads no more than it makes, or little beside one operand of full size.
    assert fused([*inputs, op("add", 0), *ends]) == [2]
    assert fused([op("input", elements=1), inputs[0], reads_more, *ends]) == [2]
    # One operand is one, however large.
    halves = [op("input", elements=20), op("input")]
    assert fused([*halves, op("slice", 0), *ends]) == [2]


@pytest.mark.parametrize("middle", ["dot_general", "reduce_sum"])
def test_a_way_around_that_is_not_fused_counts(middle):
    """A sum is read by an op, and by what this op reads, by a way through a product."""
    start = [op("input"), op("input"), op("add", 0, 1)]
    end = op("mul", 4, 2, pinned=True)
    around = [op("neg", 2), op("neg", 3)]
    assert fused([*start, *around, end]) == [2, 3, 4]
    assert 2 not in fused([*start, op("neg", 2), op(middle, 3), end])


def test_what_is_kept_for_a_later_reader_parts_a_way_to_an_earlier_one():
    """Op 3 is kept because of the product at the end, and so is op 2, whose ways go through it."""
    start = [op("input"), op("input"), op("add", 0, 1), op("add", 2, 0), op("neg", 3)]
    ends = [op("mul", 4, 2, pinned=True), op("dot_general", 3, pinned=True)]
    assert fused([*start, *ends]) == [4]
    assert fused([*start, ends[0]]) == [2, 3, 4]


def test_what_is_kept_may_have_others_in_its_kernel():
    """Ways end at an op that is kept: what it reads is fused into it."""
    ops = [op("input"), op("input"), op("add", 0, 1), op("add", 2, 0), op("dot_general", 3)]
    assert fused([*ops, op("neg", 3, pinned=True)]) == [2]


def test_what_is_dear_is_fused_if_one_kernel_needs_it():
    start = [op("input"), op("exp", 0)]
    assert fused([*start, op("neg", 1, pinned=True)]) == [1]
    assert fused([*start, op("neg", 1, pinned=True), op("neg", 1, pinned=True)]) == []
    # Its readers are in one kernel.
    assert fused([*start, op("neg", 1), op("neg", 1), op("add", 2, 3, pinned=True)]) == [1, 2, 3]


def test_what_is_dear_and_read_twice_parts_a_way():
    start = [op("input"), op("input"), op("add", 0, 1), op("exp", 2)]
    end = op("mul", 3, 2, pinned=True)
    assert fused([*start, end]) == [2, 3]
    assert fused([*start, end, op("neg", 3, pinned=True)]) == []


def test_of_readers_in_a_kernel_the_one_that_needs_most_decides():
    """An exponential is read by a sum that needs each element twice, and by another op once."""
    start = [op("input"), op("input", elements=20), op("exp", 0), op("neg", 2)]
    twice = op("add", 2, 1, elements=20)
    end = op("concatenate", 3, 4, elements=30, pinned=True)
    assert fused([*start, twice, end]) == [3, 4]
    assert fused([*start, op("add", 2, 0), end]) == [2, 3, 4]


def test_a_kernel_takes_no_more_ops_than_the_limit_and_others_are_in_memory():
    ops = [op("input"), *(op("neg", i) for i in range(9)), op("neg", 9, pinned=True)]
    rules = Rules(RULES["cpu"].fuses_into, max_kernel_ops=4)
    assert fused(ops, rules=rules) == [1, 3, 4, 5, 7, 8, 9]


def test_of_a_thousand_readers_each_has_the_op_but_for_one_that_may_not():
    readers = [op("neg", 2, pinned=True)] * 999
    start = [op("input"), op("input"), op("neg", 0)]
    for last, kept in (("neg", False), ("dot_general", True)):
        ops = [*start, *readers, op(last, 2, pinned=True)]
        fuse = instruction_fusion(prepare_fusion(graphs.from_ops(ops), unit_rate_devices(1)))
        assert np.flatnonzero(fuse).tolist() == [2]
        ops[2] = op("add", 0, 1)
        fuse = instruction_fusion(prepare_fusion(graphs.from_ops(ops), unit_rate_devices(1)))
        assert np.flatnonzero(fuse).tolist() == ([] if kept else [2])


@pytest.mark.slow
@pytest.mark.parametrize(("first", "kept"), [("neg", False), ("dot_general", True)])
def test_a_way_of_three_thousand_ops_is_followed(first, kept):
    """A sum, read by the first and after the last op of a chain."""
    start = [op("input"), op("input"), op("add", 0, 1), op(first, 2)]
    ops = [*start, *(op("neg", i) for i in range(3, 3003)), op("mul", 3003, 2, pinned=True)]
    rules = Rules(RULES["cpu"].fuses_into, max_kernel_ops=4000)
    problem = prepare_fusion(graphs.from_ops(ops), unit_rate_devices(1), rules=rules)
    fuse = instruction_fusion(problem)
    assert bool(fuse[2]) != kept and fuse[4:3004].all()
