"""Reference for segment-recurrent attention: NumPy in float64, one op at a time."""

from typing import Any

import numpy as np

from tests.reference.sage import dense, gelu, normalised


def attend(params: Any, ops: np.ndarray, count: int, *, heads: int, segment: int) -> np.ndarray:
    """Return embeddings of the first `count` ops, which attend only to these: `[count, width]`."""
    params = params["params"]
    ops = np.asarray(ops, np.float64)
    width = ops.shape[1] // heads
    queries = ops @ np.asarray(params["Dense_0"]["kernel"], np.float64)
    both = ops @ np.asarray(params["Dense_1"]["kernel"], np.float64)
    keys, values = both[:, : ops.shape[1]], both[:, ops.shape[1] :]
    result = []
    for op in range(count):
        first = max(0, (op // segment - 1) * segment)
        last = min(count, (op // segment + 1) * segment)
        mixed = []
        for head in range(heads):
            at = slice(head * width, (head + 1) * width)
            scores = keys[first:last, at] @ queries[op, at] / np.sqrt(width)
            weights = np.exp(scores - scores.max())
            mixed.append(weights / weights.sum() @ values[first:last, at])
        row = normalised(
            params["LayerNorm_0"], ops[op] + dense(params["Dense_2"], np.concatenate(mixed))
        )
        inner = params["MLP_0"]  # its second layer is created first
        update = dense(inner["Dense_0"], gelu(dense(inner["Dense_1"], row)))
        result.append(normalised(params["LayerNorm_1"], row + update))
    return np.array(result)
