"""Graphs of the experiment, split by family, and their fusion configurations."""

from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.harness.graphs import Spec, build, name
from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import FusionProblem
from gopt.fusion import CPU
from gopt.graph.graph import Graph
from gopt.heuristics.fusion.presets import FUSIONS
from gopt.learning.graphs import GraphsTuple
from gopt.systems import local_advantage

DEFAULT = "instruction fusion"  # configuration of XLA on CPUs

# The three sets share no family.
TRAIN: tuple[Spec, ...] = (
    Spec("bert", dict(batch=8, length=128, layers=4), True),
    Spec("gpt2", dict(batch=4, length=256, layers=6), True),
    Spec("transformer_xl", dict(layers=6), True),
    Spec("rnnlm", dict(length=10), True),
    Spec("gnmt", dict(batch=64, source_length=4, target_length=4, layers=4), True),
    Spec("wavenet", dict(), True),
    Spec("mlp_mixer", dict(batch=8, layers=6), True),
    Spec("inception_v3", dict(batch=8), False),
    Spec("resnext", dict(batch=8), True),
    Spec("nasnet_a", dict(batch=8, cells=1), True),
)
VALIDATION: tuple[Spec, ...] = (
    Spec("shufflenet_v2", dict(batch=8), True),
    Spec("conformer", dict(layers=4), True),
    Spec("hrnet", dict(batch=8, modules=(1, 1, 1), blocks=2), True),
    Spec("efficientnet", dict(batch=8), True),
    Spec("mamba", dict(layers=4), True),
    Spec("t5", dict(layers=3), True),
    Spec("dlrm", dict(), True),
    Spec("switch", dict(layers=4), True),
)
# The paper's five graphs. It gives names and numbers of nodes; sizes are our choice.
TEST: tuple[Spec, ...] = (
    Spec("graph_network", dict(), True),
    Spec("unet", dict(batch=2), True),
    Spec("deeprank", dict(), True),
    Spec("mnasnet", dict(batch=8), True),
    Spec("ssd", dict(batch=8), True),
)
SPLITS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


class Case(NamedTuple):
    """A graph to be fused.

    Attributes:
      name: name of the graph.
      graph: graph.
      problem: fusion problem.
      graphs: inputs of networks.
      found: configurations known without a search, bool [N], by name.
      costs: costs of these configurations, ticks.
    """

    name: str
    graph: Graph
    problem: FusionProblem
    graphs: GraphsTuple
    found: dict[str, np.ndarray]
    costs: dict[str, int]


def case(spec: Spec) -> Case:
    """Return the graph of one specification, with XLA's and other configurations."""
    graph = build(spec)
    problem = CPU.problem(graph)
    found = {kind: fusion(problem) for kind, fusion in FUSIONS.items()}
    costs = jax.device_get(_costs(problem, np.stack(list(found.values()))))
    named = dict(zip(found, map(int, costs), strict=True))
    settings = local_advantage.Settings()
    graphs = local_advantage.inputs(graph, problem, settings=settings)
    return Case(name(spec, graph), graph, problem, graphs, found, named)


@jax.jit
def _costs(problem: FusionProblem, fuse: Any) -> jax.Array:
    return jax.vmap(fusion_cost, (None, 0))(problem, fuse)
