"""Groups of ops: what reads one weight, and what is joined."""

import numpy as np
import pytest

from gopt.cost.hardware import p100s, unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.graph.tracing import trace
from gopt.heuristics.schedule.placement.groups import coarse_to_fine, join_groups, weight_groups
from gopt.sources.synthetic import layered
from gopt.workloads import rnnlm
from tests.strategies import HUBS, NASTY

GRAPHS = {**NASTY, **HUBS, "layered": lambda: layered(0, 300)}


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_groups_part_the_ops_and_are_few_enough(name, devices):
    problem = prepare(GRAPHS[name](), unit_rate_devices(devices))
    n = int(problem.num_ops)
    counts = (1, 4, 50)
    for count, group in zip(counts, coarse_to_fine(problem, counts), strict=True):
        assert group.shape == (n,) and group.dtype == np.int32
        assert np.unique(group).tolist() == list(range(group.max() + 1))  # none is empty
        assert group.max() < count


def test_ops_that_read_one_weight_are_a_group():
    """Two weights of 1000 bytes, read by four and three ops in turn; one reader has a reader."""
    ops = [Op("input", outputs=(Output(1000.0),)), Op("input", outputs=(Output(1000.0),))]
    for k in range(7):
        reads = [(k % 2, 0)] + ([(k + 1, 0)] if k else [])
        ops.append(Op(inputs=tuple(reads), outputs=(Output(1.0),), flops=10.0))
    ops.append(Op(inputs=((8, 0),), flops=1.0))
    group = weight_groups(prepare(from_ops(ops), unit_rate_devices(2)))
    assert group.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0, 0]


def test_layers_of_an_unrolled_network_are_groups():
    """The products with a weight, and those with its transpose; gradients have a momentum."""
    step, args = rnnlm(length=6, hidden=650).train_step()
    traced = trace(step, *args, donate_argnums=(0, 1))
    group = weight_groups(prepare(traced.graph, p100s(2)))
    for layer in range(2):
        products = [
            i
            for i, name in enumerate(traced.names)
            if f"LSTMCell_{layer}/Dense_0" in name and "dot_general" in name
        ]
        _, sizes = np.unique(group[products], return_counts=True)
        assert len(products) == 18 and sorted(sizes) == [6, 12]


def test_the_most_connected_are_joined_first():
    """A chain of eight ops; every other tensor is large."""
    ops = [Op(outputs=(Output(100.0),), flops=1.0)]
    for k in range(1, 8):
        ops.append(Op(inputs=((k - 1, 0),), outputs=(Output(1.0 if k % 2 else 100.0),), flops=1.0))
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    assert join_groups(problem, np.arange(8), 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_groups_are_not_heavier_than_three_times_the_mean_or_half_a_device():
    """Ops of one time that nothing connects, and the same as the readers of a hub."""
    alone = [Op(flops=1.0) for _ in range(1000)]
    star = [Op(outputs=(Output(1.0),), flops=1.0)]
    star += [Op(inputs=((0, 0),), flops=1.0) for _ in range(999)]
    for ops in (alone, star):
        group = join_groups(prepare(from_ops(ops), unit_rate_devices(4)), np.arange(1000), 64)
        assert group.max() < 64 and np.bincount(group).max() <= 125


def test_groups_that_nothing_connects_are_joined_by_their_time():
    problem = prepare(from_ops([Op(flops=float(k)) for k in (5, 1, 9, 1)]), unit_rate_devices(2))
    group = join_groups(problem, np.arange(4), 3)
    assert group[1] == group[3] and len(set(group)) == 3
