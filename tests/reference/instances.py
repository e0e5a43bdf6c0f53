"""Scorer for solutions of benchmark instances, and exhaustive search for optima of small ones.

Formats follow `experiments.yardsticks`. The code follows the definitions of the two problems, and
is slow on purpose.
"""

import functools
import itertools
from typing import Any


def makespan(instance: dict[str, Any], processors: int, device: list, start: list) -> float:
    """Return the end of a schedule, in s.

    Raises:
      ValueError: the schedule is invalid on this number of processors; the message says why.
    """
    tasks = instance["tasks"]
    if not len(device) == len(start) == len(tasks):
        raise ValueError(f"there are {len(tasks)} tasks: expected a device and a start for each")
    for task in range(len(tasks)):
        if device[task] not in range(processors) or not start[task] >= 0:
            raise ValueError(f"task {task} starts at {start[task]} on device {device[task]}")
    end = [begin + time for begin, time in zip(start, tasks, strict=True)]
    for u, v, *cost in instance["edges"]:
        arrives = end[u] + (sum(cost) if device[u] != device[v] else 0)
        if start[v] < arrives:
            raise ValueError(f"task {v} starts at {start[v]}: what {u} sends arrives at {arrives}")
    for a, b in itertools.combinations(range(len(tasks)), 2):
        if device[a] == device[b] and max(start[a], start[b]) < min(end[a], end[b]):
            raise ValueError(f"tasks {a} and {b} run on device {device[a]} at the same time")
    return max(end)


def peak_memory(instance: dict[str, Any], order: list[int]) -> float:
    """Return the peak memory over the steps of an order, in bytes.

    A task's output is held from the task's step to the step of its last reader. It is held to the
    end if it has no reader.

    Raises:
      ValueError: the order is not a topological order of the tasks.
    """
    sizes, steps = instance["sizes"], range(len(instance["sizes"]))
    if sorted(order) != [*steps]:
        raise ValueError(f"order is {order}: expected each of {len(sizes)} tasks once")
    step = {task: position for position, task in enumerate(order)}
    last = {task: len(sizes) - 1 for task in steps}
    for u in {u for u, _ in instance["edges"]}:
        last[u] = max(step[reader] for v, reader in instance["edges"] if v == u)
    for u, v in instance["edges"]:
        if step[v] < step[u]:
            raise ValueError(f"task {v} comes before {u}, which it reads")
    return max(sum(sizes[u] for u in steps if step[u] <= now <= last[u]) for now in steps)


def value(instance: dict[str, Any], solution: dict[str, Any]) -> float:
    """Return the value of a solution of either problem."""
    if "sizes" in instance:
        return peak_memory(instance, solution["order"])
    return makespan(instance, solution["processors"], solution["device"], solution["start"])


def least_makespan(instance: dict[str, Any], processors: int) -> float:
    """Return the makespan of the best schedule, by branch and bound.

    Each task is tried on each processor, in each order of starts. A partial schedule is skipped if
    the longest remaining path, or the remaining work on all processors, cannot improve on the best.
    """
    tasks, edges = instance["tasks"], instance["edges"]
    inputs: list[list[tuple[int, float]]] = [[] for _ in tasks]
    for u, v, *cost in edges:
        inputs[v].append((u, sum(cost)))

    @functools.cache
    def path(task: int) -> float:
        return tasks[task] + max((path(v) for u, v, *_ in edges if u == task), default=0)

    best = float(sum(tasks))  # all tasks on one processor

    def extend(done: dict[int, tuple[int, float]], free: list[float]) -> None:
        nonlocal best
        if len(done) == len(tasks):
            best = min(best, max(free))
            return
        left = [task for task in range(len(tasks)) if task not in done]
        if sum(free) + sum(tasks[task] for task in left) >= best * processors:
            return
        for task in left:
            if not all(u in done for u, _ in inputs[task]):
                continue
            for device in range(processors):
                arrivals = [
                    done[u][1] + (cost if done[u][0] != device else 0) for u, cost in inputs[task]
                ]
                begin = max([free[device], *arrivals])
                # Add tasks in order of starts, so that no schedule is visited twice.
                if begin + path(task) < best and begin >= latest(done):
                    end = begin + tasks[task]
                    freed = [end if d == device else t for d, t in enumerate(free)]
                    extend({**done, task: (device, end)}, freed)

    def latest(done: dict[int, tuple[int, float]]) -> float:
        return max((end - tasks[task] for task, (_, end) in done.items()), default=0)

    extend({}, [0.0] * processors)
    return best


def least_peak(instance: dict[str, Any]) -> float:
    """Return the peak of the best order, by dynamic programming over sets of finished tasks."""
    sizes, edges = instance["sizes"], instance["edges"]
    readers = [{v for u, v in edges if u == task} for task in range(len(sizes))]
    inputs = [{u for u, v in edges if v == task} for task in range(len(sizes))]

    @functools.cache
    def rest(done: frozenset[int]) -> float:
        """Return the lowest peak from here to the end."""
        held = sum(sizes[u] for u in done if not readers[u] or readers[u] - done)
        ready = [task for task in range(len(sizes)) if task not in done and inputs[task] <= done]
        return min((max(held + sizes[t], rest(done | {t})) for t in ready), default=0)

    return rest(frozenset())
