"""Random programs through all verbs: values, types, structures, memory and donation.

All are in the slow tier. Environment variables change the set of programs:

- `GOPT_FUZZ_PROGRAMS`: number of programs for each verb (default 10).
- `GOPT_FUZZ_SEED`: seed (default 0).

A long run of 2 000 programs takes about an hour:

    GOPT_FUZZ_PROGRAMS=400 GOPT_FUZZ_SEED=1 pytest --all tests/fuzz/test_programs.py
"""

import dataclasses
import faulthandler
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

import gopt
import gopt.rewriting
from gopt.graph.op_costs import num_bytes
from gopt.measure.timing import memory
from tests.fuzz.checks import Reference
from tests.fuzz.programs import RandomProgram, random_program

COUNT = int(os.environ.get("GOPT_FUZZ_PROGRAMS", "10"))
SEED = int(os.environ.get("GOPT_FUZZ_SEED", "0"))
LIMIT = 120  # s for one program
SECONDS = (None, None, None, 1e-9, 0.5)
REFUSALS = (
    "the function has no argument, captured array or equation: expected one at least",
    "the function has no kernel: nothing can run again",
)


def check_candidates(result: gopt.Result, reference: Reference, rng: Random, path: Path) -> None:
    """Check all candidates of a result, as measured; one of them from a file and inside others."""
    program = reference.program
    before = memory(reference.jitted.lower(*program.given).compile())
    assert result.before.memory == before, f"before is {result.before.memory}, expected {before}"
    show(result, rng)
    compiled = [k for k, c in enumerate(result.candidates) if c.executable is not None]
    names = {k: result.candidates[k].name for k in compiled}
    single = rng.choice(compiled)
    for k in compiled:
        chosen = dataclasses.replace(result, chosen=k)
        if "folded" in names[k]:
            continue  # a function of other arguments
        reference.check(names[k], chosen.apply())
        if k == single and "nested" not in names[k]:
            chosen.save(path)
            loaded = gopt.load(path).apply(program.fn, *program.given, **program.options)
            reference.check(f"{names[k]}, loaded", loaded)
            reference.check_inside(names[k], chosen.apply(nested=True))
            traced = gopt.trace(chosen.apply(), *program.given).program
            reference.check_values(
                f"{names[k]}, traced again", traced.as_function()(*program.fresh())
            )
            assert list(traced.donated) == reference.donated, f"{names[k]}, traced again: donations"


def show(result: gopt.Result, rng: Random) -> None:
    """Print a result in all ways; plot some."""
    str(result), repr(result), result.table(), result._repr_html_()
    is_empty = result.report.verb == "fuse" and not len(result.report.searched)
    if rng.random() < 0.05 and not is_empty:
        plt.close(result.plot())


def schedule(reference: Reference, rng: Random, path: Path) -> None:
    program = reference.program
    result = gopt.schedule(
        program.fn,
        *program.given,
        search=rng.choice(["best", "heft", "brkga"]),
        evaluations=rng.choice([1, 8]),
        confirm=rng.choice([0, 1, 2]),
        max_trips=rng.choice([0, 0, 3]),
        seconds=rng.choice(SECONDS),
        **program.options,
    )
    check_candidates(result, reference, rng, path)


def fit(reference: Reference, rng: Random, path: Path) -> None:
    program = reference.program
    options = {"max_trips": rng.choice([0, 0, 3]), "seconds": rng.choice(SECONDS)}
    options |= program.options | {"evaluations": rng.choice([8, 300])}
    if rng.random() < 0.5:
        front = gopt.memory_front(program.fn, *program.given, points=2, **options)
        assert str(front) and repr(front)
        check_candidates(rng.choice(front.points), reference, rng, path)
        return
    share = rng.choice([0.4, 0.8, "1 GiB"])
    try:
        result = gopt.schedule(program.fn, *program.given, memory=share, **options)
    except ValueError as error:
        if "these kernels need" not in str(error):
            raise
    else:
        fits = result.after.memory.total <= result.report.budget
        assert result.report.fits(result.after) == fits
        check_candidates(result, reference, rng, path)


def place(reference: Reference, rng: Random, path: Path) -> None:
    program = reference.program
    max_trips = rng.choice([0, 0, 3])
    result = gopt.schedule(
        program.fn,
        *program.given,
        hardware=rng.choice(["2xh100", "2xh100", "4xh100"]),
        search=rng.choice(["heft", "brkga"]),
        objective=rng.choice(["peak_memory", "makespan"]),
        evaluations=8,
        max_trips=max_trips,
        seconds=rng.choice(SECONDS),
        **program.options,
    )
    show(result, rng)
    count = result.after.decision.problem.num_devices
    devices = rng.choice([count * jax.devices()[:1], jax.devices()[:count]])
    applied = result.apply(devices=devices)
    reference.check("staged", applied, is_staged=True)
    result.save(path)
    loaded = gopt.load(path).apply(program.fn, *program.given, devices=devices, **program.options)
    reference.check("staged, loaded", loaded, is_staged=True)


def fuse(reference: Reference, rng: Random, path: Path) -> None:
    program = reference.program
    result = gopt.fuse(
        program.fn,
        *program.given,
        search=rng.choice(["random", "local_advantage"]),
        evaluations=2,
        repeats=1,
        seconds=rng.choice(SECONDS),
        **program.options,
    )
    check_candidates(result, reference, rng, path)


def rewrite(reference: Reference, rng: Random, path: Path) -> None:
    if reference.program.options:  # there is no option for donations
        reference = Reference(reference.program.donating())
    program = reference.program
    constant = [k for k in range(len(program.args)) if rng.random() < 0.3]
    result = gopt.rewrite(
        program.fn,
        *program.given,
        search=rng.choice(["taso", "taso", "pet", "tensat"]),
        constant_argnums=constant,
        rules=rng.choice([None, None, gopt.rewriting.generated()]),
        repeats=1,
        seconds=rng.choice(SECONDS),
    )
    check_candidates(result, reference, rng, path)
    for k, candidate in enumerate(result.candidates):
        if result.chosen_folded is None or candidate.name == "rewritten":
            continue  # not for folded constants
        chosen = dataclasses.replace(result, chosen_folded=k)
        chosen.save(path)
        constants = dict(enumerate(program.fresh()))
        constants = {i: constants[i] for i in constant}
        loaded = gopt.load(path).apply(program.fn, *program.given, constants=constants)
        applied = chosen.apply(constants=constants)
        for name, function in {"": applied, ", again": applied, ", loaded": loaded}.items():
            others = [arg for i, arg in enumerate(program.fresh()) if i not in constant]
            reference.check_values(f"{candidate.name}{name}", function(*others))


def trace(reference: Reference, rng: Random, path: Path) -> None:
    del rng, path
    program = reference.program
    traced = gopt.trace(program.fn, *program.given, **program.options)
    assert list(traced.program.donated) == reference.donated
    graph, count = traced.graph, len(jax.tree.leaves(program.args))
    sizes = [num_bytes(jax.typeof(x)) for x in jax.tree.leaves(program.args)]
    assert graph.size[:count].tolist() == sizes, f"inputs have {graph.size[:count]}, not {sizes}"
    for cost in (graph.flops, graph.bytes, graph.workspace, graph.size):
        assert np.isfinite(cost).all() and (cost >= 0).all(), f"a cost is {cost}"
    function = traced.program.as_function()
    reference.check_values("trace", function(*program.fresh()))
    reference.check_inside("trace", function)


VERBS = {f.__name__: f for f in (schedule, fit, place, fuse, rewrite, trace)}


class Hang(BaseException):
    """A program takes too long. No error, because those of single kernels are noted only."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise `Hang` after a time; end the process where that is not heard."""

    def stop(*_: Any) -> None:
        raise Hang(f"not ended after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fault(check: Callable[..., None], program: RandomProgram, path: Path) -> str | None:
    """Return how a program fails a check, or `None`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with limited(LIMIT):
                try:
                    reference = Reference(program)
                except jax.errors.JaxRuntimeError:
                    return None  # XLA itself cannot run it, such as some products of int4
                check(reference, Random(program.name), path)
        except (Exception, Hang) as error:
            if isinstance(error, ValueError) and str(error) in REFUSALS:
                return None
            return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, COUNT, 10))
@pytest.mark.parametrize("verb", VERBS)
def test_random_programs(verb, first, tmp_path):
    """Program number 6 n + k goes through verb number k."""
    last = min(first + 10, COUNT)
    faults = []
    for number in range(
        list(VERBS).index(verb) + first * len(VERBS), last * len(VERBS), len(VERBS)
    ):
        program = random_program(SEED, number)
        print(program.name, flush=True)  # shown with -s, where a program ends the process
        found = fault(VERBS[verb], program, tmp_path / "plan.json")
        if found:
            faults.append(f"{found}\n{program}")
    assert not faults, "\n\n".join(faults)
