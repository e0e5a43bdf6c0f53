"""Placeto: visit groups of ops in sequence; a network places each.

p(d | G) = Π_k p(d_k | d_1 … d_(k-1), G). The network passes messages along the graph both ways, and
aggregates the nodes above, below, and parallel to the visited group. It is trained with REINFORCE
on the cost that each visit saves, from scratch. Training is the search, and its result is the best
placement that was costed.

Source: Addanki et al., "Placeto: Learning generalizable device placement algorithms for distributed
machine learning", NeurIPS 2019, and its reference code, which gives the sizes and settings. Our
choices:

- The groups, and their number, are ours (`inputs`).
- Nodes around a group are averaged, and the network does not read when groups start.
- Episodes begin with all ops on one device, and rewards are in units of that cost.
- The weight of the entropy, one episode in a step of training, and infeasible costs (`returns`) are
  ours.
"""

from gopt.systems.placeto.inputs import Inputs, inputs
from gopt.systems.placeto.policy import PolicyOutput, act, init, placement, sample, visits
from gopt.systems.placeto.search import run, search
from gopt.systems.placeto.settings import Settings
from gopt.systems.placeto.training import (
    State,
    Task,
    Trajectory,
    loss,
    optimizer,
    returns,
    start,
    step,
)
from gopt.systems.placeto.weights import load, save

__all__ = [
    "Inputs",
    "PolicyOutput",
    "Settings",
    "State",
    "Task",
    "Trajectory",
    "act",
    "init",
    "inputs",
    "load",
    "loss",
    "optimizer",
    "placement",
    "returns",
    "run",
    "sample",
    "save",
    "search",
    "start",
    "step",
    "visits",
]
