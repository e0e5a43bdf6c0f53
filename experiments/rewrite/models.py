"""Models of the rewriting papers in the sizes that X-RLflow gives, and others, by name."""

from collections.abc import Callable
from functools import partial
from typing import Any

from gopt.workloads.cases import Case, forward
from gopt.workloads.rewriting import networks, transformers
from gopt.workloads.rewriting.onnx_models import ONNX_MODELS

_BERT: dict[str, Any] = {"layers": 8, "length": 64, "hidden": 1024, "heads": 16}
_DALLE: dict[str, Any] = {"layers": 8, "length": 16, "hidden": 768, "heads": 12, "inner": 2048}
_VIT: dict[str, Any] = {"layers": 12, "length": 64, "hidden": 768, "heads": 12, "inner": 3072}
_TT: dict[str, Any] = {
    **dict(layers=12, labels=2, length=80),
    **dict(hidden=512, heads=8, inner=2048),
}

MODELS: dict[str, Callable[[], Case]] = {
    "BERT": partial(forward, "bert", batch=1, inner=4096, **_BERT),
    "DALL-E": partial(transformers.transformer, causal=True, gated=True, **_DALLE),
    "T-T": partial(transformers.transducer, predicted=20, vocabulary=128, **_TT),
    "ViT": partial(forward, "vit"),
    "BERT, matrices alone": partial(transformers.bare_attention, **_BERT),
    "DALL-E, matrices alone": partial(transformers.bare_gated_transformer, **_DALLE),
    "T-T, matrices alone": partial(transformers.bare_transducer, outputs=10, **_TT),
    "ViT, matrices alone": partial(transformers.bare_transformer, activation=lambda x: x, **_VIT),
    "NasRNN": partial(networks.nas_rnn, steps=5, hidden=512),
    "Inception-v3": partial(forward, "inception_v3"),
    "SqueezeNet": partial(forward, "squeezenet"),
    "ResNeXt-50": partial(forward, "resnext"),
    "ResNet-18": networks.resnet18,
    "NASNet-A": partial(forward, "nasnet_a"),
    "VGG-19": networks.vgg19,
}

# Networks on which PET is compared with TASO, by images and pixels.
BATCHES: dict[str, Callable[[], Case]] = {
    f"{name}, {images} of {pixels}": partial(make, batch=images, size=pixels)
    for name, make in (
        ("ResNet-18", networks.resnet18),
        ("ResNeXt-50", partial(forward, "resnext")),
    )
    for pixels in (128, 224)
    for images in (1, 4, 16, 64)
}

EVERY: dict[str, Callable[..., Case]] = {**MODELS, **BATCHES, **ONNX_MODELS}
