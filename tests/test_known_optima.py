"""The instances of `tests/data`, drawn at random for these tests: their optima are proven here.

What scores solutions is tested too, and compared with another account of the same rules.
"""

import importlib.util
import json
import random
from pathlib import Path

import pytest

from tests.reference.instances import least_makespan, least_peak, makespan, peak_memory, value

DATA = Path(__file__).parent / "data"
FOLDER = Path(__file__).parents[2] / "shared" / "yardsticks"
MAKESPAN, PEAK_MEMORY = (
    json.loads((DATA / f"{name}.json").read_text()) for name in ("makespan", "peak_memory")
)
*SMALL, NO_IDLE, FREE = MAKESPAN

# Task 1 is read by both others; each transfer takes 2 s.
FORK = {"tasks": [3, 2, 3], "edges": [[1, 0, 2], [1, 2, 2]]}
# Two branches of 4 and 1 bytes: one after the other 6 bytes, side by side 9.
BRANCHES = {"sizes": [4, 4, 1, 1, 1], "edges": [[0, 2], [1, 3], [2, 4], [3, 4]]}


@pytest.mark.parametrize("instance", SMALL, ids=lambda instance: instance["name"])
def test_no_schedule_is_shorter(instance):
    assert least_makespan(instance, instance["processors"]) == instance["best"]


@pytest.mark.parametrize("processors", FREE["results"])
def test_no_schedule_without_communication_is_shorter(processors):
    assert least_makespan(FREE, int(processors)) == FREE["results"][processors]["best"]


def test_a_schedule_without_idle_time_is_the_shortest():
    device = [0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]
    start = [5, 24, 27, 33, 26, 42, 53, 4, 0, 14, 3, 38, 35, 21, 7, 0, 10, 28, 6, 4]
    assert makespan(NO_IDLE, 2, device, start) == NO_IDLE["best"] == sum(NO_IDLE["tasks"]) / 2


@pytest.mark.parametrize("instance", PEAK_MEMORY, ids=lambda instance: instance["name"])
def test_no_order_has_a_lower_peak(instance):
    assert least_peak(instance) == instance["best"]


def test_values_by_hand():
    assert makespan(FORK, 1, [0, 0, 0], [2, 0, 5]) == 8
    assert makespan(FORK, 2, [0, 0, 1], [2, 0, 4]) == 7
    assert least_makespan(FORK, 1) == 8 and least_makespan(FORK, 2) == 7
    assert peak_memory(BRANCHES, [0, 2, 1, 3, 4]) == 6
    assert peak_memory(BRANCHES, [0, 1, 2, 3, 4]) == 9
    assert least_peak(BRANCHES) == 6
    assert peak_memory({"sizes": [5, 1], "edges": []}, [1, 0]) == 6  # sinks stay


@pytest.mark.parametrize(
    ("device", "start", "message"),
    [
        ([0, 0], [2, 0, 5], "there are 3 tasks"),
        ([0, 0, 2], [2, 0, 5], "task 2 starts at 5 on device 2"),
        ([0, 0, 0], [2, -1, 5], "task 1 starts at -1"),
        ([0, 0, 0], [2, 0, 4], "tasks 0 and 2 run on device 0 at the same time"),
        ([0, 0, 1], [2, 0, 3], "task 2 starts at 3: what 1 sends arrives at 4"),
        ([0, 0, 0], [1, 0, 5], "task 0 starts at 1: what 1 sends arrives at 2"),
    ],
)
def test_what_is_no_schedule(device, start, message):
    with pytest.raises(ValueError, match=message):
        makespan(FORK, 2, device, start)


@pytest.mark.parametrize(
    ("order", "message"),
    [([0, 1, 2, 3], "expected each of 5 tasks once"), ([0, 2, 3, 1, 4], "task 3 comes before 1")],
)
def test_what_is_no_order(order, message):
    with pytest.raises(ValueError, match=message):
        peak_memory(BRANCHES, order)


def attempt(rng, instance, processors):
    """Returns a random solution, more often than not a valid one."""
    tasks = range(len(instance["tasks"] if "tasks" in instance else instance["sizes"]))
    inputs = {task: [edge for edge in instance["edges"] if edge[1] == task] for task in tasks}
    order = []
    while len(order) < len(tasks):
        ready = [t for t in tasks if t not in order and all(e[0] in order for e in inputs[t])]
        order.append(rng.choice(ready))
    if "sizes" in instance:
        if rng.random() < 0.3:
            a, b = rng.sample(tasks, 2)
            order[a], order[b] = order[b], order[a]
        return {"name": instance["name"], "order": order}
    device = [rng.randrange(processors) for _ in tasks]
    free, start = [0] * processors, [0] * len(tasks)
    for task in order:
        arrivals = [
            start[u] + instance["tasks"][u] + (sum(cost) if device[u] != device[task] else 0)
            for u, _, *cost in inputs[task]
        ]
        start[task] = max([free[device[task]], *arrivals])
        free[device[task]] = start[task] + instance["tasks"][task]
    if rng.random() < 0.3:
        start[rng.choice(tasks)] += rng.choice((-1, 1))
    row = {"name": instance["name"], "processors": processors}
    return {**row, "device": device, "start": start}


def independent_scorer():
    """Return the module that scores solutions by its own account of the rules."""
    if not FOLDER.is_dir():
        pytest.skip("needs the yardstick files, which do not come with gopt")
    spec = importlib.util.spec_from_file_location("score", FOLDER / "score.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_accounts_of_a_solution_agree():
    other = independent_scorer()
    instances = [*MAKESPAN, *PEAK_MEMORY]
    names = ("makespan_comm_small", "makespan_nocomm", "peak_memory")
    for rows in [json.loads((FOLDER / f"{name}.json").read_text()) for name in names]:
        instances += [row for row in rows if len(row.get("tasks") or row["sizes"]) <= 60][::10]
    rng, rejected = random.Random(0), 0
    for instance in instances:
        for _ in range(5):
            processors = instance.get("processors") or int(next(iter(instance.get("results", [1]))))
            solution = attempt(rng, instance, processors)
            scored = {row[0]: row for row in other.score([instance], [solution])}
            name = (
                f"{instance['name']} p={processors}" if "results" in instance else instance["name"]
            )
            _, expected, _, _, error = scored[name]
            if error:
                rejected += 1
                with pytest.raises(ValueError):
                    value(instance, solution)
            else:
                assert value(instance, solution) == expected
    assert 0.05 < rejected / (5 * len(instances)) < 0.5
