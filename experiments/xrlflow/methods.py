"""Methods that rewrite a model: searches, agents, and random episodes."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from experiments.harness.command_line import at_least
from experiments.rewrite.searches import SEARCHES
from experiments.xrlflow import comparing, training
from experiments.xrlflow.games import Clocks, Game
from experiments.xrlflow.training import Player
from gopt.rewriting import RULES
from gopt.rewriting.cost.pricing import TermCosts
from gopt.systems import xrlflow

BASELINES = {
    "greedy": "greedy",
    "TASO": "backtracking",
    "Tensat": "saturation",
    "PET": "partial equivalence",
}
# An agent that learns, one that does not, and random episodes.
PLAYERS = {
    "X-RLflow": Player(learning=True, going_on=0.5),
    "agent": Player(learning=False, going_on=0.5),
    "random, going on": Player(learning=False, going_on=0.5, at_random=True),
    "random": Player(learning=False, at_random=True),
}


class Program(NamedTuple):
    """Program that a search or a player has found.

    Attributes:
      roots: results of the program.
      rules: rules that lead to it.
      seconds: time of finding it, s.
      history: progress of a player, by rounds of episodes.
      measured: programs measured by a player, in order, as shares of the program as it is.
      params: parameters of an agent.
    """

    roots: tuple[int, ...]
    rules: Sequence[str] = ()
    seconds: float = 0.0
    history: Sequence[dict[str, Any]] = ()
    measured: Sequence[float] = ()
    params: Any = None


@dataclass(frozen=True)
class Settings(training.Settings):
    """Settings of comparisons in which programs of models are measured.

    Attributes:
      repeats: rounds in which the finalists of each player are timed again, and all programs in the
        end.
    """

    repeats: int = at_least(1, 12)


AnySettings = TypeVar("AnySettings", bound=training.Settings)


def begin(weights: str | Path, settings: AnySettings) -> tuple[Any, AnySettings]:
    """Return the initial parameters of an agent, and settings that have its sizes.

    Args:
      weights: "shipped", "random", or a file.
      settings: settings of play, with the sizes of a random agent.
    """
    if weights == "random":
        key = jax.random.key(settings.seed)
        return xrlflow.init(key, xrlflow.smallest(), settings=settings.agent), settings
    params, found = xrlflow.load(None if weights == "shipped" else weights)
    names = ("width", "layers", "summary", "hidden", "sizes", "largest", "pooling", "hints")
    kept = {name: getattr(found, name) for name in (*names, "head", "slots", "unit")}
    return params, dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, **kept))


def search(name: str, played: Game, clocks: Clocks) -> Program:
    """Return the result of one of `BASELINES`, by sums of measured ops.

    It runs twice: new ops are measured in the first run, whose time is not counted.
    """
    run = partial(SEARCHES[BASELINES[name]], played.terms, played.roots, clocks.cost(played), RULES)
    run()
    begin = time.perf_counter()
    found = run()
    return Program(found.roots, found.rewrites, time.perf_counter() - begin)


def player(name: str, played: Game, clocks: Clocks, params: Any, settings: Settings) -> Program:
    """Return the result of one of `PLAYERS`.

    The finalists are the fastest programs, the program of an agent's likeliest rewrites, and the
    program as it is. The result is the finalist that is fastest again and computes the same values.

    Args:
      name: name of the player.
      played: model.
      clocks: measured times.
      params: parameters of the initial agent.
      settings: settings of play.
    """
    begin = time.perf_counter()
    seat = training.Seat(played, clocks, settings)
    known = [] if PLAYERS[name].at_random else [seat.likeliest(params)]
    trained, history = training.play([seat], params, PLAYERS[name], settings)
    best = {one.name: one for one in (*seat.best, *known, seat.start())}
    finalists = [seat.program(one.actions) for one in best.values()]
    measured = comparing.compare(
        played,
        {str(k): roots for k, (roots, _) in enumerate(finalists)},
        repeats=settings.repeats,
        seed=settings.seed,
    )
    equal = [k for k in range(len(finalists)) if measured[str(k)]["equal"]]
    chosen = min(equal, key=lambda k: measured[str(k)]["ratio"][0], default=None)
    roots, rules = (played.roots, []) if chosen is None else finalists[chosen]
    taken = time.perf_counter() - begin
    told = [seconds / seat.env.first for seconds in seat.known.values()]
    return Program(roots, rules, taken, history, told, trained)


def finished(
    played: Game, found: Mapping[str, Program], clocks: Clocks, settings: Settings
) -> dict[str, dict[str, Any]]:
    """Return the cost of each program, and its time in rounds interleaved with all others.

    The model as terms is added as "as read". Its values that depend only on weights are
    precomputed, and images have one layout. All other programs start from it.
    """
    clocks.programs.close()
    found = {"as read": Program(played.roots), **found}
    programs = {name: one.roots for name, one in found.items()}
    rows = comparing.compare(played, programs, repeats=settings.repeats, seed=settings.seed)
    jax.clear_caches()  # the programs of all models exceed the memory maps of a process
    price = TermCosts(played.terms, clocks.cost(played)).program
    for name, one in found.items():
        rows[name] |= {
            "cost": price(one.roots) / price(played.roots),
            "rules": one.rules,
            "s": one.seconds,
            "history": one.history,
            "measured": one.measured,
        }
        if "TASO" in found:
            rows[name]["of TASO"] = comparing.against(rows, name, "TASO")
    return rows
