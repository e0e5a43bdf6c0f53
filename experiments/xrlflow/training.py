"""Agents that play: training, and what they find while they do."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.harness import store
from experiments.xrlflow.games import Budget, Game, Seconds
from gopt.learning.train import run
from gopt.rewriting import OpCost
from gopt.systems import xrlflow


@dataclasses.dataclass(frozen=True)
class Playing:
    """Settings of play: how long, and whether the agent learns.

    Attributes:
      learning: whether it learns from its episodes.
      going_on: share of the episodes that begin near the fastest program that is known, where it
        was measured the last time before.
      at_random: whether rewrites are drawn at random, and not by the agent.
      reward: what rewards are by, of `experiments.xrlflow.games.REWARDS`.
      updates: rounds of `Settings.episodes` episodes, at most.
      measurements: programs of each game that may be measured; rounds end when all are.
      seed: of everything random.
    """

    learning: bool = True
    going_on: float = 0.0
    at_random: bool = False
    reward: str = "analytic"
    updates: int = 40
    measurements: int = 10**9
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.going_on <= 1:
            raise ValueError(f"going_on is {self.going_on}: expected 0 to 1")
        if self.learning and self.at_random:
            raise ValueError("no agent learns from rewrites at random")
        for name in ("updates", "measurements"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 at least")


class Reached(NamedTuple):
    """A program that was measured."""

    actions: list[int]  # that lead there
    share: float  # of the time of the program as it is
    name: str  # its digest


FINALISTS = 3  # programs that are measured once more: the fastest of many is often luck


def fastest(known: Sequence[Reached], new: Reached) -> list[Reached]:
    """Return the fastest of some programs and one more, in order."""
    by_name = {one.name: one for one in (new, *known)}
    return sorted(by_name.values(), key=lambda one: one.share)[:FINALISTS]


class Played(NamedTuple):
    """Result of play."""

    params: Any
    best: dict[str, list[Reached]]  # by game, the fastest programs
    history: list[dict[str, Any]]  # a row for each round and game
    resumed: float = 0.0  # s, that rounds took before an interruption


class Seat(NamedTuple):
    """A game that is played, and what its programs take."""

    game: Game
    budget: Budget
    env: xrlflow.RewriteEnv


def seat(
    game: Game, seconds: Seconds, cost: OpCost, settings: xrlflow.Settings, measurements: int
) -> Seat:
    """Return a game that can be played; the program as it is is measured."""
    budget = Budget(game, seconds, measurements)
    env = xrlflow.RewriteEnv(game.terms, game.roots, budget, cost=cost, settings=settings)
    return Seat(game, budget, env)


def start(seat: Seat) -> Reached:
    """Return the program as it is."""
    return Reached([], 1.0, seat.budget.name(seat.game.roots))


def likeliest(seat: Seat, params: Any) -> Reached:
    """Return what an agent makes of a program at once, by its likeliest rewrites; measured once.

    If nothing may be measured any longer, that is the program as it is.
    """
    game, budget, env = seat
    settings = dataclasses.replace(env.settings, every=env.settings.horizon)
    once = xrlflow.RewriteEnv(game.terms, game.roots, budget, cost=env.cost, settings=settings)
    rng, choose = np.random.default_rng(0), xrlflow.policy(settings)
    episode = xrlflow.play(once, choose, params, rng, greedy=True)
    share = float(episode.seconds[-1] / env.first)
    if not np.isfinite(share):
        return start(seat)
    actions = episode.action[episode.action != xrlflow.NOTHING]  # so that others can go on
    return Reached(actions.tolist(), share, budget.name(episode.roots[-1]))


def play(
    seats: Sequence[Seat],
    params: Any,
    settings: xrlflow.Settings,
    playing: Playing,
    folder: Path,
    known: Mapping[str, Sequence[Reached]] | None = None,
) -> Played:
    """Play games in turn, and learn from them if it is to.

    Resumes from the newest checkpoint in `folder`, if there is one; what comes of it is the same as
    without an interruption, if programs take the same.

    Args:
      seats: games.
      params: to begin with.
      settings: of the agent.
      playing: how long.
      folder: of checkpoints.
      known: by game, programs that were measured before, in order.

    Raises:
      ValueError: the folder holds checkpoints of other settings.
    """
    names = [each.game.name for each in seats]
    described = {
        **dataclasses.asdict(settings),
        **dataclasses.asdict(playing),
        "games": [[each.game.name, each.budget.name(each.game.roots)] for each in seats],
        "begun": store.digest(params),
    }
    notes = _Notes(seats, {each.game.name: [start(each)] for each in seats})
    for name, reached in (known or {}).items():
        for one in reached:
            notes.best[name] = fastest(notes.best[name], one)
    choose = xrlflow.policy(settings)

    def update(index: int, state: xrlflow.TrainState) -> tuple[xrlflow.TrainState, dict[str, Any]]:
        best, returns = notes.best, notes.returns
        args = seats, choose, state.params, settings, playing, index, best, returns
        episodes, rows = _round(*args)
        begin = time.perf_counter()
        told: dict[str, Any] = {}
        if playing.learning and episodes:
            rng = np.random.default_rng((playing.seed, index))
            state, watched = xrlflow.improve(state, episodes, rng, settings=settings)
            told = {**watched._asdict(), "learning s": time.perf_counter() - begin}
        notes.history += [{**row, **told} for row in rows]
        return state, {}

    state, _ = run(
        xrlflow.start(params, settings=settings),
        update,
        steps=playing.updates,
        folder=folder,
        described=described,
        checkpoint_every=1,
        notes=notes,
        is_over=lambda: all(each.budget.is_spent for each in seats),
        label=f"{'learning' if playing.learning else 'playing'}: {', '.join(names)}",
    )
    return Played(jax.device_get(state.params), notes.best, notes.history, notes.resumed)


@dataclasses.dataclass
class _Notes:
    """Progress of all games, kept with each checkpoint.

    Attributes:
      seats: games.
      best: by game, the fastest programs.
      returns: by game, returns of its episodes.
      history: a row for each round and game.
      resumed: s, that rounds took before an interruption.
    """

    seats: Sequence[Seat]
    best: dict[str, list[Reached]]
    returns: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    resumed: float = 0.0

    def dump(self) -> dict[str, Any]:
        """Return all that an interrupted run goes on from, as JSON values."""
        known = {each.game.name: each.budget.known for each in self.seats}
        rooms = [[int(count) for count in each.env.size] for each in self.seats]
        kept = {"history": self.history, "best": self.best, "returns": self.returns}
        return {**kept, "known": known, "rooms": rooms}

    def restore(self, values: dict[str, Any]) -> None:
        """Take what `dump` returned."""
        self.history, self.returns = values["history"], values["returns"]
        self.best = {name: [Reached(*one) for one in own] for name, own in values["best"].items()}
        for each, room in zip(self.seats, values["rooms"], strict=True):
            each.budget.known.update(values["known"][each.game.name])
            each.env.make_room(xrlflow.Size(*room))
        learning = {row["update"]: row.get("learning s", 0.0) for row in self.history}
        self.resumed = sum(row["playing s"] for row in self.history) + sum(learning.values())


def _round(
    seats: Sequence[Seat],
    choose: xrlflow.Policy,
    params: Any,
    settings: xrlflow.Settings,
    playing: Playing,
    update: int,
    best: dict[str, list[Reached]],
    returns: dict[str, list[float]],
) -> tuple[list[tuple[xrlflow.Episode, xrlflow.Size]], list[dict[str, Any]]]:
    """Return the episodes of a round, which games have in turn, and a row for each game."""
    played: dict[str, list[xrlflow.Episode]] = {}
    taken = dict.fromkeys((each.game.name for each in seats), 0.0)
    episodes: list[tuple[xrlflow.Episode, xrlflow.Size, str]] = []
    for index in range(settings.episodes):
        still = [each for each in seats if not each.budget.is_spent]
        if not still:
            break
        game, budget, env = still[(update * settings.episodes + index) % len(still)]
        begin = time.perf_counter()
        rng = np.random.default_rng((playing.seed, update, index))
        before = list[int]()
        if rng.random() < playing.going_on:
            before = _measured(best[game.name][0].actions, settings)
        policy = xrlflow.uniform if playing.at_random else choose
        episode = xrlflow.play(env, policy, params, rng, begin=before)
        taken[game.name] += time.perf_counter() - begin
        played.setdefault(game.name, []).append(episode)
        for step in np.flatnonzero(np.isfinite(episode.seconds)):
            share = float(episode.seconds[step] / env.first)
            name = budget.name(episode.roots[step])
            reached = Reached([*before, *episode.action[: step + 1].tolist()], share, name)
            best[game.name] = fastest(best[game.name], reached)
        if not budget.is_spent:  # rewards are known to the end
            episodes.append((episode, env.size, game.name))
    by = {each.game.name: each for each in seats}
    for name, own in played.items():
        returns[name] = [*returns.get(name, []), *(float(each.reward.sum()) for each in own)]
    rows = [
        {
            "game": name,
            "update": update,
            "reward": float(np.mean([each.reward.sum() for each in own])),
            "rewrites": int(sum(len(each.action) for each in own)),
            "measured": len(by[name].budget.known),
            "best": best[name][0].share,
            "playing s": taken[name],
        }
        for name, own in played.items()
    ]
    return [(scaled(one, returns[name]), size) for one, size, name in episodes], rows


def _measured(actions: Sequence[int], settings: xrlflow.Settings) -> list[int]:
    """Return actions until the last measurement but that at their end, which may be for good."""
    return list(actions[: (len(actions) - 1) // settings.every * settings.every if actions else 0])


def scaled(episode: xrlflow.Episode, returns: Sequence[float]) -> xrlflow.Episode:
    """Return an episode whose rewards are shares of what episodes of its game have gained.

    So a game whose programs become five times as fast counts as much as one that gains a
    hundredth. What they gain is the root mean square of their returns, 1 at least.
    """
    most = max(1.0, float(np.sqrt(np.mean(np.square(returns)))))
    return episode._replace(reward=(episode.reward / most).astype(np.float32))


def program_of(seat: Seat, actions: Sequence[int]) -> tuple[tuple[int, ...], list[str]]:
    """Return the results of the program that some actions lead to, and the rules that do."""
    game, _, env = seat
    unmeasured = xrlflow.RewriteEnv(
        game.terms, game.roots, lambda _: 1.0, cost=env.cost, settings=env.settings
    )
    _, info = unmeasured.reset()
    rules = []
    for action in actions:
        if action:
            rules.append(info["rules"][action - 1])
        _, _, is_terminated, is_truncated, info = unmeasured.step(action)
        if is_terminated or is_truncated:
            break
    return info["roots"], rules
