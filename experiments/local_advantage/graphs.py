"""Graphs of the experiment, split by family, and their fusion configurations."""

from typing import NamedTuple

import jax
import numpy as np

from experiments.harness.graphs import Spec, build, forward, name, step
from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import FusionProblem
from gopt.fusion import CPU
from gopt.heuristics.fusion.presets import FUSIONS
from gopt.learning.graphs import GraphsTuple
from gopt.systems import local_advantage

DEFAULT = "instruction fusion"  # configuration of XLA on CPUs

# The three sets share no family.
TRAIN: tuple[Spec, ...] = (
    step("bert", batch=8, length=128, layers=4),
    step("gpt2", batch=4, length=256, layers=6),
    step("transformer_xl", layers=6),
    step("rnnlm", length=10),
    step("gnmt", batch=64, source_length=4, target_length=4, layers=4),
    step("wavenet"),
    step("mlp_mixer", batch=8, layers=6),
    forward("inception_v3", batch=8),
    step("resnext", batch=8),
    step("nasnet_a", batch=8, cells=1),
)
VALIDATION: tuple[Spec, ...] = (
    step("shufflenet_v2", batch=8),
    step("conformer", layers=4),
    step("hrnet", batch=8, modules=(1, 1, 1), blocks=2),
    step("efficientnet", batch=8),
    step("mamba", layers=4),
    step("t5", layers=3),
    step("dlrm"),
    step("switch", layers=4),
)
# The paper's five graphs. It gives names and numbers of nodes; sizes are our choice.
TEST: tuple[Spec, ...] = (
    step("graph_network"),
    step("unet", batch=2),
    step("deeprank"),
    step("mnasnet", batch=8),
    step("ssd", batch=8),
)
SPLITS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
cost_of = jax.jit(fusion_cost)


class Case(NamedTuple):
    """A graph to be fused.

    Attributes:
      name: name of the graph.
      problem: fusion problem.
      graphs: inputs of networks.
      found: configurations known without a search, bool [N], by name.
      costs: costs of these configurations, ticks.
    """

    name: str
    problem: FusionProblem
    graphs: GraphsTuple
    found: dict[str, np.ndarray]
    costs: dict[str, int]


def case(spec: Spec) -> Case:
    """Return the graph of one specification, with XLA's and other configurations."""
    graph = build(spec)
    problem = CPU.problem(graph)
    found = {kind: fusion(problem) for kind, fusion in FUSIONS.items()}
    costs = {kind: int(cost_of(problem, fuse)) for kind, fuse in found.items()}
    settings = local_advantage.Settings()
    graphs = local_advantage.inputs(graph, problem, settings=settings)
    return Case(name(spec, graph), problem, graphs, found, costs)
