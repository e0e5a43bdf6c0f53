"""Runs of a candidate for recomputation, and their cost, in plain Python.

It shares only the arrays of a `Problem` with `gopt.cost.recompute`.
"""

import heapq
from typing import Any

from gopt.cost.recompute.problem import Problem


def links(problem: Problem, waits: Any = ()) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return the ops that each op reads, and the ops that read it, in the order of the program."""
    ops = range(int(problem.num_ops))
    reads: dict[int, set[int]] = {op: set() for op in ops}
    for k in range(int(problem.num_uses)):
        pair = int(problem.producer[problem.tensor[k]]), int(problem.consumer[k])
        if pair not in waits:
            reads[pair[1]].add(pair[0])
    readers = {op: [other for other in ops if op in reads[other]] for op in ops}
    return {op: sorted(found) for op, found in reads.items()}, readers


def sequence(problem: Problem, choices: Any, waits: Any = ()) -> list[int]:
    """Return the ops in the order in which they run."""
    _, later = links(problem)
    _, readers = links(problem, waits)
    ops = range(int(problem.num_ops))
    wanted = {op: op if choices.priority is None else float(choices.priority[op]) for op in ops}
    for op in reversed(ops):
        wanted[op] = min([wanted[op], *(wanted[other] for other in later[op])])
    order = sorted(ops, key=lambda op: (not problem.is_input[op], wanted[op], op))
    place = {op: k for k, op in enumerate(order)}
    again: dict[int, list[int]] = {}  # slots of later runs
    for op in reversed(ops):
        again[op] = []
        if not (problem.may_repeat[op] and readers[op]):
            continue
        read_at = [at for other in readers[op] for at in (place[other], *again[other])]
        for number in choices.splits[op]:
            if number != 0:
                split = place[readers[op][min(abs(int(number)), len(readers[op])) - 1]]
                after = [at for at in read_at if at > split or (number < 0 and at == split)]
                again[op] += [min(after)] if after else []
        again[op] = sorted(set(again[op]))
    runs = [(place[op], True, op) for op in ops]
    runs += [(at, False, op) for op in ops for at in again[op]]
    return [op for *_, op in sorted(runs)]


def cost(problem: Problem, runs: list[int], budget: int) -> tuple[int, int, int]:
    """Return ticks, peak and excess of a sequence of runs, with a set of held tensors."""
    reads, _ = links(problem)
    tensors: dict[int, list[int]] = {op: [] for op in reads}
    for tensor, op in enumerate(problem.producer.tolist()):
        if op in tensors:
            tensors[op].append(tensor)
    used: dict[int, set[int]] = {op: set() for op in reads}  # tensors that an op reads
    for k in range(int(problem.num_uses)):
        used[int(problem.consumer[k])].add(int(problem.tensor[k]))
    places: dict[int, list[tuple[int, int]]] = {op: [] for op in reads}  # to take at the last read
    for k in range(int(problem.num_uses)):
        places[int(problem.consumer[k])].append((int(problem.tensor[k]), int(problem.in_place[k])))
    held = {t for op in reads if problem.is_input[op] for t in tensors[op]}
    peak = excess = ticks = 0
    for step, op in enumerate(runs):
        assert held >= used[op], "a reader comes before what it reads"
        if not problem.is_input[op]:
            held |= set(tensors[op])
        later = runs[step + 1 :]

        def is_over(t: int, later: list[int] = later) -> bool:
            maker = int(problem.producer[t])
            again = later.index(maker) if maker in later else len(later)
            return not any(t in used[other] for other in later[:again])

        now = sum(int(problem.size[t]) for t in held) + int(problem.workspace[op])
        now -= max((units for t, units in places[op] if is_over(t)), default=0)
        peak, excess = max(peak, now), excess + (max(now - budget, 0) >> int(problem.excess_shift))
        ticks += int(problem.ticks[op])
        for t in [*held]:
            maker = int(problem.producer[t])
            is_waiting = (
                problem.is_input[maker] and maker in later
            )  # an input is held from the start
            if not problem.pinned[t] and not is_waiting and is_over(t):
                held.remove(t)
    return ticks, peak, excess


def least_ticks(
    problem: Problem, budget: int, max_runs: int, is_staged: bool = False
) -> int | None:
    """Return the least time of any sequence within a budget; `None` if none fits.

    A shortest path over states: how often each op ran, the last run, and the tensors in memory. A
    step runs an op or drops a tensor. Inputs are in memory at the start. If it is staged, first
    runs are in the order of the program, and so are all runs since the last first run.
    """
    ops = range(int(problem.num_ops))
    makes = {op: [t for t, maker in enumerate(problem.producer) if maker == op] for op in ops}
    pairs = zip(problem.tensor, problem.consumer, strict=True)
    pairs = [(int(t), int(op)) for t, op in pairs if op in ops]
    reads = {op: {t for t, other in pairs if other == op} for op in ops}
    wanted = {t for t, _ in pairs} | {t for op in ops for t in makes[op] if problem.pinned[t]}

    def memory(tensors: Any) -> int:
        return sum(int(problem.size[t]) for t in tensors)

    given = {t for op in ops if problem.is_input[op] for t in makes[op]}
    if memory(given) > budget:
        return None
    start = tuple(int(problem.is_input[op]) for op in ops), -1, frozenset(given & wanted)
    reached, queue = {start: 0}, [(0, 0, start)]
    while queue:
        ticks, _, state = heapq.heappop(queue)
        if reached[state] < ticks:
            continue
        counts, last, held = state
        if all(counts):
            return ticks
        moves = [(0, (counts, last, held - {t})) for t in held if not problem.pinned[t]]
        for op in ops:
            most = max_runs if problem.may_repeat[op] else 1
            if problem.is_input[op] or counts[op] >= most or not held >= reads[op]:
                continue
            is_first = counts[op] == 0
            if is_staged and (op <= last or (is_first and not all(counts[:op]))):
                continue
            now = held | set(makes[op])
            if memory(now) + int(problem.workspace[op]) <= budget:
                ran = (*counts[:op], counts[op] + 1, *counts[op + 1 :])
                mark = op if is_staged and not is_first else -1
                moves.append((int(problem.ticks[op]), (ran, mark, frozenset(now & wanted))))
        for price, other in moves:
            if ticks + price < reached.get(other, 2**62):
                reached[other] = ticks + price
                heapq.heappush(queue, (ticks + price, len(reached), other))
    return None
