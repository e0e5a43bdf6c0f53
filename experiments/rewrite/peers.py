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
import onnxruntime
import onnxsim

from experiments.harness import command_line, statistics, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.tables import milliseconds, ratio
from experiments.rewrite.measuring import PLAIN, measured_cost, read_model
from gopt.fusion import KernelTimes
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import cores
from gopt.program.program import Program
from gopt.rewriting import OpCost, RewrittenProgram, roofline
from gopt.rewriting.search.saturation import saturation
from gopt.workloads.cases import Case
from gopt.workloads.rewriting.onnx_models import NAMES, forward, model, with_weights

BASE = "XLA"
ProgramCost = Callable[[Program], OpCost]  # function from a program to a cost model of its ops


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


def measure(name: str, costs: dict[str, ProgramCost], settings: Settings) -> list[dict[str, Any]]:
    """Return the times of a model in each way, and the differences of its values from XLA's."""
    case = forward(name)
    weights, *inputs = random_arguments(case.args, settings.seed)
    file = with_weights(model(name), weights)
    ways: dict[str, Callable[[], Any]] = {BASE: partial(jax.jit(case.fn), weights, *inputs)}
    ways["XLA, plain"] = partial(jax.jit(case.fn, compiler_options=PLAIN), weights, *inputs)
    for way, written in _rewritten(case, costs).items():
        ways[way] = partial(jax.jit(written.run), written.fold(weights), *inputs)
    simplified, is_same = onnxsim.simplify(file)
    if not is_same:
        raise ValueError(f"onnxsim has changed the values of {name}")
    ways["onnxruntime"] = _session(file, inputs)
    ways["onnxsim, onnxruntime"] = _session(simplified, inputs)
    measured = statistics.compare_in_turns(ways, BASE, repeats=settings.repeats)
    (expected,) = jax.tree.leaves(ways[BASE]())
    return [
        {
            **{"model": name, "way": way, **measured[way]},
            "difference": largest_difference(jax.tree.leaves(call()), [expected]),
        }
        for way, call in ways.items()
    ]


def _rewritten(case: Case, costs: dict[str, ProgramCost]) -> dict[str, RewrittenProgram]:
    """Return a model as read, and after saturation by each cost."""
    terms, roots, program = read_model(case)
    found = {name: saturation(terms, roots, cost(program)).roots for name, cost in costs.items()}
    programs = {"XLA, folded": roots, **found}
    return {name: RewrittenProgram(terms, each, program, {0}) for name, each in programs.items()}


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


def show(found: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print the table, and save it."""
    tables.show_rows(
        f"ONNX models, {settings.repeats} turns",
        found,
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


def main(settings: Settings) -> None:
    """Measure all models, print the table and save it with the figures."""
    times = KernelTimes(settings.folder / "ops.sqlite", turns=6)
    costs: dict[str, ProgramCost] = {
        "gopt, roofline": lambda _: roofline(),
        "gopt, measured": lambda program: measured_cost(program, times),
    }
    rows = {name: partial(measure, name, costs, settings) for name in settings.models}
    show(store.collect(settings, "peers.json", rows, "models"), settings)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, keeps_memory=True)
