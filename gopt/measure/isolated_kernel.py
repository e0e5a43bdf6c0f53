"""One kernel as a program of its own, in which it takes what it takes among others."""

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Var

from gopt.graph.op_costs import num_bytes
from gopt.program.equations import aval_of, shape_of, variables
from gopt.xla.calls import uninlined
from gopt.xla.fused import apart
from gopt.xla.labels import value_of
from gopt.xla.ordered import MEMORY_SCHEDULER

COPIES = 4  # of a kernel in one program, so that what it takes to call the program counts little

_TURN = 2e-3  # s, what is timed at once at least
_MEMORY = 128 << 20  # B, more than most caches hold: what is read in turn comes from memory
_SMALL = 16 << 10  # B, which take 2 µs to read from memory, as little as a small kernel
# One copy runs after the other, as kernels of a program do, and they share buffers.
_OPTIONS = {**MEMORY_SCHEDULER["cpu"], "xla_disable_hlo_passes": "cse"}


def kernel(
    equation: JaxprEqn, run: Callable[..., Any]
) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """Returns a kernel as a function of what it reads, each variable once, and their shapes."""
    read_by = list(dict.fromkeys(variables(equation.invars)))

    def function(*values: jax.Array) -> Any:
        known = dict(zip(read_by, values, strict=True))
        return run(*(value_of(atom, known) for atom in equation.invars))

    return function, list(map(shape_of, read_by))


class Cold(NamedTuple):
    """Inputs of a kernel that no cache holds when they are read, or a distant one."""

    places: tuple[int, ...] = ()  # among the inputs, see `kernel`
    arrays: int = 1  # at each place, which are read in turn


def cold_of(equation: JaxprEqn, cold: Collection[Var], between: float) -> Cold:
    """Returns which inputs of a kernel are cold, and how many arrays have to take turns for that.

    None is if they have less than 16 KiB together, or all that is read between two reads of them.

    Args:
      equation: the kernel.
      cold: variables that are read once in a while.
      between: bytes that are read from one read of such a variable to the next.
    """
    read_by = list(dict.fromkeys(variables(equation.invars)))
    places = tuple(place for place, variable in enumerate(read_by) if variable in cold)
    size = sum(num_bytes(aval_of(read_by[place])) for place in places)
    if size < _SMALL:
        return Cold()
    arrays = math.ceil(min(between, _MEMORY) / size)
    return Cold(places, arrays) if arrays > 1 else Cold()


def copies(
    equation: JaxprEqn, cold: Cold, values: dict[Any, jax.Array]
) -> tuple[Callable[..., Any], list[list[jax.Array]]]:
    """Returns copies of a kernel as one program, and the arguments of calls of it, in turn.

    Kernels share arrays of the same shape, from `values`, which it adds to; none reads one twice.

    Args:
      equation: the kernel.
      cold: inputs at which each copy reads another array than the one before.
      values: arrays, by shape and number; at cold inputs by shape, place and turn.
    """
    run, shapes = kernel(equation, apart(equation))
    hot = [place for place in range(len(shapes)) if place not in cold.places]
    order = [*hot, *cold.places]

    def program(*arrays: jax.Array) -> jax.Array:
        shared, own, each = arrays[: len(hot)], arrays[len(hot) :], len(cold.places)
        result = jnp.float32(0)
        for k in range(COPIES):
            by_place = dict(zip(order, (*shared, *own[k * each : (k + 1) * each]), strict=True))
            result += shown(run(*(by_place[place] for place in range(len(shapes)))))
        return result

    def value(key: Any, make: Callable[[], jax.Array]) -> jax.Array:
        if key not in values:
            values[key] = make()
        return values[key]

    numbers: Counter[Any] = Counter()
    first = []
    for shape in shapes:
        numbers[shape] += 1
        draw = partial(values_of, shape, seed=numbers[shape])
        first.append(value((shape, numbers[shape] - 1), draw))
    in_turn = [
        [
            value((shapes[place], place, turn), partial(jnp.copy, first[place]))
            for place in cold.places
        ]
        for turn in range(cold.arrays)
    ]
    calls = math.lcm(cold.arrays, COPIES) // COPIES
    shared = [first[place] for place in hot]
    return jax.jit(program, compiler_options=_OPTIONS), [
        [*shared, *itertools.chain(*(in_turn[k % cold.arrays] for k in range(call, call + COPIES)))]
        for call in range(0, calls * COPIES, COPIES)
    ]


@uninlined
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
    function: Callable[..., Any], calls: Iterable[Sequence[Any]], *, longest: float = math.inf
) -> Callable[[], float]:
    """Compiles a function, and returns another that times calls of it, in s a call.

    Args:
      function: what is timed.
      calls: the arguments of each; after the last comes the first.
      longest: that a call may take, in s.

    Raises:
      TimeoutError: a call takes longer than `longest`.
    """
    arguments = itertools.cycle(calls)

    def turn(times: int) -> float:
        begin = time.perf_counter()
        for each in itertools.islice(arguments, times):
            result = function(*each)
        jax.block_until_ready(result)
        return (time.perf_counter() - begin) / times

    jax.block_until_ready(function(*next(arguments)))  # it is compiled
    once = turn(1)
    if once > longest:
        raise TimeoutError(f"one call takes {once:.1f} s, more than {longest} s")
    return partial(turn, math.ceil(_TURN / once))
