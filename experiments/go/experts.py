"""Split each model of the table as practitioners do: by layer, and by time step.

Ops are distinguished by the modules that they come from, forwards and backwards. Ops without a
module (a loss, the update of a weight) follow the producer of the largest tensor that they read,
the last one on ties. So a residual sum belongs to the layer that it ends. Input ops are placed by
`gopt.cost.schedule.dispatch.legalize_placement`.
"""

import re
from collections.abc import Callable

import numpy as np

from experiments.go.rows import Step
from gopt.cost.schedule.problem import Problem

# Layer of a module, by family; the first pattern that matches counts. `last` stands
# for the last layer.
_LAYERS: dict[str, tuple[tuple[str, Callable[[int, int], int]], ...]] = {
    "rnnlm": (
        (r"LSTMCell_(\d+)", lambda k, last: k),
        (r"Embed_(\d+)", lambda k, last: 0),
        (r"Dense_(\d+)", lambda k, last: last),
    ),
    "gnmt": (
        (r"Encoder_0/LSTMCell_(\d+)", lambda k, last: k + 1),
        (r"Decoder_0/LSTMCell_(\d+)", lambda k, last: k),
        (r"(?:Encoder_0/(?:for|back)ward|Decoder_0/Attention_(\d+)|Embed_\d+)", lambda k, last: 0),
        (r"Dense_(\d+)", lambda k, last: last),
    ),
    "transformer_xl": (
        (r"RelativeAttention_(\d+)", lambda k, last: k),
        (r"(?:LayerNorm|Dense)_(\d+)", lambda k, last: k // 2),
        (r"AdaptiveSoftmax_(\d+)", lambda k, last: last),
    ),
    "wavenet": (
        (r"(?:Layer|residual)_(\d+)", lambda k, last: k),
        (r"(?:Upsample|entry)(?:_(\d+))?", lambda k, last: 0),
        (r"(?:head|distribution)(?:_(\d+))?", lambda k, last: last),
    ),
}


def by_layer(step: Step, problem: Problem, family: str, layers: int) -> np.ndarray:
    """Return the device of each op in a split by layers, int64 `[n]`.

    Each device has equally many layers, or in models of cells layers of about equal time.
    """
    layer = layers_of(step, family, layers)
    count = problem.num_devices
    if family in _LAYERS:
        device = np.where(layer >= 0, layer * count // layers, -1)
    else:  # contiguous modules of about equal time
        ticks = np.asarray(problem.op_ticks)[: layer.size, 0]
        each = np.bincount(layer[layer >= 0], ticks[layer >= 0])
        middle = (np.cumsum(each) - each / 2) / each.sum()
        of_layer = np.minimum((middle * count).astype(np.int64), count - 1)
        device = np.where(layer >= 0, of_layer[layer], -1)
    return follow(problem, device)


def by_step(step: Step, problem: Problem) -> np.ndarray:
    """Return the split of a recurrent model by time steps, equally many per device, int64 `[n]`.

    The ops of a module are one copy for each time step, forwards in order, backwards in reverse.
    """
    count = problem.num_devices
    device = np.full(len(step.names), -1)
    modules = np.array([_module(name) for name in step.names])
    backward = np.array(["transpose(" in name for name in step.names])
    is_cell = np.array(["LSTMCell" in m or "forward" in m or "backward" in m for m in modules])
    cells = np.array([re.sub(r"/Dense_0$", "", m) for m in modules])
    for cell in np.unique(cells[is_cell]):
        for direction in (False, True):
            ops = np.flatnonzero(is_cell & (cells == cell) & (backward == direction))
            share = np.arange(ops.size) / max(ops.size, 1)
            if direction != cell.endswith("backward"):
                share = 1 - 1e-9 - share
            device[ops] = (share * count).astype(np.int64)
    return follow(problem, device)


def layers_of(step: Step, family: str, layers: int) -> np.ndarray:
    """Return the layer of each op, -1 for ops without a layer, int64 `[n]`.

    In models of cells or blocks each top-level module is a layer, in the order of their first ops.
    """
    modules = [_module(name) for name in step.names]
    if family not in _LAYERS:
        tops = [module.split("/")[0] for module in modules]
        order = {top: k for k, top in enumerate(dict.fromkeys(filter(None, tops)))}
        return np.array([order.get(top, -1) for top in tops])

    def layer(module: str) -> int:
        for pattern, find in _LAYERS[family]:
            if found := re.match(pattern, module):
                return min(find(int(found[1] or 0), layers - 1), layers - 1)
        return -1

    return np.array([layer(module) for module in modules])


def follow(problem: Problem, device: np.ndarray) -> np.ndarray:
    """Return devices with all unplaced ops (-1) placed, int64 `[n]`.

    An unplaced op goes to the placed producer of the largest tensor that it reads, the last one on
    ties. Without such a producer, it goes to its first placed consumer. Input ops do not count;
    they are put on the first device.
    """
    device = device.copy()
    is_input = np.asarray(problem.is_input)
    producer, size = np.asarray(problem.producer), np.asarray(problem.size)
    first_read, read = np.asarray(problem.first_read), np.asarray(problem.read)
    for op in range(device.size):
        if device[op] < 0 and not is_input[op]:
            tensors = read[first_read[op] : first_read[op + 1]]
            made = [t for t in tensors if device[producer[t]] >= 0]
            known = [t for t in made if not is_input[producer[t]]]
            if known:
                device[op] = device[producer[max(known, key=lambda t: (size[t], t))]]
    tensor = np.asarray(problem.tensor)[: int(problem.num_uses)]
    readers: list[list[int]] = [[] for _ in device]
    for op, reader in zip(producer[tensor], np.asarray(problem.consumer), strict=False):
        readers[op].append(reader)
    for op in reversed(range(device.size)):
        if device[op] < 0 and not is_input[op]:
            device[op] = next((device[i] for i in sorted(readers[op]) if device[i] >= 0), -1)
    return np.maximum(device, 0)


def _module(name: str) -> str:
    """Return the path of the module that an op comes from, without the model itself."""
    parts = name.split("/")[:-1]
    return "/".join(parts[1:]) if parts and "jvp(" in parts[0] else ""
