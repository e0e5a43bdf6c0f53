"""Files of Placeto policies. None ships: a policy learns on the graph that it places."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, from_ops
from gopt.learning.weights import Format
from gopt.systems.placeto.inputs import inputs
from gopt.systems.placeto.policy import init
from gopt.systems.placeto.settings import Settings

Tree = Any
VERSION = 1  # version of the meaning of inputs and parameters


def _last_width(params: Tree) -> int:
    """Return the number of outputs of the last layer, which equals the number of devices."""
    last = max((name for name in params if name.startswith("MLP_")), key=lambda x: int(x[4:]))
    layers = params[last]
    return len(layers[max(layers, key=lambda x: int(x[6:]))]["bias"])


def _init(settings: Settings, params: Tree) -> Callable[[], Tree]:
    try:
        devices = _last_width(params["params"])
    except (KeyError, IndexError, ValueError):
        devices = 1  # any number: the shapes will differ
    graph = from_ops([Op()])
    smallest = inputs(graph, prepare(graph, unit_rate_devices(devices)), settings=settings)
    return partial(init, jax.random.key(0), smallest, settings=settings)


FORMAT = Format(
    system="placeto",
    version=VERSION,
    settings=Settings,
    reads={},
    init=_init,
)

save, load = FORMAT.save, FORMAT.load
