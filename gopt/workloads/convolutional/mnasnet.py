"""MNasNet-A1: inverted residuals whose kernels, widths and channel weighing were searched."""

import flax.linen as nn

from gopt.workloads.base import Workload
from gopt.workloads.convolutional.inverted_residuals import Stage, inverted_residual_network

# The paper, figure 7. Its separable convolution is an inverted residual without expansion.
STAGES = (
    Stage(expansion=1, kernel=3, features=16, strides=1),
    Stage(expansion=6, kernel=3, features=24, strides=2),
    Stage(expansion=3, kernel=5, features=40, strides=2, weighed=True),
    Stage(expansion=6, kernel=3, features=80, strides=2),
    Stage(expansion=6, kernel=3, features=112, strides=1, weighed=True),
    Stage(expansion=6, kernel=5, features=160, strides=2, weighed=True),
    Stage(expansion=6, kernel=3, features=320, strides=1),
)
BLOCKS = (1, 2, 3, 4, 2, 3, 1)  # inverted residuals in each stage


def mnasnet(*, batch: int = 1, size: int = 224, blocks: tuple[int, ...] = BLOCKS) -> Workload:
    """Return MNasNet-A1; with the default blocks, 3 887 038 parameters.

    pytorchcv publishes the same number for `mnasnet_a1`; the paper, 3.9 million (table 1). The
    ReLUs, and a convolution to 1280 channels before the classifier, are from the authors' program
    (tensorflow/tpu). Dropout is not applied.

    The arguments and errors are as in `inverted_residual_network`.

    Source: Tan et al., MnasNet: Platform-Aware Neural Architecture Search for Mobile (2019),
    arXiv:1807.11626.
    """
    return inverted_residual_network(
        "mnasnet_a1", STAGES, nn.relu, batch=batch, size=size, blocks=blocks
    )
