"""The rows of GO's table, and how practitioners would place them."""

from itertools import pairwise

import numpy as np
import pytest

from experiments.go import experts
from experiments.go.rows import ROWS, Row, build
from gopt.cost.hardware import p100s
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import prepare


def test_published_seconds_give_the_published_savings():
    rows = [row.published for row in ROWS.values()]
    for field, saving in (("human", 0.205), ("hdp", 0.197)):
        ratios = [row.go / getattr(row, field) for row in rows]
        assert 1 - np.exp(np.mean(np.log(ratios))) == pytest.approx(saving, abs=5e-4)
    assert len(rows) == 14 and {row.devices for row in ROWS.values()} == {2, 4, 8}


def small(sizes):
    row = Row("rnnlm", dict(batch=2, hidden=16, vocabulary=30, **sizes), 2, None)
    step = build(row)
    return step, prepare(step.graph, p100s(2))


def test_layers_have_devices_of_their_own():
    step, problem = small(dict(layers=2, length=3))
    found = experts.by_layer(step, problem, "rnnlm", 2)
    padded = np.pad(found, (0, problem.shape.ops - found.size)).astype(np.int32)
    device = np.asarray(dispatch.legalize_placement(problem, padded))
    for layer in range(2):
        ops = [
            i for i, name in enumerate(step.names) if f"LSTMCell_{layer}" in name
        ]  # weights, too
        assert len(ops) > 50 and set(device[ops]) == {layer}
    update = [i for i, name in enumerate(step.names) if name in ("add", "mul")]
    assert set(device[update]) == {0, 1}  # of weights, each where its gradient is


def test_time_steps_have_devices_of_their_own_forwards_and_backwards():
    step, problem = small(dict(layers=1, length=4))
    device = experts.by_step(step, problem)
    for direction, expected in (("jvp(", [0, 1]), ("transpose(", [1, 0])):
        ops = [
            i
            for i, name in enumerate(step.names)
            if name.startswith(direction) and "LSTMCell_0/" in name
        ]
        turns = device[ops][np.flatnonzero(np.diff(device[ops], prepend=-1))]
        assert turns.tolist() == expected
        assert abs(np.diff(np.bincount(device[ops]))) <= 1


def test_a_residual_sum_is_in_the_layer_that_ends_with_it():
    sizes = dict(batch=1, length=4, memory=4, layers=2, hidden=8, heads=2, inner=16)
    step = build(Row("transformer_xl", sizes, 2, None))
    problem = prepare(step.graph, p100s(2))
    device = experts.by_layer(step, problem, "transformer_xl", 2)
    layer = experts.layers_of(step, "transformer_xl", 2)
    maker = problem.producer[problem.read]
    reads = [set(layer[maker[a:b]]) for a, b in pairwise(problem.first_read[: layer.size + 1])]
    sums = [
        i
        for i, name in enumerate(step.names)
        if name == "jvp(TransformerXL)/add" and reads[i] == {0, 1}
    ]
    assert len(sums) == 1 and device[sums].tolist() == [1]
