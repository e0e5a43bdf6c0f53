"""Files of HDP policies. None ships: a policy learns on the graph that it places."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.weights import Format
from gopt.systems.hdp.inputs import inputs
from gopt.systems.hdp.policy import init
from gopt.systems.hdp.settings import Settings

Tree = Any
VERSION = 1  # version of the meaning of inputs and parameters


def _init(settings: Settings, params: Tree) -> Callable[[], Tree]:
    try:
        devices = len(params["params"]["before"]) - 1
    except (KeyError, IndexError, ValueError):
        devices = 1  # any number: the shapes will differ
    graph = from_ops([Op()])
    smallest = inputs(graph, prepare(graph, unit_rate_devices(devices)), settings=settings)
    return partial(init, jax.random.key(0), smallest, settings=settings)


FORMAT = Format(
    system="hdp",
    version=VERSION,
    settings=Settings,
    reads={"kinds": KINDS},
    init=_init,
)

save, load = FORMAT.save, FORMAT.load
