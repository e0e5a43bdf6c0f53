"""MobileNetV2: residuals between narrow layers, with depthwise convolutions in wide ones."""

import flax.linen as nn

from gopt.workloads.base import Workload
from gopt.workloads.convolutional.inverted_residuals import Stage, inverted_residual_network

# The paper, table 2.
STAGES = (
    Stage(expansion=1, kernel=3, features=16, strides=1),
    Stage(expansion=6, kernel=3, features=24, strides=2),
    Stage(expansion=6, kernel=3, features=32, strides=2),
    Stage(expansion=6, kernel=3, features=64, strides=2),
    Stage(expansion=6, kernel=3, features=96, strides=1),
    Stage(expansion=6, kernel=3, features=160, strides=2),
    Stage(expansion=6, kernel=3, features=320, strides=1),
)
BLOCKS = (1, 2, 3, 4, 3, 3, 1)  # inverted residuals in each stage


def mobilenet_v2(*, batch: int = 1, size: int = 224, blocks: tuple[int, ...] = BLOCKS) -> Workload:
    """Return MobileNetV2 of width 1; with the default blocks, 3 504 872 parameters.

    torchvision publishes the same number for `mobilenet_v2`; the paper, 3.4 million (table 4).
    Dropout is not applied.

    The arguments and errors are as in `inverted_residual_network`.

    Source: Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (2018).
    """
    return inverted_residual_network(
        "mobilenet_v2", STAGES, nn.relu6, batch=batch, size=size, blocks=blocks
    )
