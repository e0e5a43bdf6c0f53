"""Reference for the observation of GO's policy: features of groups and values, with loops."""

from typing import Any

import numpy as np

from gopt.cost.schedule.problem import Problem
from gopt.systems.go.features import BINS
from gopt.systems.go.inputs import Inputs


def state(
    problem: Problem,
    inputs: Inputs,
    group: Any,
    value: Any,
    values: int,
    mine: Any,
    timing: Any,
) -> dict[int, np.ndarray]:
    """Return the observation `[V, F]` of each group that has ops of the task, by group."""
    n, uses = int(problem.num_ops), int(problem.num_uses)
    time, sent = np.float64(inputs.share), np.float64(inputs.sent)
    device, tensor = timing.device, problem.tensor
    devices, whole = inputs.allowed.shape[1], max(int(timing.makespan), 1)
    critical = [int(timing.slack[i]) == 0 for i in range(n)]
    moments = [
        min(int(np.float32(BINS) * (np.float32(timing.start[i]) / np.float32(whole))), BINS - 1)
        for i in range(n)
    ]

    def scaled(share: float) -> float:
        return float(np.log1p(1e4 * share) / np.log1p(1e4))

    def busy(values: int, of: Any, moment: int) -> list[float]:
        at = [i for i in range(n) if moments[i] == moment]
        each = [sum(time[i] for i in at if of[i] == v) for v in range(values)]
        return [x / max(sum(each), 1e-9) for x in each]

    load_of = [busy(values, value, moment) for moment in range(BINS)]
    crowd_of = [busy(devices, device, moment) for moment in range(BINS)]
    all_urgent = [
        sum(time[i] for i in range(n) if critical[i] and value[i] == v) for v in range(values)
    ]
    all_urgent = [x / max(sum(all_urgent), 1e-9) for x in all_urgent]
    found = {}
    for name in sorted({int(group[i]) for i in range(n)}):
        members = [i for i in range(n) if group[i] == name and mine[i]]
        weight = np.array([time[i] + 1e-9 for i in members])
        if not members:
            continue
        share = sum(time[i] for i in members)

        def mean(x: Any, weight: Any = weight) -> float:
            return float((weight * np.array(x)).sum() / weight.sum())

        reads, gives, away = np.zeros(values), np.zeros(values), 0.0
        urgent_reads, urgent_gives = np.zeros(values), np.zeros(values)
        for use in range(uses):
            maker = int(problem.producer[tensor[use]])
            reader = int(problem.consumer[use])
            is_away = device[maker] != device[reader]
            there = (
                timing.transfer_arrival[tensor[use]][device[reader]]
                if is_away
                else timing.end[maker]
            )
            if group[maker] != group[reader]:
                reads[value[maker]] += sent[use] * (group[reader] == name)
                gives[value[reader]] += sent[use] * (group[maker] == name)
                if critical[reader] and int(there) == int(timing.start[reader]):
                    urgent_reads[value[maker]] += sent[use] * (group[reader] == name)
                    urgent_gives[value[reader]] += sent[use] * (group[maker] == name)
            away += sent[use] * (group[maker] == name and is_away)
        crowd = mean([crowd_of[moments[i]][device[i]] for i in members])
        urgent = sum(time[i] for i in members if critical[i])
        waited = [timing.start[i] - timing.arrived[i] for i in members if critical[i]]
        local_slack = [timing.local_slack[i] for i in members if critical[i]]
        same = [
            scaled(share),
            crowd,
            scaled(away),
            mean([timing.start[i] / whole for i in members]),
        ]
        same += [scaled(urgent), urgent / max(share, 1e-9)]
        same += [scaled(min(timing.slack[i] for i in members) / whole)]
        same += [
            scaled(max(waited, default=0) / whole),
            scaled(max(local_slack, default=0) / whole),
        ]
        rows = []
        for v in range(values):
            here = mean([value[i] == v for i in members])
            load = values * sum(time[i] for i in range(n) if value[i] == v)
            held = sum(float(inputs.bytes[i]) for i in range(n) if value[i] == v)
            meets = values * mean([load_of[moments[i]][v] for i in members])
            row = [here, reads[v] / max(reads.sum(), 1e-9), gives[v] / max(gives.sum(), 1e-9)]
            row += [scaled(reads[v]), scaled(gives[v])]
            row += [scaled(urgent_reads[v]), scaled(urgent_gives[v])]
            row += [load, load + values * share * (1 - here), meets, all_urgent[v]]
            rows.append([*row, np.log1p(held), v / max(values - 1, 1), *same])
        found[name] = np.array(rows)
    return found
