"""Searches by Placeto: training on one graph is the search."""

import dataclasses

from gopt.systems.one_graph import Training
from gopt.systems.placeto.inputs import Inputs
from gopt.systems.placeto.policy import init
from gopt.systems.placeto.settings import Settings
from gopt.systems.placeto.training import start, step


def _step_evaluations(inputs: Inputs, settings: Settings) -> int:
    return settings.episodes * len(inputs.about)


def _settings_for(settings: Settings, steps: int) -> Settings:
    return dataclasses.replace(settings, steps=steps)  # rates fall over these steps


TRAINING = Training(
    init, start, step, _step_evaluations, is_start_costed=True, settings_for=_settings_for
)

run, search = TRAINING.run, TRAINING.search
