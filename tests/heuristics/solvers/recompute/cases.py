"""Small random problems of recomputation, and the yardsticks."""

import json
from pathlib import Path

import numpy as np

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import prepare
from gopt.graph import padding
from gopt.graph.graph import Op, Output, from_ops
from gopt.sources.instances import recompute_instance
from tests.strategies import SMALL, random_graph

YARDSTICKS = Path(__file__).parents[4].parent / "shared" / "yardsticks" / "recompute.json"
ONE = unit_rate_devices(1)


def tiny(seed):
    """Return a random problem of at most five ops, and budgets from too small to large enough."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    graph = random_graph(rng, n, 0.5)
    may_repeat = rng.random(n) < rng.choice([0.7, 1.0])
    seconds = rng.integers(0, 9, n).astype(float)
    problem = prepare(
        padding.pad(graph, SMALL), ONE, max_runs=3, seconds=seconds, may_repeat=may_repeat
    )
    _, peak = cost_of_runs(problem, range(n))
    return problem, [int(share * peak) for share in (1, 0.95, 0.9, 0.8, 0.6)]


def skipping(seed):
    """Return a random problem in which ops read from far before, and budgets below its peak.

    Sometimes an op makes two tensors, may not repeat or needs memory while it runs. Runs again
    often help.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 8))
    ops = []
    for k in range(n):
        near = [k - 1] if k and rng.random() < 0.8 else []
        far = [u for u in range(k - 2) if rng.random() < 0.4]
        reads = sorted({(u, int(rng.integers(len(ops[u].outputs)))) for u in near + far})
        sizes = rng.integers(0, 10, 1 + (rng.random() < 0.3))
        outputs = tuple(Output(int(size), pinned=k == n - 1) for size in sizes)
        kind = "input" if not reads and rng.random() < 0.3 else "unknown"
        workspace = 0 if kind == "input" else int(rng.integers(0, 6) * (rng.random() < 0.3))
        ops.append(Op(kind, tuple(reads), outputs, workspace=workspace))
    seconds = [0.0 if op.kind == "input" else float(rng.integers(0, 9)) for op in ops]
    problem = prepare(
        padding.pad(from_ops(ops), SMALL),
        ONE,
        max_runs=3,
        seconds=seconds,
        may_repeat=rng.random(n) < rng.choice([0.7, 1.0, 1.0]),
    )
    _, peak = cost_of_runs(problem, range(n))
    made = np.bincount(problem.producer, problem.size, minlength=problem.num_rows)
    read = np.zeros(problem.num_rows)
    for k in range(int(problem.num_uses)):
        read[problem.consumer[k]] += problem.size[problem.tensor[k]]
    least = int((made + read + problem.workspace)[:n].max())
    return problem, sorted({least - 1, least, *rng.integers(least, peak + 1, 3).tolist()})


def held_in_the_way():
    """Return a problem whose first tensor is in the way, and a budget that only a rerun meets."""
    ops = [
        Op(outputs=(Output(4),)),
        Op(inputs=((0, 0),), outputs=(Output(1),)),
        Op(inputs=((1, 0),), outputs=(Output(6),)),
        Op(inputs=((2, 0),), outputs=(Output(1),)),
        Op(inputs=((0, 0), (3, 0)), outputs=(Output(1, pinned=True),)),
    ]
    return prepare(padding.pad(from_ops(ops)), ONE, max_runs=3, seconds=[3.0, 1, 1, 1, 1]), 7


def two_chains():
    """Return a problem of two chains of two ops, and a budget that holds everything."""
    ops = [
        Op(outputs=(Output(1),)),
        Op(inputs=((0, 0),)),
        Op(outputs=(Output(1),)),
        Op(inputs=((2, 0),)),
    ]
    return prepare(from_ops(ops), ONE, max_runs=3), 2


def yardsticks():
    """Yield (instance, problem, budget) of each yardstick."""
    for instance in json.loads(YARDSTICKS.read_text()):
        graph, hardware, seconds, _ = recompute_instance(instance)
        problem = prepare(padding.pad(graph), hardware, max_runs=3, seconds=seconds)
        assert problem.tick == problem.unit == 1
        yield instance, problem, int(hardware.capacity[0])
