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

from gopt.systems.go.actions import NEVER, act, log_prob, ops_of, sample, task_of
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
from gopt.systems.go.inputs import Inputs, read
from gopt.systems.go.policy import Embedding, Moves, embed, init_params, moves
from gopt.systems.go.scheduling import schedule
from gopt.systems.go.search import Taken, iterate, keep_best, rollout
from gopt.systems.go.settings import Settings
from gopt.systems.go.training import TrainState, improve, init, loss, optimizer, reward, tune
from gopt.systems.go.weights import load_policy, save_policy

__all__ = [
    "FUSIONS",
    "IN_ORDER",
    "NEVER",
    "SHIFTS",
    "TASKS",
    "Decision",
    "Embedding",
    "Groups",
    "Inputs",
    "Moves",
    "Settings",
    "Simulator",
    "State",
    "Taken",
    "TrainState",
    "act",
    "begin",
    "critical_path_order",
    "embed",
    "first_come_order",
    "improve",
    "init",
    "init_params",
    "iterate",
    "keep_best",
    "keys_of",
    "load_policy",
    "log_prob",
    "loss",
    "moves",
    "observe",
    "ops_of",
    "optimizer",
    "order_of",
    "read",
    "reward",
    "rollout",
    "sample",
    "save_policy",
    "schedule",
    "simulator_of",
    "task_of",
    "tune",
]
