"""Define the fourteen rows of GO's placement table: models, devices and published step times.

Other rows are networks whose layers were profiled (`profiled`).

Model families, numbers of layers, batch sizes of Inception and devices are as in the table.
Unpublished sizes are our choice:

- RNNLM has 40 steps of width 2048 for 64 sentences;
- GNMT has the sizes of MLPerf, except for the number of layers;
- Transformer-XL has the sizes for enwik8 with 16 sequences, except for the number of layers;
- AmoebaNet-A is the mobile model, with 64 images;
- WaveNet's `2x18` is read as 2 stacks of 18 layers together.

All are training steps, unrolled over time.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from gopt.graph.graph import Graph
from gopt.graph.tracing import trace
from gopt.sources.instances import profiled_step
from gopt.workloads import WORKLOADS


class Published(NamedTuple):
    """Seconds of a step in GO's table: GO-one, the human expert, and HDP."""

    go: float
    human: float
    hdp: float


class Row(NamedTuple):
    """One row of the table.

    Attributes:
      family: family in `gopt.workloads.WORKLOADS`, or the name of a profiled network.
      sizes: sizes of the model.
      devices: number of devices.
      published: step times of GO's table.
      profile: profile of a network that is not traced, see `profiled_step`.
    """

    family: str
    sizes: dict[str, Any]
    devices: int
    published: Published | None = None
    profile: Any = None


class Step(NamedTuple):
    """A training step to be placed. `N` ops.

    Attributes:
      graph: graph of the step.
      names: names of ops: "jvp(Model)/module/op", backwards "transpose(jvp(Model))/...".
      seconds: float64 [N], profiled times; if None, a machine's roofline gives the times.
    """

    graph: Graph
    names: tuple[str, ...]
    seconds: Any = None


_RNNLM = dict(batch=64, length=40, hidden=2048)
_XL = dict(batch=16)


def _row(family: str, devices: int, seconds: tuple[float, float, float], **sizes: Any) -> Row:
    return Row(family, sizes, devices, Published(*seconds))


# Published step times, s, of each number of layers; the number of devices is that of layers.
_BY_LAYERS = {
    "RNNLM": {2: (0.173, 0.192, 0.191), 4: (0.210, 0.239, 0.251), 8: (0.320, 0.332, 0.764)},
    "GNMT": {2: (0.301, 0.384, 0.327), 4: (0.350, 0.469, 0.432), 8: (0.440, 0.562, 0.693)},
    "Transformer-XL": {2: (0.223, 0.268, 0.262), 4: (0.230, 0.27, 0.259), 8: (0.350, 0.46, 0.425)},
}
_LAYERED = {
    "RNNLM": ("rnnlm", _RNNLM),
    "GNMT": ("gnmt", {}),
    "Transformer-XL": ("transformer_xl", _XL),
}
ROWS: dict[str, Row] = {
    f"{name}, {layers} layers": _row(family, layers, seconds, layers=layers, **sizes)
    for name, (family, sizes) in _LAYERED.items()
    for layers, seconds in _BY_LAYERS[name].items()
}
ROWS |= {
    "Inception, batch 32": _row("inception_v3", 2, (0.229, 0.312, 0.301), batch=32),
    "Inception, batch 64": _row("inception_v3", 2, (0.423, 0.731, 0.498), batch=64),
    "AmoebaNet": _row("amoebanet", 4, (0.394, 0.44, 0.418), batch=64),
    "WaveNet, 2x18": _row("wavenet", 2, (0.317, 0.376, 0.354), stacks=2, layers=18),
    "WaveNet, 4x36": _row("wavenet", 4, (0.659, 0.988, 0.721), stacks=4, layers=36),
}


def profiled(path: Path) -> dict[str, Row]:
    """Return rows of the networks of a file, each on 2 and on 4 devices, see `profiled_step`."""
    return {
        f"{network['name']}, {devices} devices": Row(network["name"], {}, devices, profile=network)
        for network in json.loads(path.read_text())
        for devices in (2, 4)
    }


def build(row: Row) -> Step:
    """Return the training step of a row; a traced step donates the arguments that it replaces."""
    if row.profile is not None:
        return Step(*profiled_step(row.profile))
    step, args = WORKLOADS[row.family](**row.sizes).train_step()
    traced = trace(step, *args, donate_argnums=(0, 1))
    return Step(traced.graph, traced.names)
