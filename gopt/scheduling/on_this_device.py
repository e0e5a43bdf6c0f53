"""Orders of kernels in which XLA needs little memory: searched by the model, compiled by XLA."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import jax

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import Problem, prepare
from gopt.cost.schedule.xla_memory import packed_bytes
from gopt.graph.padding import pad
from gopt.graph.tracing import TracedGraph
from gopt.heuristics import HEURISTICS, keys_in_order
from gopt.host.progress import Progress
from gopt.measure.timing import memory
from gopt.program.program import Program
from gopt.result import Candidate
from gopt.scheduling.candidate import CompiledKernels, KernelSchedule, kernels_of, modelled
from gopt.scheduling.searches import Finder, slices
from gopt.search.loop import Run
from gopt.search.parallel import on_host
from gopt.search_argument import search_name
from gopt.xla import chains, group, kernel_graph, materialised
from gopt.xla.applied import Executable, executable, own_executable
from gopt.xla.buffers import overwritten
from gopt.xla.ordered import COMPILER_OPTIONS, MEMORY_SCHEDULER, jit_ordered, ordered, written_over


def through_xla(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    program: Program,
    finder: Finder,
    confirm: int,
    donate_argnums: int | Sequence[int],
    progress: Progress,
) -> Iterator[Candidate[KernelSchedule]]:
    """Yield ways to run `fn(*args)` on the default device, compiled; XLA's own programs first.

    The function is compiled to see what XLA fuses. Then the order of its kernels is searched, and
    the best orders by the model are compiled.

    Args:
      fn: any function.
      args: arguments of the function.
      program: the function, traced.
      finder: search for orders of the kernels.
      confirm: number of orders to compile besides the program's order and XLA's own.
      donate_argnums: positions of the arguments whose buffers may be reused.
      progress: shows progress.
    """
    found: list[tuple[str, KernelSchedule]] = []
    # Merged duplicates are what XLA makes. Apart, they keep what `jax.checkpoint` computes again.
    for merged in (True, False):
        progress.phase("kernels compiled" if merged else "kernels compiled, duplicates apart")
        kernels = kernels_of(program, merged=merged)
        if merged:
            progress.phase("XLA's own programs compiled")
            yield from own_programs(fn, args, program, donate_argnums, kernels, progress)
        if not kernels.program.equations:
            return
        suffix = _suffix(kernels)
        first = schedule_of(kernels, kernels.program)
        if kernels.compiled is not None:
            name = f"program order{suffix}"
            yield confirmed(name, first, kernels.function, kernels.compiled)
        for name, other in _orders(kernels, finder, progress).items():
            found.append((f"{name}{suffix}", schedule_of(kernels, other)))
        if progress.is_over or len(kernels.source.equations) == len(program.equations):
            break
    progress.search_ended()
    best = sorted(found, key=lambda each: each[1].peak)[:confirm]
    progress.phase("orders compiled", len(best))
    for k, (name, schedule) in enumerate(best):
        if progress.is_interrupted:
            break
        progress.advance(k)
        function = jit_ordered(schedule.traced.program)
        yield confirmed(name, schedule, function, function.lower(*args).compile())


def _suffix(kernels: CompiledKernels) -> str:
    """Return what names of orders end with."""
    return "" if kernels.merged else ", duplicates apart"


def own_programs(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    program: Program,
    donate_argnums: int | Sequence[int],
    kernels: CompiledKernels,
    progress: Progress,
) -> Iterator[Candidate[KernelSchedule]]:
    """Yield XLA's own program, with its default scheduler and with the one that saves memory."""

    def own(
        name: str, written: tuple[int, ...], options: dict[str, Any]
    ) -> Candidate[KernelSchedule]:
        schedule = schedule_of(kernels, kernels.in_order_of_xla(written))
        run = own_executable(fn, options, program, donate_argnums)
        compiled = kernels.target.compile(run.function, args)
        return measured(name, schedule._replace(options=options), run, compiled)

    yield own("XLA", kernels.written, {})
    saving = MEMORY_SCHEDULER.get(kernels.target.platform)
    if saving is not None and not progress.is_interrupted:
        yield own("XLA, memory scheduler", materialised(kernels.source, saving), saving)


def schedule_of(kernels: CompiledKernels, program: Program) -> KernelSchedule:
    """Return kernels in the order of a program as a schedule; its peak is without arguments."""
    traced = kernel_graph(program, kernels.workspace, written_over(program))
    problem = _on_one_device(traced)
    schedule = modelled(kernels, traced, problem, keys_in_order(problem))
    return schedule._replace(peak=(packed_bytes(problem, schedule.schedule.order),))


def confirmed(
    name: str, schedule: KernelSchedule, function: Any, compiled: jax.stages.Compiled
) -> Candidate[KernelSchedule]:
    """Return an order of gopt as a candidate."""
    options = COMPILER_OPTIONS.get(jax.default_backend())
    program = schedule.traced.program
    run = executable(ordered(program), options, program, function=function)
    return measured(name, schedule, run, compiled)


def measured(
    name: str, schedule: KernelSchedule, run: Executable, compiled: jax.stages.Compiled
) -> Candidate[KernelSchedule]:
    """Return a candidate with its bytes by XLA, and a peak with the arguments that XLA has."""
    needs = memory(compiled)
    (packed,) = schedule.peak
    decision = schedule._replace(peak=(needs.arguments + packed,))
    return Candidate(name, decision, packed, needs, executable=run)


def _orders(kernels: CompiledKernels, finder: Finder, progress: Progress) -> dict[str, Program]:
    """Return the kernels in other orders than the program's.

    The search "best" spends half its evaluations on the order of chains, and half on the order of
    kernels. The orders of all heuristics are added.
    """
    program, workspace = kernels.program, kernels.workspace
    graph = kernel_graph(program, workspace, overwritten(program, alone=True))
    if finder.search != "best":
        problem = _on_one_device(graph)
        keys = finder.find(pad(graph.graph), problem, "peak_memory")
        return {search_name(finder.search): modelled(kernels, graph, problem, keys).order}
    parts = chains(program)
    coarse = group(program, parts)
    # What kernels before the last of a chain take for a moment is left out here, not in the peak
    # of a candidate.
    joined = kernel_graph(coarse, workspace, overwritten(coarse, alone=True))
    part_of = {id(chain): part for chain, part in zip(coarse.equations, parts, strict=True)}

    half = max(finder.evaluations // 2, 1)
    names = ["searched", *HEURISTICS]

    def searched(what: str, graph: TracedGraph) -> list[Program]:
        name = f"orders of {what}{_suffix(kernels)}"
        run_of = partial(slices, progress, name=name)
        return _searched(kernels, graph, half, finder.seed, run_of)

    result = dict(zip(names, searched("kernels", graph), strict=True))
    if not progress.is_over:
        chained, *_ = searched("chains", joined)
        order = [k for chain in chained.equations for k in part_of[id(chain)]]
        result["searched in chains"] = replace(
            program, equations=tuple(program.equations[k] for k in order)
        )
    different: dict[tuple[int, ...], str] = {}
    for name, other in result.items():
        different.setdefault(tuple(map(id, other.equations)), name)
    different.pop(tuple(map(id, program.equations)), None)
    return {name: result[name] for name in different.values()}


@on_host
def _searched(
    kernels: CompiledKernels,
    graph: TracedGraph,
    evaluations: int,
    seed: int,
    run_of: Callable[[Problem, str], Run],
) -> list[Program]:
    """Return a graph's kernels in the order found by search, then in the heuristics' orders."""
    from gopt.scheduling import best  # with networks: `import gopt` stays light

    problem = _on_one_device(graph)
    initial = best.starts(problem, "peak_memory")
    found = best.search(
        jax.random.key(seed),
        problem,
        objective="peak_memory",
        evaluations=evaluations,
        initial=initial,
        run=run_of(problem, "peak_memory"),
    )
    others = [jax.tree.map(itemgetter(k), initial.keys) for k in range(len(HEURISTICS))]
    return [modelled(kernels, graph, problem, keys).order for keys in (found.best, *others)]


def _on_one_device(graph: TracedGraph) -> Problem:
    return prepare(pad(graph.graph), unit_rate_devices(1))
