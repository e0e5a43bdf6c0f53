"""HDP."""

from gopt.systems.hdp.inputs import Inputs, group_embedding, members, read
from gopt.systems.hdp.policy import (
    Actions,
    group_logits,
    init_params,
    log_prob,
    placements,
    sample,
)
from gopt.systems.hdp.settings import Settings
from gopt.systems.hdp.training import State, init, optimizer, reward, run, step
