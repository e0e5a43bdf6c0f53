"""Reference for the head of the local advantage network: NumPy in float64, one op at a time."""

from typing import Any

import numpy as np

from gopt.learning.graphs import GraphsTuple
from tests.reference.sage import dense, gelu, mean


def predicted(
    params: Any, nodes: np.ndarray, graph: GraphsTuple, decisions: np.ndarray
) -> np.ndarray:
    """Return the predicted local advantage of each value but 0, for each real op: `[n, K - 1]`.

    Each op receives one message from each neighbour. The message holds the neighbour's embedding
    and decision, and its own messages from all neighbours except the receiving op.
    """
    params = params["params"]
    layers = [params[f"Dense_{k}"] for k in range(7)]
    to_edge, to_decided, to_made, to_read, to_up, to_down, to_hidden = layers
    n, width = int(graph.n_node[0]), nodes.shape[1]
    uses = [
        (int(graph.senders[k]), int(graph.receivers[k]), np.asarray(graph.edges[k], np.float64))
        for k in range(int(graph.n_edge[0]))
    ]
    table = np.asarray(params["Embed_0"]["embedding"], np.float64)
    rows = np.asarray(nodes, np.float64)
    decided = [dense(to_decided, rows[op]) + table[decisions[op]] for op in range(n)]

    def says_down(k: int) -> np.ndarray:
        maker, _, edge = uses[k]
        return gelu(dense(to_made, decided[maker]) + dense(to_edge, edge))

    def says_up(k: int) -> np.ndarray:
        _, reader, edge = uses[k]
        return gelu(dense(to_read, decided[reader]) + dense(to_edge, edge))

    def above(op: int, but: int | None = None) -> np.ndarray:
        """Return the mean message from an op's producers, without the use `but`."""
        reads = [k for k, (_, reader, _) in enumerate(uses) if reader == op and k != but]
        return mean([says_down(k) for k in reads], width)

    def below(op: int, but: int | None = None) -> np.ndarray:
        """Return the mean message from an op's consumers, without the use `but`."""
        read_by = [k for k, (maker, _, _) in enumerate(uses) if maker == op and k != but]
        return mean([says_up(k) for k in read_by], width)

    result = []
    for op in range(n):
        of_readers, of_makers = [], []
        for k, (maker, reader, edge) in enumerate(uses):
            edge = dense(to_edge, edge)
            if maker == op:
                said = np.concatenate([decided[reader], edge, above(reader, but=k), below(reader)])
                of_readers.append(gelu(dense(to_up, said)))
            if reader == op:
                said = np.concatenate([decided[maker], edge, above(maker), below(maker, but=k)])
                of_makers.append(gelu(dense(to_down, said)))
        heard = [rows[op], mean(of_readers, width), mean(of_makers, width)]
        hidden = gelu(dense(to_hidden, np.concatenate(heard)))
        result.append(dense(params["Dense_7"], hidden))
    return np.array(result)
