"""HDP: one network assigns ops to groups, another assigns groups to devices, trained on one graph.

p(g, d | G) = Π_i p(g_i | G) · Π_k p(d_k | d_1 … d_(k-1), g, G). The grouper, two layers without
recurrence, assigns each op to a group. The placer reads features of each group with a bidirectional
recurrent network. A second recurrent network, with attention, assigns devices to the groups in
sequence. Both are trained with REINFORCE on -√cost against a moving average, from scratch. Training
is the search, and its result is the best placement that was drawn.

Source: Mirhoseini et al., "A hierarchical model for device placement", ICLR 2018, and the
hierarchical controller of TensorFlow's Grappler. Our choices:

- Features are standardised, and shapes are logarithms (`inputs`).
- Each part of the features of a group is divided by its own largest number (`group_embedding`).
- Inputs belong to the group of their first reader. Ops that may not run on their group's device run
  elsewhere (`gopt.cost.schedule.dispatch.legalize_placement`).
- Costs are in units of the mean cost of the first placements, and infeasible placements have a
  fixed cost (`reward`).
- The first baseline is the mean reward of the first step (`step`).
- The learning rate is constant; in Grappler it decays.
- Recurrent cells are Flax's, whose forget gates have no initial bias; Grappler's is 1.
- Trials chose some settings (`Settings`); `PUBLISHED` has the published ones.
"""

from gopt.systems.hdp.inputs import Inputs, group_embedding, inputs, members
from gopt.systems.hdp.policy import Action, act, group_logits, init, log_prob, placements, sample
from gopt.systems.hdp.search import run, search
from gopt.systems.hdp.settings import PUBLISHED, Settings
from gopt.systems.hdp.training import State, Task, Trajectory, loss, optimizer, reward, start, step
from gopt.systems.hdp.weights import load, save

__all__ = [
    "PUBLISHED",
    "Action",
    "Inputs",
    "Settings",
    "State",
    "Task",
    "Trajectory",
    "act",
    "group_embedding",
    "group_logits",
    "init",
    "inputs",
    "load",
    "log_prob",
    "loss",
    "members",
    "optimizer",
    "placements",
    "reward",
    "run",
    "sample",
    "save",
    "search",
    "start",
    "step",
]
