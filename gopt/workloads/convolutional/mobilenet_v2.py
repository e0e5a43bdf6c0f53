"""MobileNetV2: residuals between narrow layers, with depthwise convolutions in wide ones."""

import flax.linen as nn

from gopt.workloads.base import Workload
from gopt.workloads.convolutional.inverted_residuals import Stage, image_classifier

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


def mobilenet_v2(
    *,
    batch: int = 1,
    size: int = 224,
    blocks: tuple[int, ...] = (1, 2, 3, 4, 3, 3, 1),
) -> Workload:
    """Return MobileNetV2 of width 1; with the default blocks, 3 504 872 parameters.

    torchvision publishes the same number for `mobilenet_v2`; the paper, 3.4 million (table 4).
    Dropout is not applied.

    Args:
      batch: number of images.
      size: height and width of an image.
      blocks: number of inverted residuals in each of the seven stages.

    Raises:
      ValueError: an argument is smaller than 1, or there are not seven stages.

    Source: Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (2018).
    """
    return image_classifier("mobilenet_v2", STAGES, nn.relu6, batch=batch, size=size, blocks=blocks)
