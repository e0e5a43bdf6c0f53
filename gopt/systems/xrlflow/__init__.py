"""X-RLflow: an agent rewrites programs; its reward is their speed-up.

    import gopt
    from gopt.systems import xrlflow

    search = xrlflow.agent(*xrlflow.load())
    gopt.rewrite(model, weights, x, constant_argnums=0, search=search)

A step of an episode applies one rule at one place. A graph attention network reads the program and
all its rewrites by one rule, scores each, and predicts the further gain. It is trained by PPO.
`RewriteEnv` is a gymnasium environment, for other agents.

Source: He et al., "X-RLflow: Graph reinforcement learning for neural network subgraphs
transformation", MLSys 2023, and its public code. Our choices:

- candidates are observed as patches of the program (`observation`); results are the same, and
  several times as fast;
- the score of a candidate depends neither on the order of candidates nor on their number. It reads
  the new part of the candidate, and its cost by a model (`Settings` has the paper's variants);
- values are in units, and a truncated episode is bootstrapped from the value of its last program.

Needs the extra `xrlflow`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gopt.learning.train import TrainState
from gopt.rewriting.cost.program_times import ProgramTimes, end_to_end
from gopt.systems.xrlflow.candidates import Candidate, candidates, in_order
from gopt.systems.xrlflow.episodes import Decisions, Episode, Policy, batches, play, policy, uniform
from gopt.systems.xrlflow.inputs import Rewriting, inputs
from gopt.systems.xrlflow.network import PolicyOutput, act, apply, init
from gopt.systems.xrlflow.observation import Observation, Size, observe, pad, size_of
from gopt.systems.xrlflow.search import agent, search
from gopt.systems.xrlflow.settings import Settings
from gopt.systems.xrlflow.training import Watched, improve, loss, optimizer, start, step
from gopt.systems.xrlflow.weights import load, save, smallest

if TYPE_CHECKING:
    from gopt.systems.xrlflow.environment import NOTHING, RewriteEnv

__all__ = [
    "NOTHING",
    "Candidate",
    "Decisions",
    "Episode",
    "Observation",
    "Policy",
    "PolicyOutput",
    "ProgramTimes",
    "RewriteEnv",
    "Rewriting",
    "Settings",
    "Size",
    "TrainState",
    "Watched",
    "act",
    "agent",
    "apply",
    "batches",
    "candidates",
    "end_to_end",
    "improve",
    "in_order",
    "init",
    "inputs",
    "load",
    "loss",
    "observe",
    "optimizer",
    "pad",
    "play",
    "policy",
    "save",
    "search",
    "size_of",
    "smallest",
    "start",
    "step",
    "uniform",
]


def __getattr__(name: str) -> Any:
    """Import the environment when it is first used: it needs the extra `xrlflow`."""
    if name in ("NOTHING", "RewriteEnv"):
        return getattr(importlib.import_module("gopt.systems.xrlflow.environment"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
