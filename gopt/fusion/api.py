"""From a JAX function to kernels that were measured, and back to a function that runs them."""

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gopt.fusion import CPU, KernelTimes, Rates
from gopt.fusion.configurations import configurations, decisions_of
from gopt.fusion.plan import Fusion, FusionPlan, executable_of, make_plan
from gopt.fusion.search import (
    LEARNED,
    SEARCHES,
    FusionSearch,
    local_advantage_search,
    random_search,
)
from gopt.host.progress import Progress, Show
from gopt.measure.comparison import choose
from gopt.measure.drawn_values import DrawnArgumentsError, values_apart
from gopt.measure.equality import random_arguments
from gopt.measure.timing import memory, time_interleaved
from gopt.program.arguments import check_whole_numbers, keywords_are_options
from gopt.program.checks import check_alone, check_arrays, check_one_device
from gopt.program.effects import DropEffects, drop
from gopt.program.equations import may_not_end
from gopt.program.program import Program, trace_program
from gopt.result import Candidate, Result, flag_note
from gopt.search_argument import Weights, check_search, load_policy
from gopt.xla import simplify

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class FusionReport:
    """Details of a search for kernels.

    Attributes:
      traced: the function as it was traced; `Result.program` is simplified.
      searched: sum of the kernels' times of the best configuration after each evaluation, s;
        empty if no op can be fused, or there was no time. `[evaluations]`
      failures: error messages of kernels that could not be compiled or timed.
      cut_note: a sentence if the search was cut short; else empty.
    """

    traced: Program
    searched: np.ndarray
    failures: dict[str, str]
    cut_note: str

    verb = "fuse"
    unit = "s"
    constant_argnums = ()

    def header(self, result: Result) -> str:
        """Return the line above the table."""
        kernels = (f"{c.name} {c.decision.kernels}" for c in result.candidates if c.predicted)
        counts = ", ".join(kernels)
        return f"{len(result.program.equations)} equations; kernels: {counts or 'as XLA decides'}"

    def notes(self, result: Result) -> list[str]:
        """Return lines if kernels failed, or the search was cut short."""
        del result
        failed = f"{len(self.failures)} kernels failed, see `failures`" if self.failures else ""
        return [note for note in (failed, self.cut_note) if note]

    def plan(self, result: Result) -> FusionPlan:
        """Return the decision as a plan."""
        return make_plan(self.traced, result.after.decision)

    def plot(self, result: Result) -> "Figure":
        """Return the time of the best configuration against evaluations of the search.

        Raises:
          ValueError: nothing was searched.
        """
        del result
        if not len(self.searched):
            raise ValueError("nothing was searched: no op can be fused, or there was no time")
        from gopt import plots

        steps = np.arange(1, len(self.searched) + 1)
        return plots.convergence(
            {"sum of kernels": (steps, 1e3 * self.searched[None])}, label="time, ms"
        )


@keywords_are_options
def fuse(
    fn: Callable[..., Any],
    *args: Any,
    search: str | FusionSearch = "local_advantage",
    weights: Weights | None = None,
    evaluations: int = 100,
    seed: int = 0,
    repeats: int = 20,
    times: str | os.PathLike[str] | None = None,
    donate_argnums: int | Sequence[int] = (),
    rates: Rates = CPU,
    drop_effects: DropEffects = None,
    seconds: float | None = None,
    progress: Show = True,
) -> Result[Fusion, FusionReport]:
    """Return the fastest way to fuse the ops of `fn(*args)` on this CPU, as measured.

    The candidates are:

    - XLA's own program, with its default scheduler and with the one that saves memory;
    - both again for the simplified equations, if these differ (see `gopt.xla.simplify`);
    - the kernels of XLA's program of the simplified equations, each kept apart;
    - the kernels of XLA's instruction fusion and priority fusion, as gopt decodes them;
    - the result of a search from the best of the three sets of kernels.

    A candidate of the search costs the sum of its kernels' times. Each kernel is compiled and timed
    once; new kernels are timed one after another, on one core each.

    Programs run on as many cores as XLA uses. They are compared by process time, the sum over all
    cores, which other load on the machine hardly changes. Wall time is reported too. XLA's own
    program is chosen unless another one is significantly faster, see `gopt.measure.comparison`.

    The function and its kernels are run to be timed. Where no op can be fused into another, only
    XLA's own programs are compared.

    Args:
      fn: any function of pytrees of arrays. Bind other arguments with `functools.partial`.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees. For a
        `ShapeDtypeStruct`, numbers are drawn, and predicates are true.
      search: name of a search, or a callable as `gopt.search_argument` describes.
        "local_advantage": a trained network scores single changes, see `gopt.search.guided`.
        "random": single changes are drawn uniformly.
      weights: policy for "local_advantage": a file that `gopt.systems.local_advantage.save` wrote,
        or the pair that its `load` returns. By default the policy that ships.
      evaluations: number of configurations that the search may cost.
      seed: random seed of the search.
      repeats: rounds in which whole programs are timed. Fewer than 12 are too few for a test; then
        XLA's own program is chosen.
      times: file that stores the times of kernels, see `gopt.fusion.KernelTimes`.
      donate_argnums: positions of the arguments whose buffers may be reused. What a jitted `fn`
        donates is donated, too.
      rates: device rates that order the ops before anything is measured.
      drop_effects: "debug" drops `jax.debug.print` and `jax.debug.callback`.
      seconds: time from the call on after which the search ends with the best configuration so far,
        s; by default only Ctrl-C ends it early. What it found is still compiled and timed, until
        another Ctrl-C. A second Ctrl-C during the search ends the program.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Returns:
      A `gopt.Result`. Decisions of candidates are `gopt.fusion.Fusion`s.

    Raises:
      ValueError: an argument is out of range; the function cannot be traced (see `gopt.trace`) or
        is spread over devices; the call is traced; an array was deleted; the backend is not a CPU;
        or `times` or `weights` holds something else.
      FileNotFoundError: the file `weights` does not exist.
      RuntimeError: this version of JAX has no calls that XLA does not inline.

    Example:
      import gopt, jax.numpy as jnp

      x = jnp.ones((64, 64))
      result = gopt.fuse(lambda x: jnp.tanh(x @ x) * jnp.exp(-x), x, evaluations=4, repeats=12)
      print(result)  # kernels, times and their ratios to XLA's program
      y = result.apply()(x)
    """
    check_search(search, weights, SEARCHES, LEARNED)
    check_whole_numbers(1, evaluations=evaluations, repeats=repeats)
    check_whole_numbers(0, seed=seed)
    work = Progress("gopt.fuse", progress, seconds=seconds)
    find = _search_of(search, weights)
    kernels = KernelTimes(Path(times) if times is not None else None)
    fn = drop(fn, drop_effects)
    traced = trace_program(fn, *args, donate_argnums=donate_argnums)
    check_alone(args, traced)
    check_one_device(args, traced)
    check_arrays(args, traced)
    given = _given(fn, args, traced)
    program = simplify(traced)
    with work, work.interrupts_noted():
        found, history = configurations(program, kernels, find, rates, evaluations, seed, work)
        work.search_ended()
        decisions = decisions_of(program.equations != traced.equations, found)
        candidates = []
        work.phase("programs compiled", len(decisions))
        for k, (name, decision) in enumerate(decisions.items()):
            work.advance(k)
            if k and work.is_interrupted:
                break
            run = executable_of(
                decision, fn, program if decision.simplified else traced, donate_argnums
            )
            needs = memory(run.function.lower(*args).compile())
            predicted = found[name].seconds if decision.groups is not None else None
            candidates.append(Candidate(name, decision, predicted, needs, executable=run))
        candidates = _timed(candidates, traced, given, repeats, work)
        choice = choose({c.name: c.times for c in candidates if c.times is not None})
        chosen = list(decisions).index(choice.name)
        after = candidates[chosen]
        reason = choice.reason
        if after.decision.groups is None and not after.decision.simplified:
            reason += flag_note(after.decision.options)
        if after.decision.options:
            nested = after.nested(args)._replace(decision=after.decision._replace(options={}))
            candidates.append(_timed([candidates[0], nested], traced, given, repeats, work)[1])
        report = FusionReport(traced, history, dict(kernels.failures), work.cut_note)
        return Result(program, tuple(candidates), chosen, reason, report)


def _search_of(search: str | FusionSearch, weights: Weights | None) -> FusionSearch:
    """Return a search as a callable, with its policy loaded."""
    if not isinstance(search, str):
        return search
    if search == "random":
        return random_search
    from gopt.systems import local_advantage  # with networks: `import gopt` stays light

    policy = load_policy(weights, local_advantage.load)
    return functools.partial(local_advantage_search, policy=policy)


def _timed(
    candidates: Sequence[Candidate[Fusion]],
    program: Program,
    args: tuple[Any, ...],
    repeats: int,
    work: Progress,
) -> list[Candidate[Fusion]]:
    """Return candidates with their times, in interleaved rounds."""
    functions = {c.name: c.executable.function for c in candidates if c.executable}
    times = time_interleaved(
        functions, lambda: program.with_copies(args), repeats=repeats, progress=work
    )
    base = times[candidates[0].name]
    return [c._replace(times=times[c.name], base_times=base) for c in candidates]


def _given(fn: Callable[..., Any], args: tuple[Any, ...], program: Program) -> tuple[Any, ...]:
    """Return arguments with numbers where there are shapes.

    Raises:
      ValueError: shapes are given, and the function does not end on these numbers.
    """
    seeds = itertools.count()

    def value(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        return random_arguments(leaf, next(seeds), for_timing=True)

    given = jax.tree.map(value, args)
    if next(seeds) and may_not_end(program.equations):
        try:
            values_apart([fn], program, [given])
        except DrawnArgumentsError as error:
            raise ValueError(f"shapes are given: expected arrays; {error}") from error
    return given
