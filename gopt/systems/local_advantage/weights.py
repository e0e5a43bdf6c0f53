"""Files of local advantage networks. One network ships."""

from pathlib import Path
from typing import Any

from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.graphs import GraphsTuple
from gopt.learning.weights import Format
from gopt.systems.local_advantage.inputs import OP_FEATURES, USE_FEATURES, inputs
from gopt.systems.local_advantage.network import init
from gopt.systems.local_advantage.settings import Settings

VERSION = 1  # version of the meaning of features and parameters


def _smallest(settings: Settings, params: Any) -> GraphsTuple:
    graph = from_ops([Op()])
    return inputs(graph, prepare_fusion(graph, unit_rate_devices(1)), settings=settings)


FORMAT = Format(
    system="local_advantage",
    version=VERSION,
    settings=Settings,
    reads={"features": [OP_FEATURES, USE_FEATURES], "kinds": KINDS},
    init=init,
    smallest=_smallest,
    shipped={"network": Path(__file__).parent / "network.npz"},
)

save, load = FORMAT.save, FORMAT.load
