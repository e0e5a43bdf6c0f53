"""Files of HDP policies. None ships: a policy learns on the graph that it places."""

from typing import Any

from gopt.graph.kinds import KINDS
from gopt.learning.weights import Format, one_op
from gopt.systems.hdp.inputs import Inputs, inputs
from gopt.systems.hdp.policy import init
from gopt.systems.hdp.settings import Settings

Tree = Any
VERSION = 2  # version of the meaning of inputs and parameters


def _smallest(settings: Settings, params: Tree) -> Inputs:
    devices = len(params["params"]["decoder"]["ii"]["kernel"]) - 1
    return inputs(*one_op(devices), settings=settings)


FORMAT = Format("hdp", VERSION, Settings, reads={"kinds": KINDS}, init=init, smallest=_smallest)

save, load = FORMAT.save, FORMAT.load
