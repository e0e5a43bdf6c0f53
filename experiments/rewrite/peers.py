"""Compare ONNX models through XLA, rewritten, and through onnxruntime, which has its own rules.

    python -m experiments.rewrite.peers
    python -m experiments.rewrite.peers --models SqueezeNet ShuffleNet --repeats 8

Programs are timed in interleaved rounds:

- the model through XLA with its weights as arguments;
- the same without YNNPACK, which XLA for CPUs uses for convolutions;
- the model with values that depend only on weights precomputed, and images in one layout;
- its rewrites by saturation, with a roofline and with measured costs of ops;
- the file with the same weights in onnxruntime, as it is and after onnxsim.

All have as many threads as cores. Needs the extras `rewriting`, `onnx` and `peers`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.harness import command_line, statistics, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.tables import milliseconds, ratio
from experiments.rewrite.measuring import PLAIN, measured_cost, read_model
from gopt.fusion import KernelTimes
from gopt.host.extras import optional
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import cores
from gopt.rewriting import RewrittenProgram, roofline
from gopt.rewriting.search.saturation import saturation
from gopt.workloads.rewriting.onnx_models import NAMES, forward, model, with_weights

onnxruntime = optional("onnxruntime", "peers", "ONNX Runtime")
onnxsim = optional("onnxsim", "peers", "ONNX Runtime")

BASE = "XLA"


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      models: models from `gopt.workloads.rewriting.onnx_models.NAMES`; by default all.
      repeats: rounds in which whole programs are timed.
      seed: seed of weights and inputs.
      folder: folder of figures, the table and times of ops.
    """

    models: tuple[str, ...] = choice(NAMES)
    repeats: int = at_least(1, 12)
    seed: int = 0
    folder: Path = Path("runs/rewrite/peers")


def measure(name: str, times: KernelTimes, settings: Settings) -> list[dict[str, Any]]:
    """Return the times of a model in each way, and the differences of its values from XLA's."""
    case = forward(name)
    weights, *inputs = random_arguments(case.args, settings.seed)
    file = with_weights(model(name), weights)
    ways: dict[str, Callable[[], Any]] = {BASE: partial(jax.jit(case.fn), weights, *inputs)}
    ways["XLA, plain"] = partial(jax.jit(case.fn, compiler_options=PLAIN), weights, *inputs)
    terms, roots, program = read_model(case)
    for way, found in (
        ("XLA, folded", roots),
        ("gopt, roofline", saturation(terms, roots, roofline()).roots),
        ("gopt, measured", saturation(terms, roots, measured_cost(program, times)).roots),
    ):
        written = RewrittenProgram(terms, found, program, {0})
        ways[way] = partial(jax.jit(written.run), written.fold(weights), *inputs)
    simplified, is_same = onnxsim.simplify(file)
    if not is_same:
        raise ValueError(f"onnxsim has changed the values of {name}")
    ways["onnxruntime"] = _session(file, inputs)
    ways["onnxsim, onnxruntime"] = _session(simplified, inputs)
    measured = statistics.compare_in_rounds(ways, BASE, repeats=settings.repeats)
    (expected,) = jax.tree.leaves(ways[BASE]())
    return [
        {
            **{"model": name, "way": way, **measured[way]},
            "difference": largest_difference(jax.tree.leaves(call()), [expected]),
        }
        for way, call in ways.items()
    ]


def _session(file: Any, inputs: Sequence[Any]) -> Callable[[], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    options.log_severity_level = 3  # hide warnings about unused shapes
    # Threads that wait for work use CPU time of the next program.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        file.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = (each.name for each in session.get_inputs())
    fed = dict(zip(names, map(np.asarray, inputs), strict=True))
    return lambda: session.run(None, fed)


def main(settings: Settings) -> None:
    """Measure all models, print the table and save it with the figures."""
    times = KernelTimes(settings.folder / "ops.sqlite", rounds=6)
    rows = {name: partial(measure, name, times, settings) for name in settings.models}
    tables.show_rows(
        f"ONNX models, {settings.repeats} rounds",
        store.collect(settings, "peers.json", rows, "models"),
        (
            ("model", "model"),
            ("way", "way"),
            ("process, ms", milliseconds("times", "process", digits=1)),
            ("of XLA (95 %)", ratio("ratio")),
            ("wall, ms", milliseconds("times", "wall", digits=1)),
            ("of XLA", ratio("wall ratio")),
            ("differs", "{difference:.0e}"),
        ),
        settings.folder / "table.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
