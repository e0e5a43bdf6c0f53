"""EfficientNet-B0: inverted residuals with squeeze-and-excitation."""

import flax.linen as nn

from gopt.workloads.base import Workload
from gopt.workloads.convolutional.inverted_residuals import Stage, inverted_residual_network

# The paper, table 1.
STAGES = (
    Stage(expansion=1, kernel=3, features=16, strides=1, weighed=True),
    Stage(expansion=6, kernel=3, features=24, strides=2, weighed=True),
    Stage(expansion=6, kernel=5, features=40, strides=2, weighed=True),
    Stage(expansion=6, kernel=3, features=80, strides=2, weighed=True),
    Stage(expansion=6, kernel=5, features=112, strides=1, weighed=True),
    Stage(expansion=6, kernel=5, features=192, strides=2, weighed=True),
    Stage(expansion=6, kernel=3, features=320, strides=1, weighed=True),
)
BLOCKS = (1, 2, 2, 3, 3, 4, 1)  # inverted residuals in each stage


def efficientnet(*, batch: int = 1, size: int = 224, blocks: tuple[int, ...] = BLOCKS) -> Workload:
    """Return EfficientNet-B0; with the default blocks, 5 288 548 parameters.

    torchvision publishes the same number for `efficientnet_b0`; the paper, 5.3 million (table 2).
    Dropout and stochastic depth are not applied.

    The arguments and errors are as in `inverted_residual_network`.

    Source: Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks
    (2019).
    """
    return inverted_residual_network(
        "efficientnet_b0", STAGES, nn.swish, batch=batch, size=size, blocks=blocks
    )
