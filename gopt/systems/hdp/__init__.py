"""HDP: ops go to groups, and groups to devices, as two networks say that are trained on one graph.

p(g, d | G) = Π_i p(g_i | G) · Π_k p(d_k | d_1 … d_(k-1), g, G). A grouper, two layers without a
recurrence, says to which group each op belongs; a placer reads what is in each group (a recurrent
network both ways), and says one after another where groups run (another one, with attention). Both
are trained with REINFORCE on -√cost against a moving average, from scratch: training is the search,
and its result the best placement that was drawn.

Source: Mirhoseini et al., "A hierarchical model for device placement", ICLR 2018, and the
hierarchical controller of TensorFlow's Grappler. What is ours:

- that features are standardised and shapes logarithms (`inputs`), and each part of the features of
  a group is divided by its own largest number (`group_embedding`);
- that inputs belong to the group of their first reader, and ops that may not run where their group
  does go elsewhere (`gopt.cost.schedule.dispatch.settled`);
- costs in units of the mean cost of the first placements, and what has no cost (`reward`);
- the first baseline (`step`), and that the learning rate does not decay, as it does in Grappler;
- settings chosen by trials (`Settings`), beside the published ones (`PUBLISHED`).
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
