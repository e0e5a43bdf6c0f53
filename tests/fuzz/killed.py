"""Work that `test_kill` runs in processes and kills. Each function goes on where it stopped.

Before each unit of work, a function sends the number of units that are stored.
"""

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import store
from gopt.learning import train
from gopt.measure import isolated_kernel
from gopt.measure.kernel_times import KernelTimes
from gopt.measure.rows import Rows
from gopt.program.program import trace_program

UNITS = 20
Send = Callable[[int], Any]


def measuring(folder: Path, send: Send) -> None:
    """Measures kernels, two in a unit, by a clock that stands still."""
    isolated_kernel.copies = lambda *_: (None, [])
    isolated_kernel.timed = lambda *_, **__: lambda: 1.0
    times = KernelTimes(folder / "times.sqlite")
    for unit in range(len(times.seconds) // 2, UNITS):
        send(unit)
        shape = jax.ShapeDtypeStruct((unit + 1,), jnp.float32)
        program = trace_program(lambda x: jnp.tanh(x) + 1, shape)
        assert times.of(program, [(0,), (1,)]) == 0.0
    assert len(KernelTimes(folder / "times.sqlite").seconds) == 2 * UNITS


def training(folder: Path, send: Send) -> None:
    """Trains a number, with a checkpoint after each step."""

    def step(index: int, carry: Any) -> Any:
        send(index)
        return (carry[0] + index,), {"carry": carry[0]}

    start = (np.zeros(3),)
    (found,), history = train.run(start, step, steps=UNITS, folder=folder, checkpoint_every=1)
    sums = [sum(range(index)) for index in range(UNITS + 1)]
    assert [row["carry"] for row in history] == sums[:-1] and set(found) == {sums[-1]}


@dataclasses.dataclass(frozen=True)
class Settings:
    folder: Path


def tabling(folder: Path, send: Send) -> None:
    """Makes the rows of a table."""
    store.versions = dict

    def make(unit: int) -> Any:
        send(unit)
        return {"unit": unit, "values": np.arange(unit)}

    rows = {f"row {unit}": partial(make, unit) for unit in range(UNITS)}
    found = store.collect(Settings(folder), "table.json", rows)
    assert found == [{"unit": unit, "values": list(range(unit))} for unit in range(UNITS)]


def keeping_arrays(folder: Path, send: Send) -> None:
    """Makes arrays of 1 MB for a table."""
    store.versions = dict
    rng = np.random.default_rng(0)

    def make(unit: int) -> Any:
        send(unit)
        return {"unit": unit, "random": rng.random(10**5)}

    arrays = store.Store(folder / "arrays.sqlite", {})
    for unit in range(UNITS):
        found = arrays.arrays(f"{unit}", partial(make, unit))
        assert found["unit"] == unit and found["random"].shape == (10**5,)


WORK = {work.__name__: work for work in (measuring, training, tabling, keeping_arrays)}


def run(name: str, folder: Path, connection: Any) -> None:
    """Does one kind of work in this process."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # bars
    WORK[name](folder, connection.send)


def append(path: Path, name: str, count: int | None) -> None:
    """Adds numbered rows to a file, which is opened for each; without end if `count` is None."""
    for number in itertools.count() if count is None else range(count):
        Rows(path, {"version": 1}, "rows").add(f"{name}, {number}", number)
