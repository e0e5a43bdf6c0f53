"""Random JAX programs: program `number` of `seed` is always the same."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from tests.fuzz.operations.steps import random_step, repeated
from tests.fuzz.operations.values import Step, UnsuitableError, Values, random_array


class Pair(NamedTuple):
    """A container of arguments and results."""

    first: Any
    second: Any


@struct.dataclass
class Box:
    """An object of arguments and results."""

    inside: Any


class RandomProgram(NamedTuple):
    """A function with arguments.

    Attributes:
      name: seed and number.
      fn: the function, perhaps jitted with donated arguments.
      args: its arguments; use `fresh` for a call, because it may donate them.
      given: the arguments for a verb: these, or their shapes.
      donate_argnums: positions of donated arguments.
      options: `donate_argnums` for a verb, if `fn` does not donate.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    given: tuple[Any, ...]
    donate_argnums: tuple[int, ...]
    options: dict[str, Any]

    def fresh(self) -> tuple[Any, ...]:
        """Return copies of the arguments."""
        return jax.tree.map(lambda x: x.copy() if is_array(x) else x, self.args)

    def donating(self) -> "RandomProgram":
        """Return the program as a function that needs no option to donate."""
        if not self.options:
            return self
        return self._replace(fn=jax.jit(self.fn, **self.options), options={})

    def __str__(self) -> str:
        jaxpr = jax.make_jaxpr(self.fn)(*self.args)
        return f"{self.name}, donated {self.donate_argnums}, given {self.given}:\n{jaxpr}"


def random_program(seed: int, number: int) -> RandomProgram:
    """Return a random program of 0 to 12 operations."""
    rng = Random(f"{seed}, {number}")
    args = tuple(_argument(rng, depth=2) for _ in range(rng.choice([0] + 3 * [1, 2, 3] + [4])))
    if rng.random() < 0.1:  # the same array twice
        args += args[-1:]
    leaves = jax.tree.leaves(args)
    values = Values(rng, [jax.eval_shape(lambda x: x, leaf) for leaf in leaves])
    steps: list[Step] = []
    count = rng.choice([0, 1, 1, 2, 3, 3, 4, 4, 5, 6, 8, 10, 12])
    for _ in range(max(count, not leaves)):
        try:
            again = steps and rng.random() < 0.08  # the same computation twice
            steps.append(repeated(values, rng.choice(steps)) if again else random_step(values))
        except UnsuitableError:
            break
    results = _results(rng, len(values.types), len(leaves))

    def fn(*args: Any) -> Any:
        found = jax.tree.leaves(args)
        for step in steps:
            found += jax.tree.leaves(step.function(*(found[k] for k in step.operands)))
        return jax.tree.map(
            lambda leaf: found[leaf.number] if isinstance(leaf, _Number) else leaf,
            results,
            is_leaf=lambda x: isinstance(x, _Number),
        )

    donate_argnums: tuple[int, ...] = ()
    is_twice = len(args) > 1 and args[-1] is args[-2]
    if rng.random() < 0.3 and not is_twice:
        donate_argnums = tuple(k for k in range(len(args)) if rng.random() < 0.6)
    options = {"donate_argnums": donate_argnums}
    way = rng.randrange(8)
    if way < 3:
        # XLA would write results to donated arguments that nothing reads.
        wrapped = jax.jit(fn, keep_unused=way == 0 and not donate_argnums, **options)
        options = {}
    else:
        wrapped = [fn, fn, jax.checkpoint(fn), Callee(fn), functools.partial(_call, fn)][way - 3]
    if rng.random() < 0.06:
        device = jax.devices()[-1]
        args = jax.tree.map(lambda x: jax.device_put(x, device) if is_array(x) else x, args)
    given = args
    if rng.random() < 0.2:
        given = jax.tree.map(_shape_if_array, args)
    name = f"program {number} of seed {seed}"
    return RandomProgram(name, wrapped, args, given, donate_argnums, options)


@dataclass(frozen=True)
class Callee:
    """An object that is called."""

    fn: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)


def _call(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


def is_array(x: Any) -> bool:
    """Return whether a leaf is an array of JAX."""
    return isinstance(x, jax.Array)


# Without float8_e4m3fn, which has no infinity: its softmax is NaN or not, as XLA simplifies it.
_OTHER_DTYPES = ("uint8", "bool", "complex64", "int4", "float16", "int8", "uint32", "uint4")
_OTHER_DTYPES += ("float8_e5m2",)
_SPECIAL = np.float32([np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38])


class _Number(NamedTuple):
    """The number of a value among the results."""

    number: int


def _shape_if_array(x: Any) -> Any:
    if not is_array(x):
        return x
    sharding = x.sharding if x.committed else None
    return jax.ShapeDtypeStruct(
        x.shape, x.dtype, sharding=sharding, weak_type=jax.typeof(x).weak_type
    )


def _leaf(rng: Random) -> Any:
    """Return an array, a Python scalar or a scalar of NumPy."""
    way = rng.random()
    if way < 0.12:
        return rng.choice([2, 0.5, True, 1 + 2j, -3, 0.0])
    if way < 0.16:
        return rng.choice([np.float32(1.5), np.int32(3), np.bool_(True)])
    if way < 0.28:
        key = jax.random.key(rng.randrange(100), impl=rng.choice(["threefry2x32", "rbg"]))
        return key if rng.random() < 0.6 else jax.random.split(key, rng.choice([2, (2, 2), 0]))
    if way < 0.31:
        return rng.choice([jnp.asarray(2.0), jnp.asarray(3), lax.broadcast(2.0, (3,))])  # weak
    dtypes = [*8 * ["float32"], *2 * ["bfloat16", "int32"], *_OTHER_DTYPES]
    sizes = [0, 1, 1, 2, 2, 3, 3, 4, 5]
    shape = tuple(rng.choice(sizes) for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3, 4])))
    numbers, dtype = np.random.default_rng(rng.randrange(2**32)), rng.choice(dtypes)
    array = random_array(numbers, shape, dtype)
    if dtype == "float32" and rng.random() < 0.08:
        array = np.where(numbers.random(shape) < 0.3, numbers.choice(_SPECIAL, shape), array)
    return array if rng.random() < 0.15 else jnp.asarray(array)


def _argument(rng: Random, *, depth: int) -> Any:
    """Return a pytree of leaves."""
    if not depth or rng.random() < 0.55:
        return None if rng.random() < 0.04 else _leaf(rng)
    parts = [_argument(rng, depth=depth - 1) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
    return _container(rng, parts)


def _container(rng: Random, parts: Sequence[Any]) -> Any:
    way = rng.randrange(5)
    if way == 0:
        return tuple(parts)
    if way == 1:
        return list(parts)
    if way == 2 and len(parts) == 2:
        return Pair(*parts)
    if way == 3 and len(parts) == 1:
        return Box(parts[0])
    return {name: part for name, part in zip("bcad", parts, strict=False)}


def _results(rng: Random, num_values: int, num_arguments: int) -> Any:
    """Return a pytree of numbers of values and of literals."""
    leaves: list[Any] = []
    if num_values:
        # The last values, which depend on most operations; then some of all, arguments, too.
        leaves = [_Number(num_values - 1 - k) for k in range(min(num_values, rng.randint(1, 3)))]
        leaves += [_Number(rng.randrange(num_values)) for _ in range(rng.randint(0, 3))]
    if num_arguments and rng.random() < 0.2:
        leaves.append(_Number(rng.randrange(num_arguments)))
    if rng.random() < 0.25:
        leaves.append(rng.choice([3.0, 2, True, None, np.float32(1), np.ones((2,), np.int32), 1j]))
    if not leaves:
        return rng.choice([1.0, (), None, {"x": 2}])
    rng.shuffle(leaves)
    if len(leaves) == 1 and rng.random() < 0.5:
        return leaves[0]
    half = rng.randint(0, len(leaves))
    return _container(rng, [*leaves[:half][:2], _container(rng, leaves[half:][:4])])
