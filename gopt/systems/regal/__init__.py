"""REGAL: a policy proposes a distribution for each gene, and BRKGA searches from there.

A message-passing network over the ops proposes Beta distributions for the genes of each op: its
affinity to each device and its priority. Means and deviations are quantised. BRKGA draws part of
its first population and of its mutants from those Betas. The policy is trained by REINFORCE on the
cost that the search reaches, relative to standard BRKGA.

Source: Paliwal et al., "Reinforced genetic algorithm learning for optimizing computation
graphs", ICLR 2020. Sizes that the paper does not give are our choice: see `Settings`. So are:

- devices as directions in a plane, with one deviation for all devices of an op (`levels`), and
  centred places (`quantise`);
- normal noise that ops of a graph share, instead of one draw for each op (`sample`);
- the other samples of a graph as its baseline, instead of a learned one, and advantages scaled by
  graph (`loss`);
- the features, and that they follow a schedule which an untrained policy proposes (`guide`);
- the Betas of transfers, and the share that stays uniform (`proposal`).
"""

from gopt.learning.train import TrainState
from gopt.systems.regal.actions import Action, levels, loosen_heavy, quantise
from gopt.systems.regal.exploration import draw_noise, log_prob, noise_basis
from gopt.systems.regal.inputs import Inputs, guide, inputs, on_devices, schedules_compared
from gopt.systems.regal.policy import VERSION, Policy, act, apply, init, sample
from gopt.systems.regal.search import betas, elite_bias, proposal, rewards, search, search_from
from gopt.systems.regal.settings import HEADS, NETWORKS, PARTS, PLACES, Settings
from gopt.systems.regal.training import (
    Example,
    Trajectory,
    loss,
    optimizer,
    standard_costs,
    start,
    step,
)
from gopt.systems.regal.weights import load, load_origin, save

__all__ = [
    "HEADS",
    "NETWORKS",
    "PARTS",
    "PLACES",
    "VERSION",
    "Action",
    "Example",
    "Inputs",
    "Policy",
    "Settings",
    "TrainState",
    "Trajectory",
    "act",
    "apply",
    "betas",
    "draw_noise",
    "elite_bias",
    "guide",
    "init",
    "inputs",
    "levels",
    "load",
    "load_origin",
    "log_prob",
    "loosen_heavy",
    "loss",
    "noise_basis",
    "on_devices",
    "optimizer",
    "proposal",
    "quantise",
    "rewards",
    "sample",
    "save",
    "schedules_compared",
    "search",
    "search_from",
    "standard_costs",
    "start",
    "step",
]
