"""Reference for HDP: plain Python and NumPy in float64, one op and one group at a time."""

from typing import Any

import numpy as np

from gopt.cost.schedule.problem import Problem
from gopt.graph.kinds import KINDS


def _uses(problem: Problem) -> list[tuple[int, int]]:
    uses = range(int(problem.num_uses))
    return [(int(problem.producer[problem.tensor[k]]), int(problem.consumer[k])) for k in uses]


def dimensions(graph: Any, op: int, absent: int) -> list[float]:
    """Return the first five dimensions of the first five outputs of an op, flat: `[25]`."""
    made = [t for t in range(int(graph.num_tensors)) if graph.producer[t] == op][:5]
    made += [None] * (5 - len(made))
    rows = [[-1] * 5 if t is None else graph.shape[t][:5] for t in made]
    return [float(d) if d >= 0 else absent for row in rows for d in row]


def features(graph: Any, problem: Problem) -> np.ndarray:
    """Return the grouper's features of each real op, `[n, 45]`."""
    n, uses = int(graph.num_ops), _uses(problem)
    rows = []
    for op in range(n):
        shapes = [np.log1p(d) if d >= 0 else -1 for d in dimensions(graph, op, -1)]
        read = sorted({i for i, j in uses if j == op})
        readers = sorted({j for i, j in uses if i == op})
        near = ([(i, -1) for i in read] + [(j, 1) for j in readers])[:10]
        near += [(op, 0)] * (10 - len(near))
        rows.append(shapes + [i for i, _ in near] + [d for _, d in near])
    result = np.zeros((n, 45))
    placed = [op for op in range(n) if not problem.is_input[op]]
    for column in range(45):
        values = np.array([rows[op][column] for op in placed], np.float64)
        for op in placed:
            spread = values.std()
            if spread > 1e-6:
                result[op, column] = (rows[op][column] - values.mean()) / spread
    return result


def member_of(problem: Problem, group: np.ndarray) -> list[int | None]:
    """Return the group of each real op; for an input its first consumer's, or None without one."""
    n, uses = int(problem.num_ops), _uses(problem)
    result = []
    for op in range(n):
        readers = [j for i, j in uses if i == op]
        if not problem.is_input[op]:
            result.append(int(group[op]))
        else:
            result.append(int(group[min(readers)]) if readers else None)
    return result


def group_embedding(graph: Any, problem: Problem, group: np.ndarray, groups: int) -> np.ndarray:
    """Return the placer's features of each group, `[K, F]`, given the group of each op, `[N]`."""
    member = member_of(problem, group)
    rows = []
    for k in range(groups):
        read_by, reads = [0.0] * groups, [0.0] * groups
        kinds, shapes = [0.0] * len(KINDS), [0.0] * 25
        for i, j in _uses(problem):
            if member[i] == k and member[j] is not None:
                read_by[member[j]] += 1
            if member[j] == k and member[i] is not None:
                reads[member[i]] += 1
        for op, of in enumerate(member):
            if of == k:
                kinds[int(graph.kind[op])] += 1
                shapes = [a + b for a, b in zip(shapes, dimensions(graph, op, 0), strict=True)]
        parts = (read_by, reads, kinds, shapes)
        rows.append([x / (1 + max(part)) for part in parts for x in part])
    return np.array(rows)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    chances = np.exp(x - x.max())
    return chances / chances.sum()


def lstm(params: Any, cell: np.ndarray, hidden: np.ndarray, row: np.ndarray) -> Any:
    into, forget, new, out = (
        row @ params[f"i{gate}"]["kernel"] + _dense(params[f"h{gate}"], hidden) for gate in "ifgo"
    )
    cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(new)
    return cell, sigmoid(out) * np.tanh(cell)


def group_chances(params: Any, kind: int, features: np.ndarray, spread: float) -> np.ndarray:
    """Return the probabilities of the groups of one op."""
    hidden = params["of_kind"]["embedding"][kind] + _dense(params["of_features"], features)
    return softmax(spread * _dense(params["to_group"], hidden))


def device_log_prob(
    params: Any, groups: np.ndarray, device: np.ndarray, bound: float, temperature: float
) -> float:
    """Return the log-probability of the devices of groups, given group embeddings `[K, F]`."""
    half = len(params["recall"]["kernel"]) // 2
    states = []
    for way, order in (("forwards", groups), ("backwards", groups[::-1])):
        cell, hidden, found = np.zeros(half), np.zeros(half), []
        for row in order:
            cell, hidden = lstm(params[way]["cell"], cell, hidden, row)
            found.append(hidden)
        states.append((cell, hidden, found))
    (cell, hidden, ahead), (last_cell, last_hidden, behind) = states
    cell, hidden = np.concatenate([cell, last_cell]), np.concatenate([hidden, last_hidden])
    memory = [
        _dense(params["recall"], np.concatenate(both))
        for both in zip(ahead, behind[::-1], strict=True)
    ]
    one_hot = np.eye(len(params["decoder"]["ii"]["kernel"]))  # rows: devices, and none
    total, before = 0.0, len(one_hot) - 1
    for chosen in device:
        cell, hidden = lstm(params["decoder"], cell, hidden, one_hot[before])
        scores = [np.tanh(hidden @ params["ask"] + row) @ params["score"][:, 0] for row in memory]
        context = sum(w * row for w, row in zip(softmax(np.array(scores)), memory, strict=True))
        logits = np.concatenate([hidden, context]) @ params["to_device"]
        chances = softmax(bound * np.tanh(logits / temperature))
        total, before = total + np.log(chances[chosen]), chosen
    return total


def _dense(params: Any, row: np.ndarray) -> np.ndarray:
    return row @ params["kernel"] + params.get("bias", 0)
