"""Benchmark instances as graphs."""

import numpy as np
import pytest

from gopt.cost import hardware as machines
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import prepare
from gopt.sources.instances import makespan_instance, peak_memory_instance, profiled_step
from tests.reference.execution import run

# Task 2 feeds 0 and 1: the numbers are in no topological order.
MAKESPAN = {"tasks": [3, 4, 2], "edges": [[2, 0, 5], [2, 1], [0, 1, 7]]}
PEAK = {"sizes": [3, 4, 2], "edges": [[2, 0], [2, 1], [0, 1]]}


def test_tasks_are_renumbered_and_an_edge_is_a_tensor():
    graph, hardware, seconds, task = makespan_instance(MAKESPAN, 3)
    assert task.tolist() == [2, 0, 1]
    assert seconds.tolist() == [2, 3, 4]
    assert graph.producer.tolist() == [0, 0, 1]
    edges = zip(graph.producer[graph.tensor], graph.consumer, graph.size[graph.tensor], strict=True)
    assert sorted((task[u], task[v], size) for u, v, size in edges) == [
        (0, 1, 7),
        (2, 0, 5),
        (2, 1, 0),
    ]
    problem = prepare(graph, hardware, seconds=seconds)
    assert (problem.num_devices, problem.tick) == (3, 1)
    assert (problem.channel == -1).all()
    assert not problem.is_input.any()


def test_an_edge_costs_between_processors_only():
    graph, hardware, seconds, _ = makespan_instance(MAKESPAN, 2)
    problem = prepare(graph, hardware, seconds=seconds)
    n, t, _ = problem.shape

    def makespan(*device):
        keys = Keys(np.zeros((n, 2)), np.linspace(0, 1, n), np.zeros((t, 2)))
        keys.device[np.arange(3), device] = 1
        return run(problem, keys).makespan

    assert makespan(0, 0, 0) == 9
    assert makespan(0, 0, 1) == 2 + 3 + 7 + 4
    assert makespan(0, 1, 1) == 2 + 5 + 3 + 4


def test_parallel_edges_are_tensors_of_their_own():
    graph = makespan_instance({"tasks": [1, 1], "edges": [[0, 1, 5], [0, 1, 9]]}, 2).graph
    assert graph.size.tolist() == [5, 9]


def test_peak_memory_has_a_tensor_for_each_task_and_pins_sinks():
    graph, hardware, seconds, task = peak_memory_instance(PEAK)
    assert task.tolist() == [2, 0, 1]
    assert graph.size.tolist() == [2, 3, 4]
    assert graph.pinned.tolist() == [False, False, True]
    problem = prepare(graph, hardware, seconds=seconds)
    assert problem.num_devices == 1
    n, t, _ = problem.shape
    keys = Keys(np.zeros((n, 1)), np.zeros(n), np.zeros((t, 1)))
    assert run(problem, keys).peak == [9]


@pytest.mark.parametrize(
    "change, message",
    (
        ({"tasks": None}, "no 'tasks'"),
        ({"edges": None}, "no 'edges'"),
        ({"tasks": []}, "tasks is empty"),
        ({"tasks": [1, -1, 1]}, r"tasks\[1\] is -1"),
        ({"tasks": [1, 1, float("nan")]}, r"tasks\[2\] is nan"),
        ({"edges": [[0, 1], [1, 3]]}, r"edges\[1\] is \[1, 3\]"),
        ({"edges": [[0]]}, r"edges\[0\] is \[0\]"),
        ({"edges": [[0, 1, 2, 3]]}, r"edges\[0\]"),
        ({"edges": [[-1, 1, 2]]}, r"edges\[0\]"),
        ({"edges": [[0, 1, 2.5]]}, r"edges\[0\] costs 2.5: expected a whole number"),
        ({"edges": [[0, 1, -2]]}, r"edges\[0\]\[2\] is -2"),
        ({"edges": [[0, 1, float("inf")]]}, r"edges\[0\]\[2\] is inf"),
        ({"edges": [[0, 1, "5"]]}, r"edges\[0\]\[2\] is '5'"),
        ({"edges": [[0, True]]}, r"edges\[0\] is \[0, True\]"),
        ({"edges": [[0, 1.0]]}, r"edges\[0\] is \[0, 1.0\]"),
        ({"edges": [[0, 10**400]]}, r"edges\[0\] is \[0, 1000"),
        ({"edges": [3]}, r"edges\[0\] is 3"),
        ({"edges": ["01"]}, r"edges\[0\] is '01'"),
        ({"edges": {}}, "edges has type dict: expected"),
        ({"tasks": 3}, "tasks has type int: expected a number for each task"),
        ({"tasks": "123"}, "tasks has type str"),
        ({"tasks": [1, "1", 1]}, r"tasks\[1\] is '1'"),
        ({"tasks": [1, True, 1]}, r"tasks\[1\] is True"),
        ({"tasks": [1, [1], 1]}, r"tasks\[1\] is \[1\]"),
        ({"tasks": [1, 1, 10**400]}, r"tasks\[2\] is 1000"),
        ({"edges": [[0, 1], [1, 2], [2, 0]]}, "cycle"),
        ({"edges": [[1, 1]]}, "cycle"),
    ),
)
def test_what_is_not_valid_is_named(change, message):
    instance = {k: v for k, v in {**MAKESPAN, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        makespan_instance(instance, 2)


@pytest.mark.parametrize("processors", [0, -1, 2.5, "2", True, 2**31])
def test_processors_are_a_whole_number(processors):
    with pytest.raises(ValueError, match=f"processors is {processors!r}: expected a whole number"):
        makespan_instance(MAKESPAN, processors)


@pytest.mark.parametrize("instance", [[], 3, None, "tasks"])
def test_an_instance_that_is_no_object_is_refused(instance):
    for read in (lambda x: makespan_instance(x, 2), peak_memory_instance, profiled_step):
        with pytest.raises(ValueError, match=r"instance has type .*: expected lists by name"):
            read(instance)


@pytest.mark.parametrize(
    "change, message",
    (
        ({"sizes": None}, "no 'sizes'"),
        ({"sizes": [1, 0.5, 2]}, r"sizes\[1\] is 0.5: expected whole bytes"),
        ({"edges": [[0, 1], [1, 2], [2, 0]]}, "cycle"),
    ),
)
def test_bad_peak_memory_instances_are_named(change, message):
    instance = {k: v for k, v in {**PEAK, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        peak_memory_instance(instance)


def layer(forward, backward, activations, parameters):
    values = forward, backward, activations, parameters
    keys = "forward_ms", "backward_ms", "activation_bytes", "parameter_bytes"
    return dict(zip(keys, values, strict=True))


# Layer 1 is read by both others, layer 0 is the last.
NETWORK = {
    "nodes": [layer(1, 2, 30, 0), layer(3, 4, 10, 7), layer(5, 6, 20, 5)],
    "edges": [[1, 2], [1, 0], [2, 0]],
}


def test_a_profiled_layer_is_an_op_forwards_and_one_backwards():
    graph, names, seconds = profiled_step(NETWORK)
    time = dict(zip(names, (1000 * seconds).tolist(), strict=True))
    ahead, back = (
        [f"{start}/{k}/{end}" for k in range(3)]
        for start, end in (("jvp(network)", "forward"), ("transpose(jvp(network))", "backward"))
    )
    held = ["1/parameters", "2/parameters"]
    expected = dict(zip(ahead + back + held, (1, 3, 5, 2, 4, 6, 0, 0), strict=True))
    assert time == pytest.approx(expected)
    uses = sorted(
        (names[graph.producer[t]], names[c], graph.size[t])
        for t, c in zip(graph.tensor, graph.consumer, strict=True)
    )
    activations = [(ahead[k], back[k], size) for k, size in enumerate((30, 10, 20))]
    edges = [(ahead[1], ahead[2], 10), (ahead[1], ahead[0], 10), (ahead[2], ahead[0], 20)]
    gradients = [(back[2], back[1], 10), (back[0], back[1], 10), (back[0], back[2], 20)]
    weights = [
        (held[k - 1], reader[k], size) for k, size in ((1, 7), (2, 5)) for reader in (ahead, back)
    ]
    assert uses == sorted(activations + edges + gradients + weights)
    pinned = {(names[graph.producer[t]], graph.size[t]) for t in np.flatnonzero(graph.pinned)}
    assert pinned == {(back[1], 7), (back[2], 5)}
    problem = prepare(graph, machines.ideal(2), seconds=seconds)
    is_input = np.asarray(problem.is_input)[: len(names)]
    assert {names[k] for k in np.flatnonzero(is_input)} == set(held)


@pytest.mark.parametrize(
    "change, message",
    (
        ({"nodes": []}, "forward_ms is empty"),
        ({"nodes": 3}, "nodes has type int: expected layers"),
        ({"nodes": [layer(1, "x", 1, 1)]}, r"backward_ms\[0\] is 'x'"),
        ({"nodes": [layer(1, None, 1, 1)]}, r"backward_ms\[0\] is None"),
        ({"nodes": [{"forward_ms": 1}] * 3}, r"backward_ms\[0\] is nan"),
        ({"nodes": [layer(1, 1, 1, -1)]}, r"parameter_bytes\[0\] is -1"),
        ({"nodes": [layer(1, 1, 1, 1.5)]}, r"parameter_bytes\[0\] is 1.5: expected whole bytes"),
        ({"nodes": ["conv"]}, r"nodes\[0\] is 'conv': expected a layer"),
        ({"edges": [[0, 3]]}, r"edges\[0\] is \[0, 3\]"),
        ({"edges": [[0, 1], [1, 0]]}, "cycle"),
    ),
)
def test_what_is_no_profile_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        profiled_step(NETWORK | change)
