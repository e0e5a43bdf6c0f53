"""REGAL: a policy proposes where each gene should lie, and BRKGA searches from there.

A message-passing network over the ops says of each of them where its genes should lie: the means
and deviations of Betas, quantised, for its affinity to each device and for its priority. BRKGA
draws part of its first population and of its mutants from those Betas, and the policy is trained
by REINFORCE on the cost that the search reaches, relative to standard BRKGA.

Source: Paliwal et al., "Reinforced genetic algorithm learning for optimizing computation
graphs", ICLR 2020. Sizes that the paper does not give are our choice: see `Settings`. So are:

- devices as directions in a plane, with one deviation for all of an op (`levels`), and what is
  put into the middle (`quantise`);
- normal noise that ops of a graph share, instead of one draw for each op (`sample`);
- the other samples of a graph as its baseline, instead of a learned one, and advantages by graph
  (`loss`);
- the features, and that they are along a schedule which an untrained policy proposes (`guide`);
- the Betas of transfers, and the share that stays uniform (`proposal`).
"""

from gopt.systems.regal.actions import Action, levels, loosen_heavy, quantise
from gopt.systems.regal.exploration import draw_noise, log_prob, noise_basis
from gopt.systems.regal.guides import features, guide, schedules_compared
from gopt.systems.regal.policy import VERSION, Policy, action, apply, init_params, sample
from gopt.systems.regal.search import betas, elite_bias, proposal, rewards, search
from gopt.systems.regal.settings import HEADS, NETWORKS, PARTS, PLACES, Settings
from gopt.systems.regal.training import TrainState, gradient, init, loss, optimizer, update
from gopt.systems.regal.weights import load_origin, load_policy, save_policy

__all__ = [
    "HEADS",
    "NETWORKS",
    "PARTS",
    "PLACES",
    "VERSION",
    "Action",
    "Policy",
    "Settings",
    "TrainState",
    "action",
    "apply",
    "betas",
    "draw_noise",
    "elite_bias",
    "features",
    "gradient",
    "guide",
    "init",
    "init_params",
    "levels",
    "load_origin",
    "load_policy",
    "log_prob",
    "loosen_heavy",
    "loss",
    "noise_basis",
    "optimizer",
    "proposal",
    "quantise",
    "rewards",
    "sample",
    "save_policy",
    "schedules_compared",
    "search",
    "update",
]
