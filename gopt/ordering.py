"""The order of kernels in which XLA needs least memory: searched by the model, confirmed by XLA."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import jax
from jax.extend.core import Var

from gopt.apply import MEMORY_SCHEDULER, jit_ordered, written_over
from gopt.classical import HEURISTICS, keys_from_items
from gopt.cost.execution import Keys, Schedule, decode, simulate
from gopt.hardware import homogeneous
from gopt.kernels import chains, group, groups, kernel_graph, materialised, merge_duplicates
from gopt.kernels.buffers import overwritten
from gopt.kernels.packing import packed_bytes
from gopt.kernels.workspace import workspaces
from gopt.measure import Memory, memory
from gopt.padding import pad
from gopt.problem import Problem, prepare
from gopt.program import Program, trace_program
from gopt.sources.jaxpr import Traced
from gopt.systems import best
from gopt.units import format_bytes


class Candidate(NamedTuple):
    """A way to run a function, compiled."""

    name: str
    function: Any  # jitted, of the traced arguments
    predicted: int | None  # bytes beside arguments by the model; `None` for XLA's own orders
    memory: Memory  # as XLA plans it


@dataclass(frozen=True, eq=False, repr=False)
class Ordering:
    """Ways to run a function, and the memory that each needs. Print it for a table.

    Attributes:
      candidates: XLA's own program first.
      num_equations: of the traced function.
      num_kernels: that XLA makes of them.
    """

    candidates: tuple[Candidate, ...]
    num_equations: int
    num_kernels: int

    @property
    def before(self) -> Candidate:
        """XLA's own program."""
        return self.candidates[0]

    @cached_property
    def after(self) -> Candidate:
        """The candidate that needs least memory; XLA's own program where none needs less."""
        return min(self.candidates, key=lambda candidate: candidate.memory.total)

    def apply(self) -> Any:
        """Returns the function of `after`, jitted."""
        return self.after.function

    def __str__(self) -> str:
        before = self.before.memory
        width = 2 + max(len(candidate.name) for candidate in self.candidates)
        lines = [
            f"{self.num_equations} equations, {self.num_kernels} kernels; "
            f"{format_bytes(before.arguments)} of arguments, and beside them:",
            f"{'':{width}}{'predicted':>12}{'measured':>12}{'change':>10}",
        ]
        for name, _, predicted, needs in self.candidates:
            change = f"{100 * (needs.beside / before.beside - 1):+.1f} %" if before.beside else ""
            text = "" if predicted is None else format_bytes(predicted)
            lines.append(f"{name:{width}}{text:>12}{format_bytes(needs.beside):>12}{change:>10}")
        kept = " (nothing needs less)" if self.after is self.before else ""
        return "\n".join([*lines, f"chosen: {self.after.name}{kept}"])


def least_memory(
    fn: Callable[..., Any],
    *args: Any,
    donate_argnums: int | Sequence[int] = (),
    evaluations: int = 3000,
    confirm: int = 2,
    seed: int = 0,
) -> Ordering:
    """Returns ways to run `fn(*args)` on the default device, and what memory each needs.

    The function is compiled to see what XLA fuses, the order of its kernels is searched, and the
    orders that the model says to be best are compiled. Nothing runs. Orders were only measured on
    CPUs; on other backends XLA may not keep them, and what it needs is what is reported.

    What comes back has the values of the function. In another order than XLA's own it has lost
    custom derivative rules, so give the gradient, not the function that it is of.

    Args:
      fn: any function of pytrees of arrays. Bind other arguments with `functools.partial`.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.
      donate_argnums: positions of the arguments whose buffers may be reused.
      evaluations: how many orders the search may evaluate.
      confirm: how many orders are compiled, besides that of the program and XLA's own.
      seed: of the search.

    Raises:
      ValueError: an argument is out of range, the function cannot be traced (see
        `gopt.program.trace_program`), or it runs on several devices.
    """
    if evaluations < 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    if confirm < 0:
        raise ValueError(f"confirm is {confirm}: expected 0 at least")
    traced = trace_program(fn, *args, donate_argnums=donate_argnums)
    _check_one_device(args, traced)
    candidates = list(_own(fn, args, donate_argnums))
    found: list[tuple[int, str, Program]] = []
    num_kernels = 0
    for kind, program in _variants(traced).items():
        program = group(program, groups(program, materialised(program)))
        if not program.equations:
            continue
        num_kernels = num_kernels or len(program.equations)
        first, compiled = _compiled(f"program order{kind}", program, args)
        workspace = workspaces(program, compiled)
        candidates.append(first._replace(predicted=_packed(program, workspace)))
        for name, other in _orders(program, workspace, evaluations, seed).items():
            found.append((_packed(other, workspace), f"{name}{kind}", other))
    for packed, name, other in sorted(found, key=itemgetter(0))[:confirm]:
        candidate, _ = _compiled(name, other, args)
        candidates.append(candidate._replace(predicted=packed))
    return Ordering(tuple(candidates), len(traced.equations), num_kernels)


def _check_one_device(args: tuple[Any, ...], program: Program) -> None:
    for path, leaf in jax.tree.leaves_with_path(args):
        sharding = getattr(leaf, "sharding", None)
        if sharding is not None and sharding.num_devices > 1:
            name = f"args{jax.tree_util.keystr(path)}"
            raise ValueError(f"{name} is on {sharding.num_devices} devices, expected one")
    for equation in program.equations:
        if equation.primitive.name == "shard_map":
            raise ValueError("the function has a shard_map: expected one that runs on one device")


def _variants(traced: Program) -> dict[str, Program]:
    """Returns a program with duplicates merged, as XLA merges them, and as it is.

    The second keeps what `jax.checkpoint` asks to be computed again.
    """
    merged = merge_duplicates(traced)
    if len(merged.equations) == len(traced.equations):
        return {"": merged}
    return {"": merged, ", duplicates apart": traced}


def _own(
    fn: Callable[..., Any], args: tuple[Any, ...], donate_argnums: int | Sequence[int]
) -> Iterator[Candidate]:
    """Returns XLA's own program, with its default scheduler and with the one that saves memory."""
    named = {"XLA": {}, "XLA, memory scheduler": MEMORY_SCHEDULER.get(jax.default_backend())}
    for name, options in named.items():
        if options is not None:
            function = jax.jit(fn, donate_argnums=donate_argnums, compiler_options=options)
            yield Candidate(name, function, None, memory(function.lower(*args).compile()))


def _compiled(
    name: str, program: Program, args: tuple[Any, ...]
) -> tuple[Candidate, jax.stages.Compiled]:
    """Returns a program in its order as a candidate, and compiled."""
    function = jit_ordered(program)
    compiled = function.lower(*args).compile()
    return Candidate(name, function, None, memory(compiled)), compiled


def _packed(program: Program, workspace: Mapping[Var, float]) -> int:
    """Returns the bytes that kernels need beside arguments in the order of their program."""
    graph = kernel_graph(program, workspace, written_over(program)).graph
    problem = prepare(pad(graph), homogeneous(1))
    count = int(problem.num_ops)
    return packed_bytes(
        problem, _replay(problem, keys_from_items(problem, [0] * count, range(count)))
    )


def _orders(
    program: Program, workspace: Mapping[Var, float], evaluations: int, seed: int
) -> dict[str, Program]:
    """Returns a program in other orders: those found by search, and those of heuristics.

    The search has half its evaluations for the order of chains, and half for that of kernels.
    """
    kernels = kernel_graph(program, workspace, overwritten(program, alone=True))
    parts = chains(program)
    coarse = group(program, parts)
    # What kernels before the last of a chain take for a moment is left out here, not in `_packed`.
    joined = kernel_graph(coarse, workspace, overwritten(coarse, alone=True))
    part_of = {id(chain): part for chain, part in zip(coarse.equations, parts, strict=True)}

    def unfolded(order: list[int]) -> Program:
        found = [part_of[id(chain)] for chain in joined.with_order(order).equations]
        return replace(program, equations=tuple(program.equations[k] for p in found for k in p))

    half = max(evaluations // 2, 1)
    names = ["searched", *HEURISTICS]
    result = {
        name: kernels.with_order(order)
        for name, order in zip(names, _searched(kernels, half, seed), strict=True)
    }
    result["searched in chains"] = unfolded(_searched(joined, half, seed)[0])
    different: dict[tuple[int, ...], str] = {}
    for name, other in result.items():
        different.setdefault(tuple(map(id, other.equations)), name)
    different.pop(tuple(map(id, program.equations)), None)
    return {name: result[name] for name in different.values()}


def _searched(graph: Traced, evaluations: int, seed: int) -> list[list[int]]:
    """Returns orders of the ops of a graph: the one found by search, then those of heuristics."""
    problem = prepare(pad(graph.graph), homogeneous(1))
    given = best.starts(problem, "peak_memory")
    found = best.search(
        jax.random.key(seed),
        problem,
        objective="peak_memory",
        evaluations=evaluations,
        given=given,
    )
    heuristics = [jax.tree.map(itemgetter(k), given.keys) for k in range(len(HEURISTICS))]
    count = int(problem.num_ops)
    return [_replay(problem, keys).order[:count].tolist() for keys in (found.keys, *heuristics)]


def _replay(problem: Problem, keys: Keys) -> Schedule:
    return jax.device_get(_simulate(problem, keys))


@jax.jit
def _simulate(problem: Problem, keys: Keys) -> Schedule:
    return simulate(problem, decode(problem, keys))
