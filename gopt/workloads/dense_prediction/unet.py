"""U-Net: contracting and expanding paths of unpadded convolutions, joined by skip connections."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.workloads.base import Workload, cross_entropy, image
from gopt.workloads.layers import check_at_least


def _double_conv(x: jax.Array, features: int) -> jax.Array:
    for _ in range(2):
        x = nn.relu(nn.Conv(features, (3, 3), padding="VALID")(x))
    return x


def _crop(x: jax.Array, size: int) -> jax.Array:
    margin = (x.shape[1] - size) // 2
    return x[:, margin : margin + size, margin : margin + size]


class UNet(nn.Module):
    """A U-Net whose skips are cropped to the size of the expanding path (paper, figure 1).

    Attributes:
      depth: number of halvings of the resolution.
      width: channels at the full resolution; doubled with each halving.
    """

    depth: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits `[batch, out, out, 2]` of images `[batch, size, size, 1]`, out < size."""
        skips = []
        for level in range(self.depth):
            skips.append(_double_conv(x, self.width << level))
            x = nn.max_pool(skips[-1], (2, 2), (2, 2))
        x = _double_conv(x, self.width << self.depth)
        for level in reversed(range(self.depth)):
            features = self.width << level
            x = nn.ConvTranspose(features, (2, 2), (2, 2), "VALID")(x)
            x = jnp.concatenate([_crop(skips[level], x.shape[1]), x], axis=-1)
            x = _double_conv(x, features)
        return nn.Conv(2, (1, 1))(x)


def _output_size(size: int, depth: int) -> int:
    """Return the size of the output.

    Raises:
      ValueError: the size is odd before a pooling, or too small.
    """
    inner = size
    for _ in range(depth):
        inner -= 4
        if inner % 2:
            raise ValueError(f"size: expected even sizes before all {depth} poolings, got {size}")
        inner //= 2
    inner -= 4
    # The bottom is the narrowest point, apart from the last convolutions of each step up.
    for _ in range(depth):
        if inner <= 2:
            raise ValueError(f"size: expected a larger one for depth {depth}, got {size}")
        inner = 2 * inner - 4
    return inner


def unet(*, batch: int = 1, size: int = 572, depth: int = 4, width: int = 64) -> Workload:
    """Return U-Net; by default the original one, 31 030 658 parameters, 572 to 388 pixels.

    The paper gives the widths (figure 1), not the number of parameters. Implementations publish
    31.03 million. The Keras one of zhixuhao/unet has 31 031 685: it inserts a 3x3 convolution with
    two channels (1 154) before an output of one channel (3, here 130). Dropout is not applied.

    Args:
      batch: number of images, of one channel each.
      size: height and width of an image; even before each pooling.
      depth: number of halvings of the resolution.
      width: channels at the full resolution.

    Raises:
      ValueError: an argument is too small, or `size` does not fit `depth`.

    Source: Ronneberger et al., U-Net: Convolutional Networks for Biomedical Image Segmentation
    (2015).
    """
    check_at_least(1, batch=batch, depth=depth, width=width)
    out = _output_size(size, depth)
    return Workload(
        name="unet",
        module=UNet(depth, width),
        inputs=(image(batch, size, 1),),
        loss=cross_entropy,
        targets=jax.ShapeDtypeStruct((batch, out, out), jnp.int32),
    )
