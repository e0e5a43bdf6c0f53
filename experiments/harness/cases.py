"""Models whose programs several experiments compile through XLA."""

from collections.abc import Callable
from functools import partial

from gopt.workloads.cases import Case, forward, step
from gopt.workloads.recommendation.towers import towers

# Inference on single images, short texts and small batches; training steps of small batches.
MODELS: dict[str, Callable[[], Case]] = {
    "nasnet_a forward": partial(forward, "nasnet_a"),
    "nasnet_a forward, batch 8": partial(forward, "nasnet_a", batch=8),
    "amoebanet forward": partial(forward, "amoebanet"),
    "inception_v3 forward": partial(forward, "inception_v3"),
    "unet forward": partial(forward, "unet"),
    "densenet forward": partial(forward, "densenet"),
    "randwire forward": partial(forward, "randwire"),
    "randwire forward, batch 8": partial(forward, "randwire", batch=8),
    "switch forward": partial(forward, "switch"),
    "dlrm forward, batch 8": partial(forward, "dlrm", batch=8),
    "dlrm forward": partial(forward, "dlrm"),
    "towers forward, batch 32": partial(towers, batch=32),
    "towers forward, batch 256": partial(towers, batch=256),
    "bert forward": partial(forward, "bert", layers=6),
    "unet step": partial(step, "unet", size=284),
    "nasnet_a step": partial(step, "nasnet_a", size=96, cells=2),
    "bert step": partial(step, "bert", layers=2),
    "gpt2 step": partial(step, "gpt2", layers=2, length=128),
}
