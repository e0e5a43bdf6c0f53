"""Count the kernels of XLA for GPUs, to find rewrites of models and single rules that it makes.

    python -m experiments.rewrite.gpu
    python -m experiments.rewrite.gpu --target h100_sxm.txtpb

Programs are compiled and not run. This needs a compiler for GPUs (`pip install "jax[cuda12]"`), and
a GPU or its description. XLA's repository has some at `xla/backends/gpu/target_config/specs`. Needs
the extra `rewriting`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.experimental import topologies
from jax.sharding import Sharding, SingleDeviceSharding
from rich.progress import track

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import choice
from experiments.rewrite.measuring import read_model
from experiments.rewrite.models import EVERY, MODELS
from gopt.cost.hardware import h100s
from gopt.rewriting import RULES, Matcher, RewrittenProgram, roofline
from gopt.rewriting.search.saturation import saturation
from gopt.workloads.cases import Case, floats


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the compilation.

    Attributes:
      models: models from `experiments.rewrite.models.EVERY`; by default the papers' models,
        `MODELS`.
      target: file that describes a GPU, a `GpuTargetConfigProto` as text; by default the GPU of
        this machine.
      folder: folder of the tables and the figures.
    """

    models: tuple[str, ...] = choice(EVERY, MODELS)
    target: Path | None = None
    folder: Path = Path("runs/rewrite/gpu")


class Kernels(NamedTuple):
    """Counts of kernels in a GPU program.

    Attributes:
      products: matrix products.
      convolutions: convolutions.
      others: other kernels.
    """

    products: int
    convolutions: int
    others: int


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
        lambda w, x: (convolve(x, w[0]) - w[1]) * w[2] + w[3],
        ((KERNEL, *(CHANNELS,) * 3), IMAGES),
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


def gpu(target: Path | None) -> Any:
    """Return the device that programs are compiled for.

    Raises:
      ValueError: this machine has no GPU, and none is described.
    """
    if target is None:
        try:
            return jax.devices("gpu")[0]
        except RuntimeError as error:
            raise ValueError("no GPU is here: expected a target, which describes one") from error
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=target.read_text(), topology="1x1x1"
    )
    return topology.devices[0]


def kernels(fn: Any, args: Sequence[Any], where: Sharding) -> Kernels:
    """Return the kernel counts of XLA's program of a function.

    Args:
      fn: function.
      args: arguments, as shapes.
      where: sharding on a GPU, of this machine or described.
    """
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), args)
    traced = jax.jit(fn).trace(*shapes)
    return count(traced.lower(lowering_platforms=("cuda",)).compile().as_text())


def count(text: str) -> Kernels:
    """Count the kernels of an XLA module for a GPU.

    Args:
      text: text of the module. Products are calls of cuBLAS, or Triton fusions.
    """
    products = len(re.findall(r" dot\(|\"__cublas", text))
    convolutions = len(re.findall(r"\"__cudnn\$conv", text))
    (entry,) = re.findall(r"^ENTRY .*?^}", text, re.MULTILINE | re.DOTALL)
    launched = re.findall(r" = .*? (fusion|copy|custom-call|reduce|sort|scatter)\(", entry)
    return Kernels(products, convolutions, len(launched) - products - convolutions)


def compare(case: Case, found: RewrittenProgram, where: Sharding) -> tuple[Kernels, Kernels]:
    """Return the kernel counts of a function before and after rewriting, weights folded."""
    weights, *inputs = case.args
    folded = jax.eval_shape(found.fold, weights)
    return kernels(case.fn, case.args, where), kernels(found.run, (folded, *inputs), where)


def of_rules(where: Sharding) -> list[dict[str, Any]]:
    """Return the kernel counts of XLA's programs before and after each rule."""
    rules, rows = {rule.name: rule for rule in RULES}, []
    for name, case in track(EXAMPLES.items(), "rules"):
        terms, roots, program = read_model(case)
        matcher = Matcher(terms, [rules[name]])
        rewritten = matcher.apply(roots, matcher.matches(roots)[0])
        assert rewritten is not None  # a single match cannot make a cycle
        before, after = compare(case, RewrittenProgram(terms, rewritten, program, {0}), where)
        rows.append({"rule": name, "before": before._asdict(), "after": after._asdict()})
    return rows


def of_models(names: Sequence[str], where: Sharding) -> list[dict[str, Any]]:
    """Return the kernel counts of XLA's programs of models, before and after saturation."""
    rows = []
    for name in track(names, "models"):
        case = EVERY[name]()
        terms, roots, program = read_model(case)
        found = saturation(terms, roots, roofline(h100s(1)))
        before, after = compare(case, RewrittenProgram(terms, found.roots, program, {0}), where)
        rows.append({"model": name, "before": before._asdict(), "after": after._asdict()})
    return rows


def show(title: str, rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Print a table of kernels, and save it."""
    columns = next(iter(rows[0])), *Kernels._fields, *(f"{name}, then" for name in Kernels._fields)
    cells = [
        (
            row[columns[0]],
            *(row[side][name] for side in ("before", "after") for name in Kernels._fields),
        )
        for row in rows
    ]
    tables.show(title, columns, cells, path)


def main(settings: Settings) -> None:
    """Print and save XLA's kernel counts of rules and of models."""
    device = gpu(settings.target)
    where = SingleDeviceSharding(device)
    found = {
        "one rule": of_rules(where),
        "saturation": of_models(settings.models, where),
    }
    store.save_settings(settings.folder, settings)
    store.save_json(settings.folder / "gpu.json", {"device": device.device_kind, **found})
    for what, rows in found.items():
        title = f"Kernels of XLA for {device.device_kind}, before and after {what}"
        show(title, rows, settings.folder / f"{what}.md")


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
