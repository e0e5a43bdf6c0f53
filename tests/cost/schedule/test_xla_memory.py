"""Addresses as XLA gives them, against a plain search of gaps."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gopt import Op, Output, from_ops, pad, prepare
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.decoding import decode
from gopt.cost.schedule.execution import simulate
from gopt.cost.schedule.xla_memory import packed_bytes
from gopt.heuristics import keys_from_items
from tests.reference import packing as reference
from tests.strategies import SMALL

pytestmark = pytest.mark.optimized


@jax.jit
def replay(problem, keys):
    return simulate(problem, decode(problem, keys))


def schedule_of(ops, order=None):
    problem = prepare(pad(from_ops(ops), SMALL), unit_rate_devices(1))
    order = range(len(ops)) if order is None else order
    keys = keys_from_items(problem, [0] * len(ops), order)
    return problem, jax.device_get(replay(problem, keys))


@st.composite
def programs(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    ops = []
    for k in range(draw(st.integers(1, 12))):
        reads = sorted(rng.choice(k, min(k, rng.integers(0, 3)), replace=False).tolist())
        ops.append(
            Op(
                "input" if k == 0 and rng.random() < 0.3 else "add",
                inputs=tuple((j, 0) for j in reads),
                outputs=(Output(64.0 * rng.integers(0, 9), pinned=bool(rng.random() < 0.2)),),
                workspace=64.0 * rng.integers(0, 4) if k and rng.random() < 0.3 else 0.0,
            )
        )
    return ops


def lives(ops):
    """Returns what ops make for others, with their workspace, and the outputs."""
    tensors, outputs = [], []
    for k, op in enumerate(ops):
        if op.kind == "input":
            continue
        (made,) = op.outputs
        readers = [j for j, other in enumerate(ops) if (k, 0) in other.inputs]
        if made.pinned:
            outputs.append((made.size, k, len(ops)))
        else:
            tensors.append((made.size, k, max([k, *readers])))
    tensors += [(op.workspace, k, k) for k, op in enumerate(ops)]
    return [t for t in tensors if t[0]], [t for t in outputs if t[0]]


@pytest.mark.slow
@given(programs())
@settings(max_examples=150, deadline=None)
def test_tensors_take_what_a_search_of_all_places_finds(ops):
    problem, schedule = schedule_of(ops)
    assert packed_bytes(problem, schedule.order) == reference.packed(*lives(ops))


@given(programs())
@settings(max_examples=50, deadline=None)
def test_tensors_take_no_less_than_what_lives_at_once(ops):
    problem, schedule = schedule_of(ops)
    inputs = sum(op.outputs[0].size for op in ops if op.kind == "input")
    assert packed_bytes(problem, schedule.order) >= int(schedule.peak[0]) * problem.unit - inputs


def test_sizes_are_rounded_up_to_lines():
    problem, schedule = schedule_of([Op(outputs=(Output(1.0, pinned=True),)) for _ in range(3)])
    assert packed_bytes(problem, schedule.order) == 3 * 64


def test_outputs_lend_their_places_until_they_are_made():
    ops = [
        Op(outputs=(Output(128.0),)),
        Op(inputs=((0, 0),), outputs=(Output(128.0),)),
        Op(inputs=((1, 0),), outputs=(Output(128.0, pinned=True),)),
    ]
    problem, schedule = schedule_of(ops)
    assert packed_bytes(problem, schedule.order) == 256


def test_gaps_cost():
    ops = [
        Op(outputs=(Output(128.0),)),
        Op(inputs=((0, 0),), outputs=(Output(192.0),)),
        Op(inputs=((0, 0), (1, 0)), outputs=(Output(128.0),)),
        Op(inputs=((0, 0), (2, 0)), outputs=(Output(128.0),)),
        Op(inputs=((1, 0), (2, 0)), outputs=(Output(192.0),)),
    ]
    problem, schedule = schedule_of(ops)
    assert packed_bytes(problem, schedule.order) == int(schedule.peak[0]) * problem.unit + 64
