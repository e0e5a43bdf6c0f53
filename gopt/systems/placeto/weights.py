"""Files of Placeto policies. None ships: a policy learns on the graph that it places."""

from typing import Any

from gopt.learning.weights import Format, one_op
from gopt.systems.placeto.inputs import Inputs, inputs
from gopt.systems.placeto.policy import init
from gopt.systems.placeto.settings import Settings

Tree = Any
VERSION = 1  # version of the meaning of inputs and parameters


def _last_width(params: Tree) -> int:
    """Return the number of outputs of the last layer, which equals the number of devices."""
    last = max((name for name in params if name.startswith("MLP_")), key=lambda x: int(x[4:]))
    layers = params[last]
    return len(layers[max(layers, key=lambda x: int(x[6:]))]["bias"])


def _smallest(settings: Settings, params: Tree) -> Inputs:
    return inputs(*one_op(_last_width(params["params"])), settings=settings)


FORMAT = Format("placeto", VERSION, Settings, reads={}, init=init, smallest=_smallest)

save, load = FORMAT.save, FORMAT.load
