"""Count the kernels of XLA for GPUs, to find rewrites of models and single rules that it makes.

    python -m experiments.rewrite.gpu --target h100_sxm.txtpb

Programs are compiled and not run. This needs a compiler for GPUs (`pip install "jax[cuda12]"`) and
the description of a GPU, but no GPU. XLA's repository has some at
`xla/backends/gpu/target_config/specs`. Needs the extra `rewriting`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax import lax
from jax.experimental import topologies
from jax.sharding import Sharding, SingleDeviceSharding

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import choice
from experiments.rewrite.measuring import read_model
from experiments.rewrite.models import EVERY, MODELS
from gopt.cost.hardware import h100s
from gopt.rewriting import RULES, Matcher, RewrittenProgram, Terms, roofline
from gopt.rewriting.search.saturation import saturation
from gopt.workloads.cases import Case, floats


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the compilation.

    Attributes:
      target: file that describes a GPU, a `GpuTargetConfigProto` as text.
      models: models from `experiments.rewrite.models.EVERY`; by default the papers' models,
        `MODELS`.
      folder: folder of the table and the figures.
    """

    target: Path
    models: tuple[str, ...] = choice(EVERY, MODELS)
    folder: Path = Path("runs/rewrite/gpu")


def convolve(x: jax.Array, kernel: jax.Array, groups: int = 1) -> jax.Array:
    """Return a convolution of images (B, H, W, C) with a kernel (K, K, C / groups, O)."""
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=groups
    )


X, MATRIX, IMAGES = floats(512, 1024), floats(1024, 1024), floats(8, 56, 56, 64)
KERNEL, CHANNELS = floats(3, 3, 64, 64), floats(64)
# Programs to which a rule is applied once; the first argument holds weights.
EXAMPLES = {
    "xa, xb are parts of x[a|b]": Case(lambda w, x: (x @ w[0], x @ w[1]), ((MATRIX,) * 2, X)),
    "xa, ya are parts of [x|y]a": Case(lambda a, x, y: (x @ a, y @ a), (MATRIX, X, X)),
    "(xa)b = x(ab)": Case(lambda w, x: x @ w[0] @ w[1], ((MATRIX,) * 2, X)),
    "xa + yb = [x|y][a|b]": Case(lambda w, x, y: x @ w[0] + y @ w[1], ((MATRIX,) * 2, X, X)),
    "a scale of a product is in its matrix": Case(lambda a, x: x @ a * 0.125, (MATRIX, X)),
    "conv(x, a), conv(x, b) are parts of conv(x, [a|b])": Case(
        lambda w, x: (convolve(x, w[0]), convolve(x, w[1])), ((KERNEL,) * 2, IMAGES)
    ),
    "a norm of a convolution is in its kernel": Case(
        lambda w, x: (convolve(x, w[0]) - w[1]) * w[2] + w[3], ((KERNEL, *(CHANNELS,) * 3), IMAGES)
    ),
    "a convolution of pixels is a product": Case(
        lambda a, x: convolve(x, a), (floats(1, 1, 64, 64), IMAGES)
    ),
    "a convolution of each channel is a sum of shifted images": Case(
        lambda a, x: convolve(x, a, 64), (floats(3, 3, 1, 64), IMAGES)
    ),
    "two groups of a convolution are one": Case(
        lambda a, x: convolve(x, a, 16), (floats(3, 3, 4, 64), IMAGES)
    ),
}


def count(text: str) -> dict[str, int]:
    """Count the kernels of an XLA module for a GPU.

    Args:
      text: text of the module. Products are calls of cuBLAS, or Triton fusions.
    """
    products = len(re.findall(r" dot\(|\"__cublas", text))
    convolutions = len(re.findall(r"\"__cudnn\$conv", text))
    (entry,) = re.findall(r"^ENTRY .*?^}", text, re.MULTILINE | re.DOTALL)
    launched = re.findall(r" = .*? (fusion|copy|custom-call|reduce|sort|scatter)\(", entry)
    others = len(launched) - products - convolutions
    return {"products": products, "convolutions": convolutions, "others": others}


def kernels(fn: Any, args: Sequence[Any], where: Sharding) -> dict[str, int]:
    """Return the kernel counts of XLA's program of a function.

    Args:
      fn: function.
      args: arguments, as shapes.
      where: sharding on a described GPU.
    """
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), args)
    traced = jax.jit(fn).trace(*shapes)
    return count(traced.lower(lowering_platforms=("cuda",)).compile().as_text())


def apply_once(name: str, terms: Terms, roots: tuple[int, ...]) -> Any:
    """Return the results of a program after one application of a rule."""
    matcher = Matcher(terms, [rule for rule in RULES if rule.name == name])
    return matcher.apply(roots, matcher.matches(roots)[0])


def saturate(terms: Terms, roots: tuple[int, ...]) -> Any:
    """Return the results of the cheapest program by saturation, under a roofline of an H100."""
    return saturation(terms, roots, roofline(h100s(1))).roots


def compare(
    name: str, make: Callable[[], Case], rewritten: Callable[..., Any], where: Sharding
) -> dict[str, Any]:
    """Return the kernel counts of a program before and after rewriting, weights folded."""
    case = make()
    terms, roots, program = read_model(case)
    found = RewrittenProgram(terms, rewritten(terms, roots), program, {0})
    weights, *inputs = case.args
    folded = jax.eval_shape(found.fold, weights)
    before = kernels(case.fn, case.args, where)
    return {"name": name, "before": before, "after": kernels(found.run, (folded, *inputs), where)}


def main(settings: Settings) -> None:
    """Count the kernels for rules and for models, print the table and save it."""
    described = settings.target.read_text()
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=described, topology="1x1x1"
    )
    device: Any = topology.devices[0]
    where = SingleDeviceSharding(device)
    rows = {
        name: partial(
            compare, name, partial(EXAMPLES.__getitem__, name), partial(apply_once, name), where
        )
        for name in EXAMPLES
    }
    rows |= {name: partial(compare, name, EVERY[name], saturate, where) for name in settings.models}
    columns = [
        (f"{kind}, before and after", f"{{before[{kind}]}}, {{after[{kind}]}}")
        for kind in ("products", "convolutions", "others")
    ]
    tables.show_rows(
        f"Kernels of XLA for {device.device_kind}, with one rule, and with models by saturation",
        store.collect(settings, "gpu.json", rows, "models"),
        [("program", "name"), *columns],
        settings.folder / "kernels.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
