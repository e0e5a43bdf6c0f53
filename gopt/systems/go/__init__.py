"""GO: a policy over the graph says which ops are placed, scheduled or fused otherwise next.

p(y^t | G) = Π_g p(y_g^t | h_G, y^(t-1)): a network embeds the ops of a graph, and in each of some
iterations groups of ops, from coarse to fine, keep their device, priority or fusion, or get another
one, independently of each other but that one changes at least, given what was decided before.
The best decision that was drawn is where the next iteration begins. The network is trained with PPO
on what its decisions gain. Each task has a head with a layer of attention of its own, which sees
what the task decided before, and where and when ops run.

Source: Zhou et al., "Transferable graph optimizers for ML compilers", NeurIPS 2020. What is ours,
besides the sizes, which the paper does not give:

- groups instead of single ops on the coarse levels, the coarsest by the weights that ops read
  (`gopt.heuristics.schedule.placement.groups`): a move of one op of thousands gains nothing;
- what a head sees of the schedule of what was decided: which ops are critical, which of these wait
  for a device or keep others waiting, what that is sent the end waits for, and where else ops start
  at that time (`features`); this is simulated in each iteration, besides what is drawn;
- the number of changes, which the policy says for a whole level, so that what it says of a group is
  only whether it is better changed than others (`Moves`);
- priorities as shifts of a given order, and four levels of fusion (`decisions`);
- that the best decision is kept between iterations (`iterate`), that a decision which is worse is
  rewarded as one that changes nothing (`reward`), and that the other samples of a level are the
  baseline of each (`loss`);
- that a share of the moves is drawn uniformly (`Settings.explore`).
"""

from gopt.learning.train import TrainState
from gopt.systems.go.actions import NEVER, apply_action, log_prob, ops_of, sample, task_of
from gopt.systems.go.decisions import (
    FUSIONS,
    IN_ORDER,
    SHIFTS,
    TASKS,
    Decision,
    Simulator,
    State,
    begin,
    critical_path_order,
    first_come_order,
    keys_of,
    order_of,
    simulator_of,
)
from gopt.systems.go.features import Groups, observe
from gopt.systems.go.inputs import Inputs, inputs
from gopt.systems.go.policy import Action, Embedding, Moves, act, embed, init, moves
from gopt.systems.go.scheduling import search
from gopt.systems.go.search import Trajectory, iterate, keep_best, rollout
from gopt.systems.go.settings import Settings
from gopt.systems.go.training import (
    Batch,
    Searches,
    improve,
    loss,
    optimizer,
    reward,
    start,
    step,
    tune,
)
from gopt.systems.go.weights import load, save

__all__ = [
    "FUSIONS",
    "IN_ORDER",
    "NEVER",
    "SHIFTS",
    "TASKS",
    "Action",
    "Batch",
    "Decision",
    "Embedding",
    "Groups",
    "Inputs",
    "Moves",
    "Searches",
    "Settings",
    "Simulator",
    "State",
    "TrainState",
    "Trajectory",
    "act",
    "apply_action",
    "begin",
    "critical_path_order",
    "embed",
    "first_come_order",
    "improve",
    "init",
    "inputs",
    "iterate",
    "keep_best",
    "keys_of",
    "load",
    "log_prob",
    "loss",
    "moves",
    "observe",
    "ops_of",
    "optimizer",
    "order_of",
    "reward",
    "rollout",
    "sample",
    "save",
    "search",
    "simulator_of",
    "start",
    "step",
    "task_of",
    "tune",
]
