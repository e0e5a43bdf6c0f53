"""The graphs of the REGAL experiment: steps and forward passes of models, split by family."""

from typing import Any

import numpy as np

from gopt.graph import Graph
from gopt.sources.jaxpr import trace
from gopt.workloads import WORKLOADS

# (workload, settings, is it a training step). Families do not overlap between the three sets.
Spec = tuple[str, dict[str, Any], bool]

TRAIN: tuple[Spec, ...] = (
    *(
        ("squeezenet", dict(batch=batch, size=size), True)
        for batch, size in ((16, 224), (64, 128), (128, 96))
    ),
    *(
        ("resnext", dict(batch=batch, size=size, blocks=blocks), True)
        for batch, size, blocks in ((16, 224, (1, 1)), (64, 128, (1, 1, 1, 1)), (64, 224, (2,)))
    ),
    *(
        ("bert", dict(batch=batch, length=length, hidden=hidden, inner=4 * hidden, layers=1), True)
        for batch, length, hidden in ((8, 128, 768), (16, 384, 768), (32, 256, 384))
    ),
    *(
        ("rnnlm", dict(batch=batch, length=length, hidden=hidden, layers=layers), True)
        for batch, length, hidden, layers in ((20, 5, 650, 2), (320, 3, 200, 1), (80, 4, 1500, 2))
    ),
    *(
        ("bert", dict(batch=batch, length=length, layers=layers), False)
        for batch, length, layers in ((8, 128, 1), (32, 256, 2))
    ),
    ("bert", dict(batch=8, length=512, predictions=512, layers=1), True),
    ("squeezenet", dict(batch=64), False),
    ("resnext", dict(batch=64, blocks=(1, 1, 1, 1)), False),
    ("rnnlm", dict(batch=80, length=5), False),
    ("randwire", dict(batch=32, stages=1, nodes=7, width=156), True),
    ("randwire", dict(batch=64, size=128, stages=1, nodes=6, seed=1), True),
    ("randwire", dict(batch=32, nodes=8, seed=2), False),
    ("graph_network", dict(steps=1), True),
    ("graph_network", dict(nodes=500, edges=30_000, steps=1), True),
    ("graph_network", dict(steps=2), False),
    ("efficientnet", dict(batch=32, blocks=(1,) * 7), False),
)

VALIDATION: tuple[Spec, ...] = (
    ("unet", dict(batch=8, size=188, depth=2), True),
    ("unet", dict(batch=8, size=188, depth=3), True),
    ("unet", dict(batch=2, size=572, depth=4, width=32), True),
    ("unet", dict(batch=8, size=188, depth=3), False),
    ("densenet", dict(batch=32, blocks=(1, 2, 4, 2)), False),
    ("densenet", dict(batch=32, blocks=(2, 4)), True),
    ("mobilenet_v2", dict(batch=32), False),
    ("mobilenet_v2", dict(batch=32, blocks=(1,) * 7), True),
)

TEST: tuple[Spec, ...] = (
    ("inception_v3", dict(batch=32), False),
    ("inception_v3", dict(batch=32), True),
    ("nasnet_a", dict(batch=32, cells=1, filters=192), False),
    ("nasnet_a", dict(batch=32, cells=1, filters=192), True),
    ("transformer_xl", dict(layers=1), True),
    ("transformer_xl", dict(batch=16, length=128, memory=128, layers=2), True),
    ("gnmt", dict(batch=64, source_length=2, target_length=2, layers=2), True),
    ("gnmt", dict(batch=128, source_length=3, target_length=3, layers=2), True),
    ("wavenet", dict(stacks=1, layers=6), True),
    ("wavenet", dict(batch=2, stacks=2, layers=10), True),
    ("vit", dict(batch=32, layers=4), False),
    ("vit", dict(batch=32, layers=2), True),
    ("gpt2", dict(batch=4, length=1024, layers=1), True),
    ("gpt2", dict(batch=8, length=512, layers=2), True),
    # From here on, families were fixed before a search was run on any of their graphs: four when
    # the policy before this one shipped,
    ("amoebanet", dict(batch=32, cells=1), False),
    ("amoebanet", dict(batch=32, size=128, cells=1, filters=36), True),
    ("t5", dict(batch=8, layers=1), True),
    ("t5", dict(batch=32, source_length=128, target_length=128, layers=2), True),
    ("dlrm", dict(), True),
    ("dlrm", dict(), False),
    ("ssd", dict(batch=16), False),
    ("ssd", dict(batch=16), True),
    # and six with this one.
    ("shufflenet_v2", dict(batch=32), False),
    ("shufflenet_v2", dict(batch=128, blocks=(2, 4, 2)), True),
    ("hrnet", dict(batch=32, modules=(1, 1, 1), blocks=2), False),
    ("hrnet", dict(batch=32, modules=(1,), blocks=2), True),
    ("mlp_mixer", dict(batch=32), False),
    ("mlp_mixer", dict(batch=32, layers=2), True),
    ("switch", dict(layers=4), False),
    ("switch", dict(layers=2), True),
    ("conformer", dict(layers=4), False),
    ("conformer", dict(layers=1), True),
    ("mamba", dict(layers=12), False),
    ("mamba", dict(layers=3), True),
)


def name(spec: Spec, graph: Graph) -> str:
    """Returns what a graph is called in tables."""
    workload, _, is_step = spec
    return f"{workload} {'step' if is_step else 'forward'}, {int(graph.num_ops)} ops"


def build(spec: Spec) -> Graph:
    """Returns the graph of one specification; a training step donates what it replaces."""
    workload, settings, is_step = spec
    model = WORKLOADS[workload](**settings)
    fn, args = model.train_step() if is_step else model.forward()
    return trace(fn, *args, donate_argnums=(0, 1) if is_step else ()).graph


def noisy(rng: np.random.Generator, graph: Graph, spread: float) -> Graph:
    """Returns a variant with sizes and costs scaled by log-normal noise of this spread."""

    def scaled(values: Any) -> np.ndarray:
        return np.rint(np.asarray(values) * rng.lognormal(0, spread, np.shape(values)))

    fields = ("flops", "bytes", "workspace", "size")
    return graph._replace(**{field: scaled(getattr(graph, field)) for field in fields})
