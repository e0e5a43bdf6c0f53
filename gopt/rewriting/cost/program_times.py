"""What whole programs take, measured once each, in a process that may fail or hang."""

import math
import multiprocessing
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jax

from gopt.measure.cache import MeasurementCache
from gopt.measure.equality import random_arguments
from gopt.measure.timing import conditions, seconds
from gopt.program.program import Program
from gopt.rewriting.ir.digests import digest
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import RewrittenProgram

_VERSION = 2  # of how programs are timed
_STARTING = 120.0  # s, that a process may take to start
_KEPT = 16  # programs that others are timed beside, which stay compiled


class ProgramTimes:
    """What whole programs take through XLA, by their digests; see `gopt.rewriting.ir.digests`.

    What depends on constants alone is computed before. A program that fails, or takes too long, is
    remembered as one, and the next is measured by a new process. Where programs are measured by a
    script, it has to begin under `if __name__ == "__main__":`, as processes import it.

    Attributes:
      seconds: of each program; infinite if it failed.
      failures: why, by the same.
      spent: how often a program was measured here, not counting what was known.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        turns: int = 8,
        patience: float = 120.0,
        seed: int = 0,
        start: Callable[[], Any] | None = None,
    ):
        """Reads what was measured before, by this run or others.

        Args:
          path: where times are written, one by one, and what others write is read; by default
            nowhere.
          turns: how often each program is timed; its time is the least of them, of the process on a
            CPU, elsewhere on the wall.
          patience: how long it may take to compile and time a program, in s; each, of two.
          seed: of the numbers that it computes with.
          start: what a process does before it measures; a function of a module.

        Raises:
          ValueError: `turns` or `patience` is not positive, or the file is not one of times on this
            machine with these settings; see `gopt.measure.cache.MeasurementCache`.
        """
        if turns < 1:
            raise ValueError(f"turns is {turns}: expected 1 at least")
        if not patience > 0:
            raise ValueError(f"patience is {patience}: expected a positive number of seconds")
        self.seconds: dict[str, float] = {}
        self.failures: dict[str, str] = {}
        self.spent = 0
        self._references: dict[str, bytes] = {}  # as they were exported
        self._patience = patience
        self._asked = turns, seed, bool(jax.config.read("jax_enable_x64")), start
        self._worker: tuple[multiprocessing.process.BaseProcess, Connection] | None = None
        self._cache: MeasurementCache | None = None
        if path is not None:
            header = {
                "version": _VERSION,
                **conditions(),
                "device": jax.devices()[0].device_kind,
                "turns": turns,
                "seed": seed,
                "patience": patience,
                "x64": self._asked[2],
            }
            self._cache = MeasurementCache(path, header, "times of programs")
            self._read()

    def of(
        self,
        terms: Terms,
        roots: Sequence[int],
        program: Program,
        constant: Collection[int],
        *,
        beside: Sequence[int] | None = None,
    ) -> float:
        """Returns what a program takes, in s; infinite if it failed.

        A machine is faster at one time than at another, which another program tells that is timed
        in turn: the time is the ratio of both, times what the other took when it was alone.

        Args:
          terms: those of the program, and others.
          roots: its results.
          program: whose arguments and results these are.
          constant: positions of the arguments that are known before.
          beside: results of the program that it is timed beside; if it has none, or that failed, it
            is timed alone.

        Raises:
          RuntimeError: no process can be started that measures.
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
        """Ends the process that measures; the next program gets a new one."""
        if self._worker is not None:
            process, connection = self._worker
            self._worker = None
            connection.close()
            process.kill()
            process.join()

    def _keep(self, name: str, written: RewrittenProgram, program: Program) -> None:
        """Exports a program once that others are timed beside, if it can be timed at all."""
        if name not in self._references and math.isfinite(self.seconds[name]):
            self._references[name] = _exported(written, program)

    def _measure(
        self, name: str, written: RewrittenProgram, program: Program, reference: str
    ) -> None:
        """Measures a program, beside the reference if there is one."""
        connection = self._ready()
        self.spent += 1
        beside = [self._references[reference]] if reference in self._references else []
        try:
            found = self._ask(connection, [_exported(written, program), *beside])
        except Exception as error:  # the search goes on, whatever it was
            found = f"{type(error).__name__}: {error}"
        row: dict[str, Any] = {"program": name, "seconds": None}
        if not isinstance(found, str):
            taken, *other = found
            more = self.seconds[reference] / other[0] if other else 1.0
            row["seconds"] = self.seconds[name] = taken * more
        else:
            self.seconds[name] = math.inf
            row["failure"] = self.failures[name] = found
        if self._cache is not None:
            self._cache.append(row)

    def _ready(self) -> Connection:
        """Returns the connection to a process that waits for a program."""
        if self._worker is not None and not self._worker[0].is_alive():
            self.close()  # by no fault of the next program
        if self._worker is None:
            spawn = multiprocessing.get_context("spawn")
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(theirs, *self._asked), daemon=True)
            process.start()
            theirs.close()
            self._worker = process, ours
            try:
                if not ours.poll(_STARTING):
                    raise RuntimeError(f"no process that measures has started in {_STARTING} s")
                ours.recv()
            except EOFError as error:
                self.close()
                raise RuntimeError("the process that measures has died at its start") from error
            except BaseException:
                self.close()
                raise
        return self._worker[1]

    def _ask(self, connection: Connection, exported: list[bytes]) -> list[float] | str:
        """Returns how long programs take, or why they could not be measured."""
        try:
            connection.send(exported)
            if connection.poll(self._patience * len(exported)):
                answer: list[float] | str = connection.recv()
                return answer
            why = f"no answer within {self._patience} s"
        except (EOFError, OSError):
            why = "the process that measured it died"
        except BaseException:  # an interrupt: the answer would be taken for that of the next
            self.close()
            raise
        self.close()
        return why

    def _read(self) -> None:
        """Reads what was written to the file since the last time."""
        for place, row in self._cache.rows() if self._cache else ():
            name = row.get("program") if isinstance(row, dict) else None
            if not isinstance(name, str) or not isinstance(row.get("seconds"), float | None):
                raise ValueError(f"{place}: not the time of a program")
            taken = row["seconds"]
            self.seconds[name] = math.inf if taken is None else taken
            if taken is None:
                self.failures[name] = str(row.get("failure"))


def end_to_end(
    times: ProgramTimes,
    terms: Terms,
    program: Program,
    constant: Collection[int],
    *,
    beside: Sequence[int] | None = None,
) -> Callable[[tuple[int, ...]], float]:
    """Returns what tells how long a program takes, given its results; see `ProgramTimes.of`."""
    known: dict[tuple[int, ...], float] = {}

    def taken(roots: tuple[int, ...]) -> float:
        if roots not in known:
            known[roots] = times.of(terms, roots, program, constant, beside=beside)
        return known[roots]

    return taken


def _exported(written: RewrittenProgram, program: Program) -> bytes:
    """Returns a program as XLA takes it, without what depends on constants alone."""
    args = program.arguments()
    constants = [arg for k, arg in enumerate(args) if k in written.constant]
    others = [arg for k, arg in enumerate(args) if k not in written.constant]
    folded = jax.eval_shape(written.fold, *constants)
    return bytes(jax.export.export(jax.jit(written.run))(folded, *others).serialize())


def _serve(
    connection: Connection, turns: int, seed: int, x64: bool, start: Callable[[], Any] | None
) -> None:
    """Measures programs that are sent, until nobody sends any."""
    jax.config.update("jax_enable_x64", x64)
    if start is not None:
        start()
    connection.send("ready")
    kept = lru_cache(_KEPT)(_call)
    while True:
        try:
            first, *others = connection.recv()
        except EOFError:
            return
        try:
            calls = [_call(first, seed), *(kept(each, seed) for each in others)]
            found = seconds({str(k): call for k, call in enumerate(calls)}, repeats=turns)
            connection.send(list(found.values()))
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")


def _call(sent: bytes, seed: int) -> Callable[[], Any]:
    """Returns what calls a program that was exported, with random arguments."""
    exported = jax.export.deserialize(bytearray(sent))
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in exported.in_avals]
    args = jax.tree.unflatten(exported.in_tree, random_arguments(shapes, seed))[0]
    return partial(jax.jit(exported.call), *args)
