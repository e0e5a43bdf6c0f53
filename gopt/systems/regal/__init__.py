"""REGAL: a policy proposes where each gene should lie, and BRKGA searches from there.

A message-passing network over the ops gives each of their genes (one affinity for each device,
and one priority) a distribution over quantised means and deviations of a Beta. An action is
sampled, BRKGA draws its first population and its mutants from those Betas, and the policy is
trained by REINFORCE on the cost that the search reaches, relative to standard BRKGA.

Source: Paliwal et al., "Reinforced genetic algorithm learning for optimizing computation
graphs", ICLR 2020. Sizes that the paper does not give are our choice: see `Settings`. So are
that levels are ordered, with normal noise that ops of a graph share (`sample`); the spectral
features; what an untrained policy proposes (`Policy`); that devices are directions in a plane, so
that a policy serves any number of them (`quantise`); and the Betas of transfers (`proposal`).
"""

from gopt.systems.regal.policy import (
    PLACES,
    Policy,
    Settings,
    action,
    apply,
    log_prob,
    noise_basis,
    quantise,
    sample,
)
from gopt.systems.regal.search import betas, proposal, rewards, search
from gopt.systems.regal.training import TrainState, init, loss, optimizer, update
from gopt.systems.regal.weights import load_policy, save_policy

__all__ = [
    "PLACES",
    "Policy",
    "Settings",
    "TrainState",
    "action",
    "apply",
    "betas",
    "init",
    "load_policy",
    "log_prob",
    "loss",
    "noise_basis",
    "optimizer",
    "proposal",
    "quantise",
    "rewards",
    "sample",
    "save_policy",
    "search",
    "update",
]
