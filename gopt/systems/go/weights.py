"""Files of GO policies. One policy ships, for any number of devices."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.graphs import OP_FEATURES
from gopt.learning.weights import Format
from gopt.systems.go.decisions import FUSIONS, SHIFTS
from gopt.systems.go.inputs import inputs
from gopt.systems.go.policy import init
from gopt.systems.go.settings import Settings

Tree = Any
VERSION = 5  # version of the meaning of inputs and parameters


def _init(settings: Settings, _: Tree) -> Callable[[], Tree]:
    graph = from_ops([Op()])
    smallest = inputs(graph, prepare(graph, unit_rate_devices(1)), settings=settings)
    return partial(init, jax.random.key(0), smallest, settings=settings)


FORMAT = Format(
    system="go",
    version=VERSION,
    settings=Settings,
    reads={"features": OP_FEATURES, "kinds": KINDS, "shifts": SHIFTS, "fusions": FUSIONS},
    init=_init,
    shipped={"policy": Path(__file__).parent / "policy.npz"},
)

save, load = FORMAT.save, FORMAT.load
