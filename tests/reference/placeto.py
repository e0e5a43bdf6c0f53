"""Reference for Placeto: plain Python and NumPy in float64, one group at a time."""

from typing import Any

import numpy as np


def uses(problem: Any, group: np.ndarray) -> set[tuple[int, int]]:
    """Return pairs of a group and another one that reads a tensor of it."""
    pairs = set()
    for k in range(int(problem.num_uses)):
        maker = int(problem.producer[problem.tensor[k]])
        pairs.add((int(group[maker]), int(group[problem.consumer[k]])))
    return {(i, j) for i, j in pairs if i != j}


def reached(pairs: set[tuple[int, int]], start: int) -> set[int]:
    """Return the other groups that paths reach from a group."""
    seen, stack = set(), [start]
    while stack:
        i = stack.pop()
        for a, b in pairs:
            if a == i and b not in seen:
                seen.add(b)
                stack.append(b)
    return seen - {start}


def mlp(params: Any, x: np.ndarray, ends: bool = False) -> np.ndarray:
    """Apply dense layers with ReLU between them, and also after the last if `ends`."""
    for k in range(len(params)):
        layer = params[f"Dense_{k}"]
        x = x @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"], np.float64)
        if ends or k + 1 < len(params):
            x = np.maximum(x, 0)
    return x


def logits(params: Any, inputs: Any, device: list[int], visited: int, rounds: int) -> np.ndarray:
    """Return the logits of the devices for the visited group, `[D]`."""
    params, devices = params["params"], inputs.problem.num_devices
    pairs, groups = uses(inputs.problem, inputs.group), range(len(device))
    nodes = []
    for i in groups:
        row = [*map(float, inputs.about[i]), float(i < visited), float(i == visited)]
        nodes.append(row + [float(device[i] == d) for d in range(devices)])
    own = mlp(params["MLP_0"], np.array(nodes))

    def aggregated(name: str, rows: list[np.ndarray], weight: float) -> np.ndarray:
        part = params[name]
        total = sum(mlp(part["before"], row, ends=True) * weight for row in rows)
        return mlp(part["after"], np.asarray(total), ends=True)

    heard = []
    for name, near in (
        ("Aggregator_0", [[a for a, b in pairs if b == i] for i in groups]),
        ("Aggregator_1", [[b for a, b in pairs if a == i] for i in groups]),
    ):
        now = own
        for _ in range(rounds):
            now = np.array(
                [
                    own[i] + (aggregated(name, [now[j] for j in near[i]], 1.0) if near[i] else 0)
                    for i in groups
                ]
            )
        heard.append(now)
    embedded = np.concatenate(heard, 1)
    below = reached(pairs, visited)
    above = {i for i in groups if visited in reached(pairs, i)}
    beside = set(groups) - above - below - {visited}
    around = [embedded[visited]]
    for k, members in enumerate((above, below, beside)):
        rows = [embedded[i] for i in sorted(members)] or [np.zeros(embedded.shape[1])]
        weight = 1 / len(members) if members else 0.0
        around.append(aggregated(f"Aggregator_{2 + k}", rows, weight))
    return mlp(params["MLP_1"], np.concatenate(around))


def visits(params: Any, inputs: Any, last: list[int], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probability of the action, and the entropy, of each visit, `[K]` each."""
    chosen, entropy = [], []
    for visited in range(len(last)):
        device = [last[i] if i < visited else 0 for i in range(len(last))]
        scores = logits(params, inputs, device, visited, rounds)
        log_probs = scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())
        chosen.append(log_probs[last[visited]])
        entropy.append(-(np.exp(log_probs) * log_probs).sum())
    return np.array(chosen), np.array(entropy)
