"""Files of GO policies. One policy ships, for any number of devices."""

from pathlib import Path

from gopt.graph.kinds import KINDS
from gopt.learning.graphs import OP_FEATURES
from gopt.learning.weights import Format, one_op
from gopt.systems.go.decisions import FUSIONS, SHIFTS
from gopt.systems.go.inputs import inputs
from gopt.systems.go.policy import init
from gopt.systems.go.settings import Settings

VERSION = 5  # version of the meaning of inputs and parameters

FORMAT = Format(
    system="go",
    version=VERSION,
    settings=Settings,
    reads={"features": OP_FEATURES, "kinds": KINDS, "shifts": SHIFTS, "fusions": FUSIONS},
    init=init,
    smallest=lambda settings, params: inputs(*one_op(), settings=settings),
    shipped={"policy": Path(__file__).parent / "policy.npz"},
)

save, load = FORMAT.save, FORMAT.load
