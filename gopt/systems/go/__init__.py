"""GO: a policy over the graph changes where ops are placed, when they run, and what is fused.

p(y^t | G) = Π_g p(y_g^t | h_G, y^(t-1)): a network embeds the ops of a graph. Each iteration draws
changes of groups of ops, from coarse to fine. A group keeps its device, priority or fusion, or gets
another one. Given the previous decision, groups are independent, except that at least one changes.
The best decision drawn so far is the start of the next iteration. The network is trained with PPO;
the reward is the improvement of the cost. Each task has a head with its own attention layers. The
head reads the task's previous decision, and where and when ops run.

Source: Zhou et al., "Transferable graph optimizers for ML compilers", NeurIPS 2020. Our choices,
besides the sizes, which the paper does not give:

- Coarse levels decide groups instead of single ops, because moving one op of thousands gains
  nothing. The coarsest level groups ops by the weights that they read
  (`gopt.heuristics.schedule.placement.groups`).
- The policy reads features of the previous decision's schedule (`features`). They tell critical
  ops, which of these wait for a device or keep others waiting, and which transfers delay the end.
  They also tell which other ops start at that time. One more simulation per iteration computes
  them.
- The number of changes is predicted for a whole level. The logits of a group only rank it among
  the others (`Moves`).
- Priorities are shifts of a given order, and fusion has four levels (`decisions`).
- The best decision is kept between iterations (`iterate`).
- A worse decision is rewarded like one that changes nothing (`reward`).
- The other samples of a level are the baseline of each sample (`loss`).
- A share of the moves is drawn uniformly (`Settings.explore`).
"""

from gopt.learning.train import TrainState
from gopt.systems.go.actions import NEVER, apply_action, log_prob, ops_of, sample, task_of
from gopt.systems.go.decisions import (
    FUSIONS,
    IN_ORDER,
    SHIFTS,
    TASKS,
    OpDecisions,
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
    "Embedding",
    "Groups",
    "Inputs",
    "Moves",
    "OpDecisions",
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
