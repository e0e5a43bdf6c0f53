"""Methods that rewrite a model: searches, agents, and random episodes."""

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
    """Settings of a player, see `experiments.xrlflow.training.Playing`.

    Attributes:
      learning: whether the agent learns from its episodes.
      going_on: share of episodes that start near the fastest known program.
      at_random: whether rewrites are drawn at random, not by the agent.
    """

    learning: bool
    going_on: float
    at_random: bool


# An agent that learns, one that does not, hill climbing by its proposals, and random episodes.
PLAYERS = {
    "X-RLflow": Player(learning=True, going_on=0.5, at_random=False),
    "agent": Player(learning=False, going_on=0.5, at_random=False),
    CLIMBING: Player(learning=False, going_on=1.0, at_random=False),
    "random, going on": Player(learning=False, going_on=0.5, at_random=True),
    "random": Player(learning=False, going_on=0.0, at_random=True),
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
    rules: tuple[str, ...]
    seconds: float
    history: list[dict[str, Any]]
    measured: Sequence[float] = ()
    params: Any = None


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of comparisons in which programs of models are measured.

    Attributes:
      reward: reward of episodes.
      measurements: whole programs that each player measures of each model.
      updates: most rounds of episodes.
      repeats: rounds in which the finalists of each player are timed again, and all programs in the
        end.
      seed: seed of everything random in the first run.
      agent: settings of an agent with random weights, and settings of episodes and training.
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
        """Return the settings of players that start with an agent.

        Args:
          params: parameters of the agent.
          agent: settings of the agent.
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
      params: parameters of the initial agent.
      settings: settings of the agent.
      reward: name from `experiments.xrlflow.games.REWARDS`.
      measurements: programs that each player may measure.
      updates: most rounds of episodes.
      repeats: rounds in which the finalists are measured again.
      seed: seed of everything random.
      folder: folder of checkpoints.
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
    """Return the result of one of `BASELINES`, by sums of measured ops.

    It runs twice: new ops are measured in the first run, whose time is not counted.
    """
    run = partial(SEARCHES[BASELINES[name]], played.terms, played.roots, clocks.cost(played), RULES)
    run()
    begin = time.perf_counter()
    found = run()
    return Program(found.roots, found.rewrites, time.perf_counter() - begin, [])


def player(name: str, played: Game, clocks: Clocks, play: Play) -> Program:
    """Return the result of one of `PLAYERS`.

    The finalists are the fastest programs, the program of an agent's likeliest rewrites, and the
    program as it is. The result is the finalist that is fastest again and computes the same values.
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
      settings: settings of episodes and training, and sizes of a random agent.
      seed: seed of random parameters.
    """
    if weights == "random":
        key = jax.random.key(seed)
        return xrlflow.init(key, xrlflow.smallest(), settings=settings), settings
    params, found = xrlflow.load(None if weights == "shipped" else weights)
    names = ("width", "layers", "summary", "hidden", "sizes", "largest", "pooling", "hints")
    kept = {name: getattr(found, name) for name in (*names, "head", "slots", "unit")}
    return params, dataclasses.replace(settings, **kept)


def _is_equal(row: Mapping[str, Any]) -> bool:
    """Return whether values agree up to rounding, and can distinguish programs."""
    return bool(row["tells"] and row["difference"] <= row["tolerance"])


def of_read(found: Mapping[str, dict[str, Any]], name: str) -> str:
    """Return a program's time as a share of the model as read, or a note of wrong values."""
    if not (found[name]["equal"] and found["as read"]["equal"]):
        return "wrong values"
    return tables.interval(comparing.against(found, name, "as read"))


def finished(
    played: Game, found: Mapping[str, Program], clocks: Clocks, *, repeats: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Return the cost of each program, and its time in rounds interleaved with all others.

    The model as terms is added as "as read". Its values that depend only on weights are
    precomputed, and images have one layout. All other programs start from it.
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
