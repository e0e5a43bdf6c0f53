"""Reference for GraphSAGE: NumPy in float64, one op at a time."""

from typing import Any

import numpy as np

from gopt.learning.graphs import GraphsTuple


def dense(params: Any, row: np.ndarray) -> np.ndarray:
    return row @ np.asarray(params["kernel"], np.float64) + params["bias"]


def normalised(params: Any, row: np.ndarray) -> np.ndarray:
    row = (row - row.mean()) / np.sqrt(row.var() + 1e-6)
    return row * params["scale"] + params["bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def mean(rows: list[np.ndarray], width: int) -> np.ndarray:
    return np.mean(rows, 0) if rows else np.zeros(width)


def embed(params: Any, kind: int, features: np.ndarray) -> np.ndarray:
    """Return the embedding of an op before message passing."""
    table = np.asarray(params["Embed_0"]["embedding"], np.float64)
    row = table[kind] + dense(params["Dense_0"], np.asarray(features, np.float64))
    return normalised(params["LayerNorm_0"], row)


def sage(params: Any, graph: GraphsTuple, rounds: int) -> np.ndarray:
    """Return embeddings of the real ops, with mean aggregation: `[n, width]`."""
    params = params["params"]
    n, e = int(graph.n_node[0]), int(graph.n_edge[0])
    uses = [
        (int(graph.senders[k]), int(graph.receivers[k]), np.asarray(graph.edges[k], np.float64))
        for k in range(e)
    ]
    rows = [
        embed(params["OpEmbedding_0"], int(graph.nodes["kind"][i]), graph.nodes["features"][i])
        for i in range(n)
    ]
    for k in range(rounds):
        width = len(graph.edges[0]) + 2 * len(rows[0])
        said = [np.concatenate([edge, rows[i], rows[j]]) for i, j, edge in uses]
        after = []
        for op in range(n):
            of_readers = [x for x, (i, _, _) in zip(said, uses, strict=True) if i == op]
            of_makers = [x for x, (_, j, _) in zip(said, uses, strict=True) if j == op]
            heard = np.concatenate([rows[op], mean(of_readers, width), mean(of_makers, width)])
            update = gelu(dense(params[f"Dense_{k}"], heard))
            after.append(normalised(params[f"LayerNorm_{k}"], rows[op] + update))
        rows = after
    return np.array(rows)


def max_sage(params: Any, graph: GraphsTuple, rounds: int) -> np.ndarray:
    """Return embeddings of the real ops, with the pooling aggregator: `[n, width]`."""
    params = params["params"]
    n, e = int(graph.n_node[0]), int(graph.n_edge[0])
    uses = [(int(graph.senders[k]), int(graph.receivers[k])) for k in range(e)]
    rows = [
        embed(params["OpEmbedding_0"], int(graph.nodes["kind"][i]), graph.nodes["features"][i])
        for i in range(n)
    ]
    width = len(rows[0])
    for k in range(rounds):
        said = [1 / (1 + np.exp(-dense(params[f"Dense_{2 * k}"], row))) for row in rows]
        after = []
        for op in range(n):
            of_makers = [said[i][:width] for i, j in uses if j == op]
            of_readers = [said[j][width:] for i, j in uses if i == op]
            heard = np.concatenate(
                [rows[op], largest(of_makers, width), largest(of_readers, width)]
            )
            update = gelu(dense(params[f"Dense_{2 * k + 1}"], heard))
            after.append(normalised(params[f"LayerNorm_{k}"], rows[op] + update))
        rows = after
    return np.array(rows)


def largest(rows: list[np.ndarray], width: int) -> np.ndarray:
    return np.max(rows, 0) if rows else np.zeros(width)
