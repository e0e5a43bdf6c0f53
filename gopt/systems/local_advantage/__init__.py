"""Learned local advantage functions: the change of cost by one decision, given all others.

The function is learned offline, from Gibbs sampling on the graphs of some models. It guides the
search on graphs of other models.

Source: the paper on learned local advantage functions for fusion. Our choices where it is silent:

- temperatures, and records with the advantages of all ops at one configuration (`sample`);
- sizes of the network, its features, and the way it ignores an op's own decision (`predicted`);
- neighbouring configurations (`walk`, `shifts`), and resting decisions (`gopt.search.guided`).
"""

from gopt.learning.train import TrainState
from gopt.systems.local_advantage.data import (
    Records,
    Sampling,
    advantages,
    sample,
)
from gopt.systems.local_advantage.inputs import OP_FEATURES, USE_FEATURES, configurable_ops, inputs
from gopt.systems.local_advantage.network import encode, init, predicted
from gopt.systems.local_advantage.search import act, guide, search, shifts, uniform, walk
from gopt.systems.local_advantage.settings import Settings
from gopt.systems.local_advantage.training import (
    Samples,
    loss,
    optimizer,
    predict,
    sample_weights,
    samples,
    scale_of,
    start,
    step,
    targets,
)
from gopt.systems.local_advantage.weights import load, save

__all__ = [
    "OP_FEATURES",
    "USE_FEATURES",
    "Records",
    "Samples",
    "Sampling",
    "Settings",
    "TrainState",
    "act",
    "advantages",
    "configurable_ops",
    "encode",
    "guide",
    "init",
    "inputs",
    "load",
    "loss",
    "optimizer",
    "predict",
    "predicted",
    "sample",
    "sample_weights",
    "samples",
    "save",
    "scale_of",
    "search",
    "shifts",
    "start",
    "step",
    "targets",
    "uniform",
    "walk",
]
