"""Searches by HDP: training on one graph is the search."""

from gopt.systems.hdp.inputs import Inputs
from gopt.systems.hdp.policy import init
from gopt.systems.hdp.settings import Settings
from gopt.systems.hdp.training import start, step
from gopt.systems.one_graph import Training


def _step_evaluations(inputs: Inputs, settings: Settings) -> int:
    return settings.groupings * settings.placements


TRAINING = Training(init, start, step, _step_evaluations)

run, search = TRAINING.run, TRAINING.search
