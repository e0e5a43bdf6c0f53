"""All that rewrites a model: searches, agents, and episodes at random."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.harness import command_line, tables
from experiments.harness.command_line import at_least, choice
from experiments.rewrite.searches import SEARCHES
from experiments.xrlflow import comparing, training
from experiments.xrlflow.climbing import climb
from experiments.xrlflow.games import REWARDS, Clocks, Game
from gopt.rewriting import RULES
from gopt.rewriting.cost.pricing import TermCosts
from gopt.systems import xrlflow

BASELINES = {
    "greedy": "greedy",
    "TASO": "backtracking",
    "Tensat": "saturation",
    "PET": "partial equivalence",
}
CLIMBING = "climbing"


class Player(NamedTuple):
    """Player whose program is measured, see `experiments.xrlflow.training.Playing`."""

    learning: bool
    going_on: float
    at_random: bool


# An agent that learns, one that does not, hill climbing by what that proposes, and chance.
PLAYERS = {
    "X-RLflow": Player(learning=True, going_on=0.5, at_random=False),
    "agent": Player(learning=False, going_on=0.5, at_random=False),
    CLIMBING: Player(learning=False, going_on=1.0, at_random=False),
    "random, going on": Player(learning=False, going_on=0.5, at_random=True),
    "random": Player(learning=False, going_on=0.0, at_random=True),
}


class Program(NamedTuple):
    """Program that a search or a player has found."""

    roots: tuple[int, ...]
    rules: tuple[str, ...]
    seconds: float  # that it took to find it
    history: list[dict[str, Any]]  # of a player, by rounds of episodes
    measured: Sequence[float] = ()  # by a player, in turn, as shares of the program as it is
    params: Any = None  # of an agent


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of comparisons in which programs of models are measured.

    Attributes:
      reward: reward of episodes.
      measurements: whole programs that each player measures of each model.
      updates: rounds of episodes, at most.
      repeats: rounds in which the fastest of each are timed once more, and all in the end.
      seed: seed of everything random, in the first run.
      agent: settings of an agent with random weights; and those of episodes and training.
    """

    reward: str = choice(REWARDS, "end to end")
    measurements: int = at_least(1, 100)
    updates: int = at_least(1, 40)
    repeats: int = at_least(1, 12)
    seed: int = 0
    agent: xrlflow.Settings = field(
        default_factory=lambda: xrlflow.Settings(episodes=2, learning_rate=1e-3, unit=1.0)
    )

    def play(self, params: Any, agent: xrlflow.Settings, folder: Path, **changes: Any) -> "Play":
        """Return how players play that begin with an agent.

        Args:
          params: its parameters.
          agent: its settings.
          folder: folder of checkpoints.
          **changes: fields of `Play` that differ from these settings.
        """
        names = ("reward", "measurements", "updates", "repeats", "seed")
        same = {name: getattr(self, name) for name in names}
        return Play(params, agent, **same | changes, folder=folder)


@dataclass(frozen=True)
class Play:
    """Settings of one player on one model.

    Attributes:
      params: of the agent that they begin with.
      settings: of the agent.
      reward: of `experiments.xrlflow.games.REWARDS`.
      measurements: programs that each may measure.
      updates: rounds of episodes, at most.
      repeats: turns in which the fastest are measured once more.
      seed: of everything random.
      folder: of checkpoints.
    """

    params: Any
    settings: xrlflow.Settings
    reward: str
    measurements: int
    updates: int
    repeats: int
    seed: int
    folder: Path


def search(name: str, played: Game, clocks: Clocks) -> Program:
    """Return what one of `BASELINES` finds, by sums of measured ops.

    It is searched twice: ops that are new are measured the first time, which is not counted.
    """
    run = partial(SEARCHES[BASELINES[name]], played.terms, played.roots, clocks.cost(played), RULES)
    run()
    begin = time.perf_counter()
    found = run()
    return Program(found.roots, found.rewrites, time.perf_counter() - begin, [])


def player(name: str, played: Game, clocks: Clocks, play: Play) -> Program:
    """Return what one of `PLAYERS` finds.

    Of the fastest programs, the one that an agent's likeliest rewrites lead to, and the program as
    it is, that is the one that is fastest again and has the same values.
    """
    begin, settings = time.perf_counter(), play.settings
    if name == CLIMBING:
        settings = dataclasses.replace(settings, every=settings.horizon)
    seconds = clocks.seconds(played, play.reward)
    cost = clocks.cost(played, play.reward)
    seat = training.seat(played, seconds, cost, settings, play.measurements)
    known = [] if PLAYERS[name].at_random else [training.likeliest(seat, play.params)]
    if name == CLIMBING:
        came = climb(seat, xrlflow.policy(settings), play.params, known, seed=play.seed)
    else:
        playing = training.Playing(
            *PLAYERS[name], play.reward, play.updates, play.measurements, play.seed
        )
        folder = play.folder / f"{played.name}, {name}".replace(" ", "_").replace(",", "")
        given = {played.name: known}
        came = training.play([seat], play.params, settings, playing, folder, given)
    best = {one.name: one for one in (*came.best[played.name], *known, training.start(seat))}
    finalists = [training.program_of(seat, one.actions) for one in best.values()]
    measured = comparing.compare(
        played,
        {str(k): roots for k, (roots, _) in enumerate(finalists)},
        repeats=play.repeats,
        seed=play.seed,
    )
    equal = [k for k in range(len(finalists)) if _is_equal(measured[str(k)])]
    chosen = min(equal, key=lambda k: measured[str(k)]["ratio"][0], default=None)
    roots, rules = (played.roots, []) if chosen is None else finalists[chosen]
    taken = time.perf_counter() - begin + came.resumed
    told = [seconds / seat.env.first for seconds in seat.budget.known.values()]
    return Program(roots, tuple(rules), taken, came.history, told, came.params)


def begin(weights: str, settings: xrlflow.Settings, seed: int) -> tuple[Any, xrlflow.Settings]:
    """Return the parameters and settings of an agent.

    Args:
      weights: "shipped", "random", or a file.
      settings: of episodes and training; of a random one its sizes as well.
      seed: of random parameters.
    """
    if weights == "random":
        key = jax.random.key(seed)
        return xrlflow.init(key, xrlflow.smallest(), settings=settings), settings
    params, found = xrlflow.load(None if weights == "shipped" else weights)
    names = ("width", "layers", "summary", "hidden", "sizes", "largest", "pooling", "hints")
    kept = {name: getattr(found, name) for name in (*names, "head", "slots", "unit")}
    return params, dataclasses.replace(settings, **kept)


def _is_equal(row: Mapping[str, Any]) -> bool:
    """Return whether values are the same but for rounding, and tell programs apart."""
    return bool(row["tells"] and row["difference"] <= row["tolerance"])


def of_read(found: Mapping[str, dict[str, Any]], name: str) -> str:
    """Return what a program takes, as a share of the model as read, or that values are wrong."""
    if not (found[name]["equal"] and found["as read"]["equal"]):
        return "wrong values"
    return tables.interval(comparing.against(found, name, "as read"))


def finished(
    played: Game, found: Mapping[str, Program], clocks: Clocks, *, repeats: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Return of each program what it costs, and what it takes in turns with all others.

    There is one more, "as read", the model as terms have it: without what depends on weights alone,
    with images in one layout. All others begin there.
    """
    prices = TermCosts(played.terms, clocks.cost(played))
    found = {"as read": Program(played.roots, (), 0.0, []), **found}
    programs = {name: one.roots for name, one in found.items()}
    measured = comparing.compare(played, programs, repeats=repeats, seed=seed)
    before = prices.program(played.roots)
    rows = {}
    for name, one in found.items():
        rows[name] = {
            **measured[name],
            "equal": _is_equal(measured[name]),
            "cost": prices.program(one.roots) / before,
            "rules": one.rules,
            "s": one.seconds,
            "history": one.history,
            "measured": one.measured,
        }
        if "TASO" in found:
            rows[name]["of TASO"] = comparing.against(measured, name, "TASO")
    return rows
