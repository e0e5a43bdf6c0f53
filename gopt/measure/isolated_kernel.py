"""Time one kernel in isolation, under the cache state that it has in the whole program."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Var
from jaxtyping import Float32

from gopt.graph.op_costs import num_bytes
from gopt.measure.equality import random_arguments
from gopt.measure.timing import timer
from gopt.program.equations import aval_of, shape_of, variables
from gopt.program.interpret import operands_of
from gopt.xla.calls import uninlined
from gopt.xla.fused import apart
from gopt.xla.ordered import MEMORY_SCHEDULER

COPIES = 4  # copies of a kernel in one program, so that the time to call the program counts little

_ROUND = 2e-3  # s, shortest time of the calls that are timed together
_MEMORY = 128 << 20  # bytes, more than most caches hold: arrays read in rotation come from memory
_SMALL = 16 << 10  # bytes; reading them from memory takes 2 µs, as short as a small kernel
# Copies run one after another, like the kernels of a program, and share buffers.
_OPTIONS = {**MEMORY_SCHEDULER["cpu"], "xla_disable_hlo_passes": "cse"}


def kernel(
    equation: JaxprEqn, run: Callable[..., Any]
) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """Return a kernel as a function of the distinct variables that it reads, and their shapes.

    Args:
      equation: the kernel's equation.
      run: function of the equation's operands.
    """
    read_by = list(dict.fromkeys(variables(equation.invars)))

    def function(*values: jax.Array) -> Any:
        return run(*operands_of(equation, dict(zip(read_by, values, strict=True))))

    return function, list(map(shape_of, read_by))


class Cold(NamedTuple):
    """Cold inputs of a kernel: no cache, or only a distant one, holds them when they are read.

    Attributes:
      places: positions among the kernel's inputs; see `kernel`.
      arrays: number of arrays for each place. They are read in rotation, so that each is cold.
    """

    places: tuple[int, ...] = ()
    arrays: int = 1


def cold_of(equation: JaxprEqn, cold: Collection[Var], bytes_between: float) -> Cold:
    """Return the cold inputs of a kernel, and the number of arrays that keeps them cold.

    No input counts as cold if the kernel's rarely read inputs have less than 16 KiB together, or at
    least min(`bytes_between`, 128 MiB).

    Args:
      equation: the kernel.
      cold: variables that the program reads rarely.
      bytes_between: bytes that the program reads between two reads of such a variable.
    """
    read_by = list(dict.fromkeys(variables(equation.invars)))
    places = tuple(place for place, variable in enumerate(read_by) if variable in cold)
    size = sum(num_bytes(aval_of(read_by[place])) for place in places)
    if size < _SMALL:
        return Cold()
    arrays = math.ceil(min(bytes_between, _MEMORY) / size)
    return Cold(places, arrays) if arrays > 1 else Cold()


def copies(
    equation: JaxprEqn, cold: Cold, values: dict[Any, jax.Array]
) -> tuple[Callable[..., Any], list[list[jax.Array]]]:
    """Return a program of `COPIES` copies of a kernel, and the arguments of a cycle of calls.

    Different kernels share arrays of equal shape, taken from `values`. No kernel reads one array at
    two inputs.

    Args:
      equation: the kernel.
      cold: cold inputs; at these, each copy reads another array than the copy before.
      values: shared arrays, to which new ones are added. Keys are (shape, number), and for cold
        inputs (shape, place, index in the rotation).

    Returns:
      Jitted program, and a list of arguments for each call. After the last call the cycle starts
      again.
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
        draw = partial(random_arguments, shape, numbers[shape], for_timing=True)
        first.append(value((shape, numbers[shape] - 1), draw))
    rotation = [
        [
            value((shapes[place], place, index), partial(jnp.copy, first[place]))
            for place in cold.places
        ]
        for index in range(cold.arrays)
    ]
    calls = math.lcm(cold.arrays, COPIES) // COPIES
    shared = [first[place] for place in hot]
    return jax.jit(program, compiler_options=_OPTIONS), [
        [
            *shared,
            *itertools.chain(*(rotation[k % cold.arrays] for k in range(call, call + COPIES))),
        ]
        for call in range(0, calls * COPIES, COPIES)
    ]


@uninlined
def shown(results: Any) -> Float32[jax.Array, ""]:
    """Return one number that depends on all results, float32 `[]`, so that none must be returned.

    Returning a result takes one to two microseconds, as long as many kernels. In the whole program
    only its own results have that cost.
    """
    first = (x.ravel()[0] for x in jax.tree.leaves(results) if x.size)
    return sum((_number(x) for x in first), jnp.float32(0))


def _number(x: jax.Array) -> jax.Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x).ravel()[0]
    return jnp.real(x).astype(jnp.float32)


def timed(
    function: Callable[..., Any], calls: Iterable[Sequence[Any]], *, longest: float = math.inf
) -> Callable[[], float]:
    """Compile a function and return another one that times it.

    Args:
      function: function to time.
      calls: arguments of each call; after the last call the first follows.
      longest: time limit of one call, s.

    Returns:
      Function that returns the wall time per call, s, over calls that take about 2 ms or more.

    Raises:
      TimeoutError: a call takes longer than `longest`.
    """
    measure = timer(
        function, itertools.cycle(calls), shortest=_ROUND, longest=longest, waits_for_each=False
    )
    return lambda: measure()[1]
