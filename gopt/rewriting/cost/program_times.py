"""Measured times of whole programs, each measured once, in a process that may fail or hang."""

import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax

from gopt.measure.equality import random_arguments
from gopt.measure.stored_times import StoredTimes
from gopt.measure.timing import conditions, seconds
from gopt.measure.worker import Worker, WorkerError
from gopt.program.program import Program
from gopt.rewriting.ir.digests import digest
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import RewrittenProgram

_VERSION = 3  # version of the timing method and of the digests
_KEPT = 16  # reference programs that stay compiled


class ProgramTimes(StoredTimes):
    """Measured times of whole programs under XLA, by digest; see `gopt.rewriting.ir.digests`.

    Terms that depend on constants alone are computed before timing. A program that fails or exceeds
    the time limit is remembered as failed, and a new process measures the next one; see
    `gopt.measure.worker.Worker`.

    Attributes:
      seconds: time of each program by digest, s; infinite if the program failed.
      failures: error message of each failed program, by digest.
      spent: number of programs that this object measured, without known ones.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        rounds: int = 8,
        patience: float = 120.0,
        seed: int = 0,
        start: Callable[[], Any] | None = None,
    ):
        """Read earlier measurements, of this run or others.

        Args:
          path: file of measured times, see `gopt.measure.rows.Rows`. Each time is written at once,
            and times that other processes write are read. By default nothing is stored.
          rounds: number of rounds. The shortest time counts: CPU time on a CPU, else wall time.
          patience: time limit to compile and time one program, s. It is doubled for a program that
            is timed with a reference.
          seed: seed of the random arguments.
          start: function that each process calls before it measures. It must be importable from a
            module.

        Raises:
          ValueError: `rounds` or `patience` is not positive, or the file does not hold times of
            this machine with these settings.
        """
        if not rounds >= 1:
            raise ValueError(f"rounds is {rounds}: expected 1 at least")
        if not patience > 0:
            raise ValueError(f"patience is {patience}: expected a positive number of seconds")
        self.spent = 0
        self._references: dict[str, bytes] = {}  # exported programs, by digest
        self._rounds, self._seed, self._patience = rounds, seed, patience
        x64 = bool(jax.config.read("jax_enable_x64"))
        self._worker = Worker(partial(_prepare, x64, start))
        header = {
            "version": _VERSION,
            **conditions(),
            "device": jax.devices()[0].device_kind,
            "rounds": rounds,
            "seed": seed,
            "patience": patience,
            "x64": x64,
        }
        super().__init__(path, header, "times of programs")

    def of(
        self,
        terms: Terms,
        roots: Sequence[int],
        program: Program,
        constant: Collection[int],
        *,
        beside: Sequence[int] | None = None,
    ) -> float:
        """Return the time of a program, in s; infinite if it failed.

        A machine's speed changes over time. To correct for it, a program is timed in interleaved
        rounds with a reference program. Its time is the ratio of both, times the time of the
        reference when timed alone.

        Args:
          terms: terms of the program, and others.
          roots: results of the program.
          program: program that defines the arguments and results.
          constant: positions of the constant arguments.
          beside: results of the reference program. A program without a reference, or with a failed
            one, is timed alone.

        Raises:
          RuntimeError: no process can be started.
          ValueError: a row of the file is not the time of a program.
        """
        name = digest(terms, roots)
        if name not in self.seconds:
            self._read()
        if name not in self.seconds:
            reference = name if beside is None else digest(terms, beside)
            if beside is not None and reference != name:
                self.of(terms, beside, program, constant)
                self._keep(reference, RewrittenProgram(terms, beside, program, constant), program)
            self._measure(
                name, RewrittenProgram(terms, roots, program, constant), program, reference
            )
        return self.seconds[name]

    def close(self) -> None:
        """End the measuring process. The next measurement starts a new one."""
        self._worker.close()

    def _keep(self, name: str, written: RewrittenProgram, program: Program) -> None:
        """Export a reference program once, unless it failed."""
        if name not in self._references and math.isfinite(self.seconds[name]):
            self._references[name] = _exported(written, program)

    def _measure(
        self, name: str, written: RewrittenProgram, program: Program, reference: str
    ) -> None:
        """Measure a program, interleaved with the reference if there is one."""
        self._worker.start()
        self.spent += 1
        beside = [self._references[reference]] if reference in self._references else []
        try:
            exported = [_exported(written, program), *beside]
            limit = self._patience * len(exported)
            taken, *other = self._worker.run(
                _seconds_of, exported, self._rounds, self._seed, seconds=limit
            )
        except (TimeoutError, WorkerError) as error:
            self._fail(name, str(error))
        except Exception as error:  # any failure: a search continues with other programs
            self._fail(name, f"{type(error).__name__}: {error}")
        else:
            more = self.seconds[reference] / other[0] if other else 1.0
            self._add(name, taken * more)


def end_to_end(
    times: ProgramTimes,
    terms: Terms,
    program: Program,
    constant: Collection[int],
    *,
    beside: Sequence[int] | None = None,
) -> Callable[[tuple[int, ...]], float]:
    """Return a cost function for searches: from a program's results to its time, in s.

    Args:
      times: measured times.
      terms: terms of all programs.
      program: program that defines the arguments and results.
      constant: positions of the constant arguments.
      beside: results of the reference program; see `ProgramTimes.of`.
    """
    known: dict[tuple[int, ...], float] = {}

    def taken(roots: tuple[int, ...]) -> float:
        if roots not in known:
            known[roots] = times.of(terms, roots, program, constant, beside=beside)
        return known[roots]

    return taken


def _exported(written: RewrittenProgram, program: Program) -> bytes:
    """Return an exported program, in which folded constants are arguments."""
    args = program.arguments()
    constants = [arg for k, arg in enumerate(args) if k in written.constant]
    others = [arg for k, arg in enumerate(args) if k not in written.constant]
    folded = jax.eval_shape(written.fold, *constants)
    return bytes(jax.export.export(jax.jit(written.run))(folded, *others).serialize())


def _prepare(x64: bool, start: Callable[[], Any] | None) -> None:
    """Set up a process that measures programs."""
    jax.config.update("jax_enable_x64", x64)
    if start is not None:
        start()


def _seconds_of(exported: list[bytes], rounds: int, seed: int) -> list[float]:
    """Return the times of a program and of its references, s."""
    first, *references = exported
    calls = [_call(first, seed), *(_reference_call(each, seed) for each in references)]
    return list(seconds({str(k): call for k, call in enumerate(calls)}, repeats=rounds).values())


@lru_cache(_KEPT)
def _reference_call(sent: bytes, seed: int) -> Callable[[], Any]:
    return _call(sent, seed)


def _call(sent: bytes, seed: int) -> Callable[[], Any]:
    """Return a function without arguments that calls an exported program on random arguments."""
    exported = jax.export.deserialize(bytearray(sent))
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in exported.in_avals]
    args = jax.tree.unflatten(exported.in_tree, random_arguments(shapes, seed))[0]
    return partial(jax.jit(exported.call), *args)
