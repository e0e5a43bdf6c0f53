"""Compare fusion costs and sums of kernel times with measured times of XLA's programs on this CPU.

    python -m experiments.fused_time

Random configurations of blocks of models become programs. XLA keeps their kernels apart, and their
values are compared. The CPU time of each program, relative to the others in each round, is compared
with three predictions:

- the sum of the times of its kernels, each measured once;
- the modelled cost with the rates of `gopt.fusion.CPU`;
- the modelled cost with rates fitted to every other configuration of the block. Its rank
  correlations are over the configurations that were held out.

More fusion mostly makes programs faster. So the rank correlation of sums is also given as a partial
correlation, without what the share of fused decisions explains.

Everything runs on one core, where the time of a program is the sum of the times of its kernels. The
allocator keeps the memory that programs free (`experiments.harness.command_line.keep_memory`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from experiments.harness.tables import milliseconds
from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.fusion.rules import RULES
from gopt.fusion import CPU, KernelTimes, Rates, count_work, fit_rates, fused
from gopt.fusion.configurations import parts_of
from gopt.graph.tracing import from_program
from gopt.heuristics.fusion.presets import instruction_fusion
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import time_interleaved
from gopt.program.program import trace_program
from gopt.workloads.cases import Case, forward, step
from gopt.xla import simplify
from gopt.xla.grouping import Group
from gopt.xla.ordered import MEMORY_SCHEDULER

# Narrow models, so that matrix products do not dominate the time.
_BATCH = {"layers": 1, "batch": 4, "length": 64}
_WIDE = {"hidden": 192, "inner": 768, "vocabulary": 1000}
_NARROW = {"layers": 1, "hidden": 96, "heads": 4, "inner": 384}
_T5 = {"batch": 4, "source_length": 64, "target_length": 32, "width": 24, "vocabulary": 1000}
_MIXER = {"size": 112, "hidden": 192, "patches_inner": 96, "channels_inner": 768}
_SPEECH = {"batch": 1, "length": 400, "hidden": 128, "text_length": 10}
BLOCKS: dict[str, Callable[[], Case]] = {
    "bert step": partial(step, "bert", **_BATCH, **_WIDE),
    "mlp_mixer step": partial(step, "mlp_mixer", layers=1, **_MIXER),
    "vit step": partial(step, "vit", size=112, patch=8, **_NARROW),
    "t5 step": partial(step, "t5", **_T5, **_NARROW),
    "transformer_xl step": partial(
        step, "transformer_xl", batch=2, length=64, memory=64, **_NARROW
    ),
    "gpt2 step": partial(step, "gpt2", heads=4, positions=64, **_BATCH, **_WIDE),
    "rnnlm step": partial(step, "rnnlm", layers=1, batch=64, length=4, hidden=192, vocabulary=1000),
    "wavenet step": partial(step, "wavenet", batch=1, length=1024, stacks=1, layers=3, channels=32),
    "graph_network step": partial(step, "graph_network", nodes=200, edges=2000, steps=1, hidden=32),
    "nasnet_a forward": partial(forward, "nasnet_a", cells=1, size=96),
    "mobilenet_v2 step": partial(step, "mobilenet_v2", size=64, blocks=(1, 1, 1, 1, 1, 1, 1)),
    "mamba step": partial(step, "mamba", layers=1, batch=1, length=64, hidden=128, vocabulary=500),
    "conformer forward": partial(forward, "conformer", layers=1, **_SPEECH),
}
SEMANTICS = {"joined": replace(RULES["cpu"], allow_duplication=False), "cloned": RULES["cpu"]}
# Rough rates of one core; costs with these rates are not reported.
GUESS = Rates(5e-11, 5e-11, 1e-9, 2e-11, 1e-6)

TOLERANCE = 1e-4  # relative to the largest value of an array


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the measurement.

    Attributes:
      blocks: blocks from `BLOCKS`; each takes about ten minutes.
      configurations: joined configurations of each block, and as many cloned ones.
      repeats: times that each program is timed in each half; its kernels are timed as often in all.
      seed: seed of the configurations.
      folder: folder of figures, tables and times of kernels.
    """

    blocks: tuple[str, ...] = choice(BLOCKS)
    configurations: int = at_least(2, 20)
    repeats: int = at_least(1, 24)
    seed: int = 0
    folder: Path = Path("runs/fused_time")


def drawn(problem: FusionProblem, count: int, seed: int) -> np.ndarray:
    """Return configurations: XLA's own, and random ones from nothing fused to everything fused."""
    rng = np.random.default_rng(seed)
    shares = np.linspace(0, 1, count)[:, None]
    fuse = rng.random((count, len(problem.compute))) < shares
    fuse[count // 2] = instruction_fusion(problem)
    return fuse


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Return the times of the configurations of one block, and their predictors."""
    case = BLOCKS[name]()
    program = simplify(trace_program(case.fn, *case.args))
    traced = from_program(program)
    problems = {k: GUESS.problem(traced.graph, rules=rules) for k, rules in SEMANTICS.items()}
    count = 2 * settings.repeats
    file = settings.folder / f"{name.replace(' ', '_')}_{count}_rounds.sqlite"
    times = KernelTimes(file, rounds=count)
    args = random_arguments(case.args)
    options = MEMORY_SCHEDULER["cpu"]
    own = jax.jit(case.fn, compiler_options=options)
    values = own(*args)
    programs: dict[str, Callable[..., Any]] = {"XLA": own}
    counts, shares, differences = [], [], []
    every: list[tuple[Group, ...]] = []
    for semantics, problem in problems.items():
        fuse = drawn(problem, settings.configurations, settings.seed)
        shares.append(fuse[:, problem.configurable].mean(1))
        counts.append(count_work(traced.graph, fuse, rules=SEMANTICS[semantics]))
        for k, bits in enumerate(fuse):
            every.append(parts_of(traced, problem, bits))
            function = jax.jit(fused(program, every[-1]), compiler_options=options)
            programs[f"{semantics} {k}"] = function
            differences.append(largest_difference(function(*args), values))
            if differences[-1] > TOLERANCE:
                raise RuntimeError(
                    f"{name}, {semantics} {k}: values differ by {differences[-1]:.0e}"
                )
    sums = times.of_each(program, every)
    measured = time_interleaved(programs, lambda: args, repeats=count)
    seconds = np.array([times.process for times in measured.values()])
    return {
        "block": name,
        "ops": int(problem.num_ops),
        "configurable": int(problem.num_choices),
        "seconds": seconds[1:],  # [configurations, rounds]
        "own": float(typical(seconds)[0]),
        "sums": sums,
        "counts": np.concatenate(counts),
        "shares": np.concatenate(shares),  # share of decisions that fuse
        "difference": max(differences),
    }


def run(name: str, settings: Settings) -> dict[str, Any]:
    """Return the times of the configurations of one block, and the quality of their predictions."""
    row = measure(name, settings)
    return row | summary(row)


def typical(seconds: np.ndarray) -> np.ndarray:
    """Return the typical time of each program, s `[P]`, from its times in all rounds `[P, T]`.

    This is the median of its relative times, scaled to the fastest round. A relative time is a
    share of the time of all programs in the same round. The least time would depend on luck where
    the speed of a machine changes between rounds.
    """
    middle = np.median(seconds, 0)
    return np.asarray(np.median(seconds / middle, 1) * middle.min())


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """Return the rank correlations of one block."""
    seconds = row["seconds"]
    measured, middle = typical(seconds), seconds.shape[1] // 2
    # Both semantics start with the same configurations, and hold out the same ones.
    half = len(measured) // len(SEMANTICS)
    held = np.arange(len(measured)) % half % 2 == 1
    rates = fit_rates(row["counts"][~held], measured[~held])
    predicted = row["counts"] @ np.array(rates)
    return {
        "rank of halves": _correlation(typical(seconds[:, :middle]), typical(seconds[:, middle:])),
        "rank of sums": _correlation(row["sums"], measured),
        "rank of sums, shares aside": _partial(row["sums"], measured, row["shares"]),
        "apart": float(np.median(np.abs(row["sums"] / measured - 1))),
        "rank of CPU": _correlation(row["counts"] @ np.array(CPU), measured),
        "rank of fitted": _correlation(predicted[held], measured[held]),
        "error": float(np.median(np.abs(predicted[held] / measured[held] - 1))),
        "rates": rates._asdict(),
        "best": float(measured.min()),
        "worst": float(measured.max()),
    }


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(stats.spearmanr(a, b).statistic)


def _partial(a: np.ndarray, b: np.ndarray, shares: np.ndarray) -> float:
    """Return the rank correlation without the part that shares and semantics explain.

    Each semantics covers one half of the configurations. Within each half, a parabola is fitted to
    the ranks by the ranks of the shares, and subtracted.
    """
    halves = np.repeat(np.eye(len(SEMANTICS)), len(a) // len(SEMANTICS), 0)
    by = stats.rankdata(shares)[:, None] / len(shares)
    known = np.concatenate([halves, halves * by, halves * by**2], 1)

    def rest(values: np.ndarray) -> np.ndarray:
        ranks = stats.rankdata(values)
        return ranks - known @ np.linalg.lstsq(known, ranks, rcond=None)[0]

    return float(np.corrcoef(rest(a), rest(b))[0, 1])


def main(settings: Settings) -> None:
    """Measure all blocks, print the table and save it."""
    made = {name: partial(run, name, settings) for name in settings.blocks}
    found = store.collect(settings, "fused_time.json", made, "blocks")
    tables.show_rows(
        "Rank correlations with process time",
        found,
        (
            *((key, key) for key in ("block", "ops", "configurable")),
            ("XLA's own, ms", milliseconds("own", digits=2)),
            ("fastest, ms", milliseconds("best", digits=2)),
            ("slowest, ms", milliseconds("worst", digits=2)),
            ("halves of the runs", "{rank of halves:.3f}"),
            ("sum of kernels", "{rank of sums:.3f}"),
            ("shares aside", "{rank of sums, shares aside:.3f}"),
            ("it differs, %", lambda row: f"{100 * row['apart']:.1f}"),
            ("cost", "{rank of CPU:.3f}"),
            ("fitted cost, held out", "{rank of fitted:.3f}"),
            ("it differs, %", lambda row: f"{100 * row['error']:.1f}"),
            ("values differ by", "{difference:.0e}"),
        ),
        settings.folder / "table.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__, devices=1, keeps_memory=True, cores=1)
