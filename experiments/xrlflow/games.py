"""Models to be rewritten, and measurements of their programs."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.harness import command_line
from experiments.rewrite.measuring import measured_cost, read_model
from gopt.fusion import KernelTimes
from gopt.program.program import Program
from gopt.rewriting import OpCost, Terms, roofline
from gopt.rewriting.cost.pricing import TermCosts
from gopt.systems import xrlflow
from gopt.workloads.cases import Case

REWARDS = ("end to end", "summed ops", "analytic")
Seconds = Callable[[tuple[int, ...]], float]


class Game(NamedTuple):
    """A model whose programs are rewritten; its weights are constants.

    Attributes:
      name: name of the model.
      case: function and arguments of the model.
      terms: terms of all its programs.
      roots: results of the initial program in the terms.
      program: equations of the model.
    """

    name: str
    case: Case
    terms: Terms
    roots: tuple[int, ...]
    program: Program


def game(name: str, case: Case) -> Game:
    """Return a model to be rewritten."""
    return Game(name, case, *read_model(case))


class Clocks(NamedTuple):
    """Measured times of ops and programs on this machine, each measured once.

    Attributes:
      ops: times of ops.
      programs: times of whole programs.
    """

    ops: KernelTimes
    programs: xrlflow.ProgramTimes

    def cost(self, played: Game, reward: str = "summed ops") -> OpCost:
        """Return the cost model of ops: measured, or a roofline for analytic rewards."""
        if reward == "analytic":
            return roofline()
        return measured_cost(played.program, self.ops)

    def seconds(self, played: Game, reward: str) -> Seconds:
        """Return a function that gives the time of a program by one of `REWARDS`."""
        if reward == "end to end":
            times, beside = self.programs, played.roots
            return xrlflow.end_to_end(times, played.terms, played.program, (0,), beside=beside)
        return TermCosts(played.terms, self.cost(played, reward)).program


def clocks(folder: Path) -> Clocks:
    """Return clocks that keep their measurements in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = xrlflow.ProgramTimes(folder / "programs.sqlite", start=prepare)
    return Clocks(KernelTimes(folder / "ops.sqlite"), programs)


def prepare() -> None:
    """Set up a process that measures programs."""
    command_line.start(1)
    command_line.keep_memory()
