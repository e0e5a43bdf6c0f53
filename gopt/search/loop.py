"""Searches as loops of steps, which run whole inside `jax.jit`, or in slices from the host.

Both ways make the same steps with the same random numbers, so their results are equal bit for bit.
In slices, a search shows its progress, and ends early with its best candidate so far.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gopt.host.progress import Progress

Carry = Any  # a pytree of arrays
_SLICE = 0.5  # s, the time of a slice


class Loop(NamedTuple):
    """A search as a loop.

    Attributes:
      start: returns the carry before the first step.
      step: maps a carry and the index of a step, int32 `[]`, to the next carry.
      steps: number of steps.
      finish: maps the carry after all steps to the result.
      early: maps the carry after fewer steps, and their number, to a result.
      least: maps a carry to the least cost so far, `[]`.
    """

    start: Callable[[], Carry]
    step: Callable[[Carry, Any], Carry]
    steps: int
    finish: Callable[[Carry], Any]
    early: Callable[[Carry, int], Any]
    least: Callable[[Carry], Any]


class LoopResult(NamedTuple):
    """Result of a loop of s steps.

    Attributes:
      best: best candidate.
      cost: its cost, `[]`.
      history: best cost after the start and after each step, `[s + 1]`.
      evaluations: evaluations made until then, int32 `[s + 1]`.
      last: state after the last step.
    """

    best: Any
    cost: jax.Array
    history: jax.Array
    evaluations: jax.Array
    last: Any


MakeLoop = Callable[..., Loop]  # arrays and hashable options to a loop
Run = Callable[..., Any]  # a `MakeLoop`, its arrays and options, to the result of the loop


def recorded(
    first: Callable[[], Any],
    move: Callable[[Any, Any, int], Any],
    best: Callable[[Any], tuple[Any, jax.Array]],
    *,
    evaluations: int,
    start: int,
    each: int,
) -> Loop:
    """Return a search as a loop whose result is a `LoopResult`.

    Args:
      first: returns the state after the first candidates.
      move: maps a state, the index of a step and its number of candidates to the next state.
      best: maps a state to its best candidate and the candidate's cost, `[]`.
      evaluations: number of all candidates.
      start: number of the first candidates.
      each: number of candidates of a step. A last step has what is left of `evaluations`.
    """
    steps, rest = divmod(evaluations - start, each)

    def begin() -> tuple[Any, jax.Array]:
        state = first()
        _, cost = best(state)
        return state, jnp.zeros(steps + 1, cost.dtype).at[0].set(cost)

    def step(carry: tuple[Any, jax.Array], index: Any) -> tuple[Any, jax.Array]:
        state = move(carry[0], index, each)
        return state, carry[1].at[index + 1].set(best(state)[1])

    def early(carry: tuple[Any, jax.Array], done: int) -> LoopResult:
        state, history = carry
        spent = start + each * jnp.arange(done + 1, dtype=jnp.int32)
        return LoopResult(*best(state), history[: done + 1], spent, state)

    def finish(carry: tuple[Any, jax.Array]) -> LoopResult:
        if not rest:
            return early(carry, steps)
        result = early((move(carry[0], steps, rest), carry[1]), steps)
        return result._replace(
            history=jnp.append(result.history, result.cost),
            evaluations=jnp.append(result.evaluations, evaluations),
        )

    return Loop(begin, step, steps, finish, early, lambda carry: best(carry[0])[1])


def whole(make: MakeLoop, *arrays: Any, **options: Any) -> Any:
    """Return the result of a loop; composes with `jax.jit` and `jax.vmap`.

    Args:
      make: function that makes the loop.
      *arrays: its arguments.
      **options: its options.
    """
    loop = make(*arrays, **options)
    carry = loop.start()
    if loop.steps:
        carry = lax.fori_loop(0, loop.steps, lambda k, carry: loop.step(carry, k), carry)
    return loop.finish(carry)


class Slices:
    """Runs loops from the host, until the time is over or Ctrl-C; see `whole`.

    Call it like `whole`. `make` must be a function of a module: then it is compiled once for each
    shape and choice of options.
    """

    def __init__(
        self, progress: Progress, name: str, text: Callable[[float], str] = "{:.4g}".format
    ):
        """Take what shows the progress.

        Args:
          progress: shows progress, and knows when the time is over.
          name: name of the search.
          text: maps a cost to text.
        """
        self._progress, self._name, self._text = progress, name, text

    def __call__(self, make: MakeLoop, *arrays: Any, **options: Any) -> Any:
        """Return the result of a loop, which may have made fewer steps than planned."""
        static = tuple(sorted(options.items()))
        progress = self._progress
        progress.phase(f"{self._name}, compiled")
        carry, steps = _start(make, static, arrays)
        steps, done, size = int(steps), 0, 1
        advance = partial(_advance, make, static, arrays)
        with progress.interruptible():
            if steps and not progress.is_over:
                advance(carry, np.int32(0), np.int32(0))  # compiles it
                progress.phase(self._name, steps)
            while done < steps and not progress.is_over:
                began = time.perf_counter()
                stop = min(done + size, steps)
                later, least = advance(carry, np.int32(done), np.int32(stop))
                least = float(least)  # waits
                carry, taken, done = later, time.perf_counter() - began, stop
                size = max(1, min(2 * size, int(size * _SLICE / taken)))
                progress.advance(done, f"best {self._text(least)}")
        if done < steps:
            return make(*arrays, **options).early(carry, done)
        return _finish(make, static, arrays, carry)


@partial(jax.jit, static_argnums=(0, 1))
def _start(make: MakeLoop, options: tuple[Any, ...], arrays: tuple[Any, ...]) -> Any:
    loop = make(*arrays, **dict(options))
    return loop.start(), loop.steps


@partial(jax.jit, static_argnums=(0, 1))
def _advance(
    make: MakeLoop,
    options: tuple[Any, ...],
    arrays: tuple[Any, ...],
    carry: Any,
    done: Any,
    stop: Any,
) -> Any:
    loop = make(*arrays, **dict(options))
    carry = lax.fori_loop(done, stop, lambda k, carry: loop.step(carry, k), carry)
    return carry, loop.least(carry)


@partial(jax.jit, static_argnums=(0, 1))
def _finish(make: MakeLoop, options: tuple[Any, ...], arrays: tuple[Any, ...], carry: Any) -> Any:
    return make(*arrays, **dict(options)).finish(carry)
