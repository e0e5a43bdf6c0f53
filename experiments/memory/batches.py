"""The largest batch that fits into the bytes that XLA needs for the step's own batch."""

from collections.abc import Iterator
from typing import Any

from experiments.memory.cases import batch_of
from experiments.memory.measuring import Built, build, policies_of
from experiments.memory.subject import Subject, subject
from gopt.host.progress import Progress
from gopt.scheduling.budget import BudgetReport, recomputed
from gopt.scheduling.recompute.compiled import jit_schedule

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)  # of the step's own batch


def largest(name: str, evaluations: int, seed: int, target: str | None = None) -> dict[str, Any]:
    """Return the largest batches of a step within fixed bytes, and flop for each example.

    A way is given up at the first batch that does not fit. Bytes include arguments. They are what
    the better of XLA's two programs needs for the step's own batch.

    Args:
      name: name of the step.
      evaluations: budget of each search.
      seed: random seed of the searches.
      target: machine to compile for, see `gopt.schedule`.

    Raises:
      ValueError: the step has no batch.
    """
    own = batch_of(name)
    if own is None:
        raise ValueError(f"the step {name} has no batch")
    row: dict[str, Any] = {"step": name}
    left = {"XLA", "policies", "gopt"}
    for factor in FACTORS:
        batch = int(factor * own)
        given = subject(name, target, batch=batch)
        row.setdefault("bytes", min(c.memory.total for c in given.own if c.memory is not None))
        fitting = {way: _flop(given, way, batch, row["bytes"], evaluations, seed) for way in left}
        left = {way for way, found in fitting.items() if found}
        for way in left:
            row[way] = batch
            row[f"{way} flop"] = min(fitting[way]) / batch
        if not left:
            break
    return row


def _flop(
    given: Subject, way: str, batch: int, bytes: int, evaluations: int, seed: int
) -> list[float]:
    """Return the flop of the programs that fit, for one way to make programs."""
    programs = _programs(given, way, batch, bytes, evaluations, seed)
    return [built.flop for built in programs if built.memory.total <= bytes]


def _programs(
    given: Subject, way: str, batch: int, bytes: int, evaluations: int, seed: int
) -> Iterator[Built]:
    machine = given.found.kernels.target
    for candidate in given.own:
        function = candidate.executable.function if candidate.executable else None
        yield build(machine, function, given.step.args)
    if way == "policies":
        yield from policies_of(given.name, machine, batch=batch).values()
    if way != "gopt":
        return
    report = BudgetReport(bytes, 0, machine)
    for candidate in recomputed(
        given.step.args, given.found, report, given.own[0], evaluations, seed, Progress()
    ):
        yield build(machine, jit_schedule(candidate.decision), given.step.args)
