"""Placeto: groups of ops are visited one after another, and a network says where each goes.

p(d | G) = Π_k p(d_k | d_1 … d_(k-1), G). The network passes messages along the graph both ways, and
sums up what is above the visited group, below, and beside it. It is trained with REINFORCE on how
much each visit shortens the step, from scratch: training is the search, and its result the best
placement that was seen.

Source: Addanki et al., "Placeto: Learning generalizable device placement algorithms for distributed
machine learning", NeurIPS 2019, and its reference code, whose sizes and settings these are. What is
ours:

- the groups, and how many there are (`inputs`);
- that what is around a group is averaged, and that the network does not read when groups start;
- that episodes begin with all ops on one device, and rewards are in units of that cost;
- the weight of the entropy, one episode in a step of training, and what has no cost (`returns`).
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
