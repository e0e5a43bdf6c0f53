"""GO: a policy over the graph says which ops change their device next; so far for placement.

p(y^t | G) = Π_g p(y_g^t | h_G, y^(t-1)): a network embeds the ops of a graph, and in each of some
iterations groups of ops, from coarse to fine, keep their device or go to another, independently of
each other but that one moves at least, given all devices before. The best placement that was drawn
is where the next iteration begins. The network is trained with PPO on what its decisions gain.

Source: Zhou et al., "Transferable graph optimizers for ML compilers", NeurIPS 2020. What is ours,
besides the sizes, which the paper does not give:

- groups instead of single ops on the coarse levels, the coarsest by the weights that ops read
  (`gopt.classical.groups`): a move of one op of thousands gains nothing;
- the number of changes, which the policy says for a whole level, so that what it says of a group is
  only whether it is better changed than others (`Policy.moves`);
- that the best placement is kept between iterations (`iterate`), that a decision which is worse is
  rewarded as one that changes nothing (`reward`), and that the other samples of a level are the
  baseline of each (`loss`);
- that a share of the moves is drawn uniformly (`Settings.explore`).
"""

from gopt.systems.go.inputs import Inputs, read
from gopt.systems.go.policy import Moves, act, embed, init_params, log_prob, moves, sample
from gopt.systems.go.search import State, Taken, begin, iterate, placement_cost, rollout
from gopt.systems.go.settings import Settings
from gopt.systems.go.training import (
    TrainState,
    improve,
    init,
    loss,
    optimizer,
    reward,
    tune,
)
from gopt.systems.go.weights import load_policy, save_policy

__all__ = [
    "Inputs",
    "Moves",
    "Settings",
    "State",
    "Taken",
    "TrainState",
    "act",
    "begin",
    "embed",
    "improve",
    "init",
    "init_params",
    "iterate",
    "load_policy",
    "log_prob",
    "loss",
    "moves",
    "optimizer",
    "placement_cost",
    "read",
    "reward",
    "rollout",
    "sample",
    "save_policy",
    "tune",
]
