"""The greedy decoder against plain Python, and its keys against the standard decoder."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gopt.cost.hardware import no_channels, unit_rate_devices
from gopt.cost.schedule import execution
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.list_decoder import PIN, decode_by_list
from gopt.cost.schedule.problem import prepare
from gopt.graph import graph as graphs
from gopt.graph.graph import Op, Output
from gopt.heuristics import HEURISTICS, critical_path
from tests import strategies
from tests.reference.execution import run as replay
from tests.strategies import NASTY, SMALL, WIDE


def reference(problem, keys):
    """Devices of the real ops, the items in order of issue, and the makespan, by plain Python."""
    n, devices = problem.op_ticks.shape
    real = range(int(problem.num_ops))
    reads = {
        i: [int(t) for t in problem.read[problem.first_read[i] : problem.first_read[i + 1]]]
        for i in real
    }
    maker = [int(i) for i in problem.producer]
    is_input, allowed = np.asarray(problem.is_input), np.asarray(problem.allowed)
    priority = np.where(is_input | (np.asarray(keys.priority) <= 0), 0, keys.priority)

    device, end = {}, {}
    for i in real:
        wanted = {d: 0.0 if keys.device is None else keys.device[i, d] for d in range(devices)}
        choices = [d for d in range(devices) if allowed[i, d]]
        top = max(choices, key=lambda d: (wanted[d], -d))
        if wanted[top] > PIN or (is_input[i] and len(choices) < devices):
            device[i] = top
    pins = dict(device)
    device = {i: d for i, d in pins.items() if is_input[i]}

    def attempt(op, here, free, device, end):
        """Issues an op on a device; changes what it is given. Returns the items."""
        items, latest = [], 0
        for t in reads[op]:
            home = device.setdefault(maker[t], here)
            sent = n + t * devices + here
            if home != here and sent not in end:
                used = [("link", int(problem.channel[home, here]))]
                used = used if used[0][1] >= 0 else []
                if problem.synchronous:
                    used += [home, here]
                start = max([end[maker[t]], *(free.get(r, 0) for r in used)])
                end[sent] = start + int(problem.transfer_ticks[t, home, here])
                free.update(dict.fromkeys(used, end[sent]))
                items.append(sent)
            latest = max(latest, end[maker[t] if home == here else sent])
        end[op] = max(latest, free.get(here, 0)) + int(problem.op_ticks[op, here])
        free[here] = end[op]
        device[op] = here
        return [*items, op]

    free, order = {}, []
    end.update({i: 0 for i in real if is_input[i]})
    left = [i for i in real if not is_input[i]]
    issued = set(end)
    while left:
        ready = [i for i in left if all(maker[t] in issued for t in reads[i])]
        op = min(ready, key=lambda i: (priority[i], i))
        ends = {}
        for here in [pins[op]] if op in pins else np.flatnonzero(allowed[op]).tolist():
            trial = dict(free), dict(device), dict(end)
            attempt(op, here, *trial)
            ends[here] = trial[2][op]
        order += attempt(op, min(ends, key=lambda d: (ends[d], d)), free, device, end)
        left.remove(op)
        issued.add(op)
    return [device.get(i, 0) for i in real], order, max([0, *end.values()])


build = jax.jit(decode_by_list)
evaluate = jax.jit(execution.evaluate)


def check(problem, keys):
    device, order, makespan = reference(problem, keys)
    found, ticks = jax.device_get(build(problem, keys))
    assert ticks == makespan
    expected = replay(problem, found)
    inputs = {i for i in range(int(problem.num_ops)) if problem.is_input[i]}
    assert expected.device == device
    assert [item for item in expected.order if item not in inputs] == order
    assert expected.makespan == makespan
    assert evaluate(problem, found).makespan == makespan
    assert all((leaf >= 0).all() and (leaf <= 1).all() for leaf in found)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_random_problems_match_the_reference_and_the_standard_decoder(devices):
    @settings(
        max_examples=40, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
    )
    @given(strategies.cases(devices))
    def matches(case):
        problem, keys = case.problem(SMALL), case.padded_keys(SMALL)
        check(problem, keys)
        # Few pins, so that the greedy choice decides.
        check(problem, keys._replace(device=keys.device * keys.device[:1] * 0.8))

    matches()


@strategies.on_nasty_graphs
def test_nasty_graphs_match_the_reference(name, channel):
    rng = np.random.default_rng(0)
    for kind in ("uniform", "tied", "ends"):
        for synchronous in (False, True):
            case = strategies.random_case(
                rng, NASTY[name](), 3, keys=kind, channel=channel, synchronous=synchronous
            )
            problem, keys = case.problem(SMALL), case.padded_keys(SMALL)
            check(problem, keys)
            check(problem, keys._replace(device=np.zeros_like(keys.device)))


def fork(readers, size):
    """An op of 2 s, and readers of 3 s of what it makes."""
    ops = [Op(flops=2, bytes=0, outputs=(Output(size),))]
    ops += [Op(flops=3, bytes=0, inputs=((0, 0),))] * readers
    return prepare(graphs.from_ops(ops), unit_rate_devices(2, channel=no_channels))


def test_ops_go_where_they_finish_first():
    order = np.linspace(0, 1, 4, dtype=np.float32)
    near, near_ticks = build(fork(2, 4), Keys(None, order, None))
    assert near.device.argmax(-1).tolist()[:3] == [0, 0, 0]  # 2 + 4 + 3 is later than 2 + 3 + 3
    assert near_ticks == 8
    far, far_ticks = build(fork(2, 2), Keys(None, order, None))
    assert far.device.argmax(-1).tolist()[:3] == [0, 0, 1]
    assert far_ticks == 7


def test_pins_hold_and_keys_below_them_do_not():
    problem = fork(2, 2)
    device = np.zeros((4, 2), np.float32)
    device[2] = 1, 0.9  # away from the greedy choice
    device[1] = 0.2, PIN  # not above it
    found, ticks = build(problem, Keys(device, np.linspace(0, 1, 4, dtype=np.float32), None))
    assert found.device.argmax(-1).tolist()[:3] == [0, 0, 0]
    assert ticks == 8
    device[1, 1] = np.nextafter(np.float32(PIN), np.float32(1))
    found, ticks = build(problem, Keys(device, np.linspace(0, 1, 4, dtype=np.float32), None))
    assert found.device.argmax(-1).tolist()[:3] == [0, 1, 0]
    assert ticks == 7


def test_inputs_lie_where_their_first_reader_goes():
    ops = [Op("input", outputs=(Output(9),)), Op(flops=5, bytes=0)]
    ops += [Op(flops=1, bytes=0, inputs=((0, 0),))]
    problem = prepare(graphs.from_ops(ops), unit_rate_devices(2))
    found, ticks = build(problem, Keys(None, np.float32([0, 0.1, 0.2, 1]), None))
    assert found.device.argmax(-1).tolist()[:3] == [1, 0, 1]
    assert ticks == 5
    pinned = np.zeros((4, 2), np.float32)
    pinned[0, 0] = 1
    found, ticks = build(problem, Keys(pinned, np.float32([0, 0.1, 0.2, 1]), None))
    assert found.device.argmax(-1).tolist()[:3] == [0, 0, 0]
    assert ticks == 6


def test_critical_path_is_one_of_its_schedules():
    rng = np.random.default_rng(3)
    for _ in range(10):
        case = strategies.random_case(rng, strategies.random_graph(rng, 20, 0.2), 3, channel="none")
        problem = case.problem(SMALL)
        heuristic = critical_path(problem)
        _, ticks = build(problem, heuristic)
        assert ticks == evaluate(problem, heuristic).makespan


def test_schedules_of_heuristics_are_kept_without_contention():
    """With all ops pinned, transfers as early as can be: never later than any order of them."""
    rng = np.random.default_rng(4)
    for _ in range(5):
        case = strategies.random_case(rng, strategies.random_graph(rng, 20, 0.2), 3, channel="none")
        problem = case.problem(SMALL)
        for heuristic in HEURISTICS.values():
            keys = heuristic(problem)
            _, ticks = build(problem, keys)
            assert ticks <= evaluate(problem, keys).makespan


@pytest.mark.slow
def test_vmap_and_padding_change_nothing():
    rng = np.random.default_rng(5)
    graph = strategies.random_graph(rng, 18, 0.3)
    case = strategies.random_case(rng, graph, 3, channel="bus")
    shape = graphs.shape_of(graph)
    candidates = [strategies.random_keys(rng, "uniform", shape, 3) for _ in range(6)]
    expected = []
    for shape in (SMALL, WIDE):
        problem = case.problem(shape)
        keys = [strategies.pad_keys(k, shape) for k in candidates]
        keys = [k._replace(device=k.device * np.float32(0.6)) for k in keys]
        alone = [int(build(problem, k)[1]) for k in keys]
        batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *keys)
        _, together = jax.jit(jax.vmap(decode_by_list, (None, 0)))(problem, batch)
        assert together.tolist() == alone
        twice = problems.stack([problem, problem])
        both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), batch)
        _, ticks = jax.jit(jax.vmap(jax.vmap(decode_by_list, (None, 0))))(twice, both)
        assert ticks.tolist() == [alone, alone[::-1]]
        expected.append(alone)
    assert expected[0] == expected[1]
    assert len(set(expected[0])) > 1


def test_loops_become_native_functions_without_copies_of_arrays():
    rng = np.random.default_rng(6)
    case = strategies.random_case(rng, strategies.random_graph(rng, 20, 0.2), 3)
    problem, keys = case.problem(SMALL), case.padded_keys(SMALL)
    text = jax.jit(decode_by_list).lower(problem, keys).compile().as_text()
    entry = text[text.index("\nENTRY ") :]
    # A loop that XLA calls as a function of its own has left the entry for one.
    assert "xla_cpu_small_call" in entry
    assert " while(" not in entry
    bodies = re.findall(r"body=%([\w.\-]+)", text)
    assert len(bodies) >= 8
    for body in bodies:
        start = text.index(f"\n%{body} (")
        lines = text[start : text.index("\n}", start)].splitlines()
        assert [line for line in lines if re.search(r"= \w+\[\d\d+\]\S* copy\(", line)] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("device", np.zeros((24, 2))), ("device", np.zeros((2, 24, 3))), ("priority", np.zeros(23))],
)
def test_keys_of_the_wrong_shape_raise(field, value):
    rng = np.random.default_rng(0)
    case = strategies.random_case(rng, strategies.random_graph(rng, 5, 0.5), 3)
    problem, keys = case.problem(SMALL), case.padded_keys(SMALL)
    with pytest.raises(ValueError, match=rf"keys.{field} has shape .*: expected"):
        decode_by_list(problem, keys._replace(**{field: value}))
