"""Costs of fusions in the throughput experiment: its peer agrees with gopt."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.throughput.fusion import compare
from experiments.throughput.peers import fusions
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import unit_rate_devices
from gopt.sources.synthetic import layered
from tests.cost.fusion.test_cost import machine, random_graph

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("allow_duplication", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_peer_agrees_on_random_graphs(seed, allow_duplication):
    rng = np.random.default_rng(seed)
    graph, rules = random_graph(rng, 30), replace(RULES["cpu"], allow_duplication=allow_duplication)
    problem = prepare_fusion(graph, machine(rng), rules=rules, rows=(32, 128, 512))
    compare("random", problem, population=16, rounds=1, seed=0)


def test_costs_that_differ_are_an_error(monkeypatch):
    problem = prepare_fusion(layered(0, 20), unit_rate_devices(1))
    monkeypatch.setattr(fusions, "evaluate", lambda tables, bits: bits.sum(1))
    with pytest.raises(RuntimeError, match="layered: the costs differ"):
        compare("layered", problem, population=4, rounds=1, seed=0)
