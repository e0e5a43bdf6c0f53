"""Files of X-RLflow agents. One ships, trained on whole programs of ten small models."""

from pathlib import Path

import jax
import numpy as np

from gopt.learning.weights import Format
from gopt.rewriting.ir.terms import Terms
from gopt.systems.xrlflow.network import init
from gopt.systems.xrlflow.observation import NODE_KINDS, Observation, observe
from gopt.systems.xrlflow.settings import Settings

VERSION = 1  # version of the meaning of observations and parameters


def smallest() -> Observation:
    """Return the observation of a program without ops, which gives a network its shapes."""
    terms = Terms()
    root = terms.argument(0, jax.ShapeDtypeStruct((), np.float32), constant=False)
    return observe(terms, [root], [root], [], lambda number: 0.0, reach=1)


FORMAT = Format(
    system="xrlflow",
    version=VERSION,
    settings=Settings,
    reads={"kinds": NODE_KINDS},
    init=init,
    smallest=lambda settings, params: smallest(),
    shipped={"agent": Path(__file__).parent / "agent.npz"},
)

save, load = FORMAT.save, FORMAT.load
