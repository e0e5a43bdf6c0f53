"""Small programs in two halves."""

import numpy as np

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.recompute.problem import Problem, prepare
from gopt.graph.graph import Graph, Op, Output, from_ops
from gopt.graph.padding import pad

ONE = unit_rate_devices(1)


def chain(n: int) -> Graph:
    """Return n ops in a row, and n that read them in reverse; each makes one byte."""
    forward = [Op(inputs=((k - 1, 0),) if k else (), outputs=(Output(1.0),)) for k in range(n)]
    backward = [
        Op(inputs=((n - 1 - k, 0), *([(n + k - 1, 0)] if k else [])), outputs=(Output(1.0),))
        for k in range(n)
    ]
    return from_ops([*forward, *backward])


def chain_problem(n: int) -> Problem:
    """Return the problem of a chain in which each op takes one second."""
    return prepare(pad(chain(n)), ONE, max_runs=2, seconds=np.ones(2 * n))


def random_training(rng: np.random.Generator, n: int, shape=None) -> Problem:
    """Return a random problem: inputs, n ops, and n that read a few of them in reverse."""
    ops = [Op("input", outputs=(Output(float(rng.integers(0, 9))),)) for _ in range(2)]
    for k in range(2, 2 + n):
        reads = {int(rng.integers(max(0, k - 3), k)), int(rng.integers(0, k))}
        ops.append(_op(rng, reads))
    for k in range(n):
        reads = {1 + n - k, len(ops) - 1, int(rng.integers(0, 2 + n))}
        ops.append(_op(rng, reads))
    may_repeat = rng.random(len(ops)) < rng.choice([0.6, 1.0])
    seconds = rng.integers(0, 9, len(ops)).astype(float)
    padded = pad(from_ops(ops)) if shape is None else pad(from_ops(ops), shape)
    return prepare(padded, ONE, max_runs=2, seconds=seconds, may_repeat=may_repeat)


def _op(rng: np.random.Generator, reads: set[int]) -> Op:
    return Op(
        inputs=tuple((maker, 0) for maker in sorted(reads)),
        outputs=(Output(float(rng.integers(0, 20)), pinned=bool(rng.random() < 0.1)),),
        workspace=float(rng.integers(0, 3)),
    )
