"""One kernel as a program of its own, in which it takes what it takes among others."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Var

from gopt.apply import MEMORY_SCHEDULER
from gopt.cost.cells import unit
from gopt.equations import aval_of, shape_of, variables
from gopt.fusion.programs import apart
from gopt.kernels.labels import read
from gopt.sources.costs import num_bytes

COPIES = 4  # of a kernel in one program, so that what it takes to call the program counts little

_TURN = 2e-3  # s, what is timed at once at least
_MEMORY = 96 << 20  # B, more than most caches hold: what is read in turn comes from memory
_MOST_ARRAYS = 256  # that are read in turn: to draw more takes longer than to read them
_STAYS = 64 << 10  # B, below which what a kernel reads seldom makes no difference
# One copy runs after the other, as kernels of a program do, and they share buffers.
_OPTIONS = {**MEMORY_SCHEDULER["cpu"], "xla_disable_hlo_passes": "cse"}


def kernel(
    equation: JaxprEqn, run: Callable[..., Any]
) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """Returns a kernel as a function of what it reads, each variable once, and their shapes."""
    read_by = list(dict.fromkeys(variables(equation.invars)))

    def function(*values: jax.Array) -> Any:
        known = dict(zip(read_by, values, strict=True))
        return run(*(read(atom, known) for atom in equation.invars))

    return function, list(map(shape_of, read_by))


class Cold(NamedTuple):
    """What a kernel reads that was not read for long."""

    places: tuple[int, ...] = ()  # of what it reads, see `kernel`
    arrays: int = 1  # that are read in turn at each: 1, 2, or a multiple of `COPIES`


def cold_of(equation: JaxprEqn, read_seldom: Collection[Var], between: float) -> Cold:
    """Returns what a kernel reads that was not read for long.

    That is nothing if it is so small that it stays in the cache.

    Args:
      equation: the kernel.
      read_seldom: variables.
      between: two reads of one of these, B of them are read.
    """
    read_by = list(dict.fromkeys(variables(equation.invars)))
    places = tuple(place for place, variable in enumerate(read_by) if variable in read_seldom)
    size = sum(num_bytes(aval_of(read_by[place])) for place in places)
    if size < _STAYS:
        return Cold()
    arrays = min(math.ceil(min(between, _MEMORY) / size), _MOST_ARRAYS)
    if arrays > 2:
        arrays = math.ceil(arrays / COPIES) * COPIES
    return Cold(places, arrays) if arrays > 1 else Cold()


def copies(
    equation: JaxprEqn, cold: Cold, values: dict[tuple[Any, int], jax.Array]
) -> tuple[Callable[..., Any], list[tuple[Any, Any]]]:
    """Returns copies of a kernel as one program, and what calls of it read in turn.

    Kernels share arrays of the same shape, from `values`, which it adds to; none reads one twice.

    Args:
      equation: the kernel.
      cold: what each copy reads another array of than the one before.
      values: arrays, by their shapes and how many of them came before.
    """
    run, shapes = kernel(equation, apart(equation))

    def copy(by_place: dict[int, Any]) -> jax.Array:
        return shown(run(*(by_place[place] for place in range(len(shapes)))))

    def program(shared: dict[int, Any], own: list[dict[int, Any]]) -> jax.Array:
        return sum((copy({**shared, **mine}) for mine in own), jnp.float32(0))

    seen: Counter[Any] = Counter()

    def value(place: int) -> jax.Array:
        shape = shapes[place]
        key = shape, seen[shape]
        seen[shape] += 1
        if key not in values:
            values[key] = values_of(shape, seed=seen[shape])
        return values[key]

    shared = {place: value(place) for place in range(len(shapes)) if place not in cold.places}
    own = [{place: value(place) for place in cold.places} for _ in range(cold.arrays)]
    turns = max(cold.arrays // COPIES, 1)
    each = [
        (shared, [own[(COPIES * turn + k) % cold.arrays] for k in range(COPIES)])
        for turn in range(turns)
    ]
    return jax.jit(program, compiler_options=_OPTIONS), each


@unit
def shown(results: Any) -> jax.Array:
    """Returns a number that depends on all results: none has to leave the program.

    That takes a microsecond or two for each, as long as many a kernel, and is paid only for what a
    whole program returns.
    """
    first = (x.ravel()[0] for x in jax.tree.leaves(results) if x.size)
    return sum((_number(x) for x in first), jnp.float32(0))


def _number(x: jax.Array) -> jax.Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x).ravel()[0]
    return jnp.real(x).astype(jnp.float32)


def values_of(shape: jax.ShapeDtypeStruct, *, seed: int = 0) -> jax.Array:
    """Returns numbers from 0.5 to 1, integers 0 and 1, true predicates, or random keys.

    The time of some functions depends on them. Predicates are true, as where a kernel itself asks
    whether such numbers are positive: with random ones a branch takes several times as long, and to
    fuse it would seem to be a gain.
    """
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        impl: list[Any] = []
        jax.eval_shape(lambda keys: impl.append(jax.random.key_impl(keys)), shape)
        return jax.random.split(jax.random.key(seed, impl=impl[0]), shape.shape)
    if shape.dtype == bool:
        return jnp.ones(shape.shape, bool)
    rng = np.random.default_rng(seed)
    if jnp.issubdtype(shape.dtype, jnp.floating):
        return jnp.asarray(rng.uniform(0.5, 1, shape.shape), shape.dtype)
    return jnp.asarray(rng.integers(0, 2, shape.shape), shape.dtype)


def timed(
    function: Callable[..., Any], calls: Sequence[Sequence[Any]], *, longest: float = math.inf
) -> Callable[[], float]:
    """Compiles a function, and returns another that times a call of it, in s.

    Args:
      function: what is timed.
      calls: arguments of each call, in turn.
      longest: that a call may take, in s.

    Raises:
      TimeoutError: a call takes longer than `longest`.
    """

    def turn(times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            for arguments in calls:
                result = function(*arguments)
        jax.block_until_ready(result)
        return (time.perf_counter() - begin) / (times * len(calls))

    jax.block_until_ready(function(*calls[0]))  # it is compiled
    once = turn(1)
    if once > longest:
        raise TimeoutError(f"one call takes {once:.1f} s, more than {longest} s")
    return partial(turn, math.ceil(_TURN / (once * len(calls))))
