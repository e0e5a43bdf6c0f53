"""Play games of rewriting with an agent or at random, and train the agent on its episodes."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.harness import command_line
from experiments.harness.command_line import at_least, choice
from experiments.xrlflow.games import REWARDS, Clocks, Game, Seconds
from gopt.learning.train import run
from gopt.program.hashing import digest_arrays
from gopt.rewriting.ir.digests import digest
from gopt.systems import xrlflow

FINALISTS = 3  # programs that are measured once more: the fastest of many is often luck


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of play.

    Attributes:
      reward: reward of episodes.
      measurements: most programs of each model that are measured. Play on a model ends when they
        are spent.
      updates: most rounds of episodes.
      seed: seed of everything random.
      agent: settings of an agent with random weights, and settings of episodes and training.
    """

    reward: str = choice(REWARDS, "end to end")
    measurements: int = at_least(1, 100)
    updates: int = at_least(1, 40)
    seed: int = 0
    agent: xrlflow.Settings = field(
        default_factory=lambda: xrlflow.Settings(episodes=2, learning_rate=1e-3, unit=1.0)
    )


class Player(NamedTuple):
    """Way of playing.

    Attributes:
      learning: whether the agent learns from its episodes.
      going_on: share of episodes that start near the fastest known program, at its last measurement
        but one.
      at_random: whether rewrites are drawn at random, not by the agent.
    """

    learning: bool = True
    going_on: float = 0.0
    at_random: bool = False


class Reached(NamedTuple):
    """A program that was measured.

    Attributes:
      actions: actions that lead to the program.
      share: time of the program as a share of the initial program's.
      name: digest of the program.
    """

    actions: list[int]
    share: float
    name: str


class Played(NamedTuple):
    """Result of play.

    Attributes:
      params: parameters of the agent.
      history: metrics, a row for each round and game.
      resumed: time of the rounds before an interruption, s.
    """

    params: Any
    history: list[dict[str, Any]]
    resumed: float = 0.0


class Seat:
    """A game that is played. Its programs are measured until a number of measurements is spent.

    Attributes:
      game: game.
      known: measured times of programs, s, by their digests.
      most: most programs that may be measured.
      best: fastest known programs, in order.
      returns: returns of all episodes.
      env: environment of the game, whose initial program is measured.
    """

    def __init__(self, played: Game, clocks: Clocks, settings: Settings):
        """Measure the initial program of a game."""
        self.game, self.known, self.most = played, dict[str, float](), settings.measurements
        self._seconds = clocks.seconds(played, settings.reward)
        cost = clocks.cost(played, settings.reward)
        self.env = xrlflow.RewriteEnv(
            played.terms, played.roots, self.seconds, cost=cost, settings=settings.agent
        )
        self.best, self.returns = [self.start()], list[float]()

    def name(self, roots: tuple[int, ...]) -> str:
        """Return the digest of a program, given its results."""
        return digest(self.game.terms, roots)

    @property
    def is_spent(self) -> bool:
        """Return whether no measurement is left."""
        return len(self.known) >= self.most

    def seconds(self, roots: tuple[int, ...]) -> float:
        """Return the time of a program, s, given its results; NaN if no measurement is left."""
        name = self.name(roots)
        if name not in self.known:
            if self.is_spent:
                return float("nan")
            self.known[name] = self._seconds(roots)
        return self.known[name]

    def start(self) -> Reached:
        """Return the initial program."""
        return Reached([], 1.0, self.name(self.game.roots))

    def keep(self, actions: list[int], share: float, roots: tuple[int, ...]) -> Reached:
        """Return a measured program, and keep it if it is one of the fastest."""
        new = Reached(actions, share, self.name(roots))
        by_name = {one.name: one for one in (new, *self.best)}
        self.best = sorted(by_name.values(), key=lambda one: one.share)[:FINALISTS]
        return new

    def likeliest(self, params: Any) -> Reached:
        """Measure the program of an agent's likeliest rewrites once, and return it.

        Return the initial program if no measurement is left, or it fails.
        """
        env = self._again(self.seconds, every=self.env.settings.horizon)
        rng, choose = np.random.default_rng(0), xrlflow.policy(env.settings)
        episode = xrlflow.play(env, choose, params, rng, greedy=True)
        share = float(episode.seconds[-1] / env.first)
        if not np.isfinite(share):
            return self.start()
        actions = episode.action[episode.action != xrlflow.NOTHING]  # so that others can go on
        return self.keep(actions.tolist(), share, episode.roots[-1])

    def program(self, actions: Sequence[int]) -> tuple[tuple[int, ...], list[str]]:
        """Return the results of the program that actions lead to, and the rules they apply."""
        env, rules = self._again(lambda _: 1.0), list[str]()
        for action in actions:
            if action != xrlflow.NOTHING:
                rules.append(env.view.found[action - 1].rule)
            env.step(action)
        return env.view.roots, rules

    def _again(self, seconds: Seconds, **changes: Any) -> xrlflow.RewriteEnv:
        """Return another environment of the game."""
        terms, roots, cost = self.game.terms, self.game.roots, self.env.cost
        settings = dataclasses.replace(self.env.settings, **changes)
        return xrlflow.RewriteEnv(terms, roots, seconds, cost=cost, settings=settings)


def play(
    seats: Sequence[Seat], params: Any, player: Player, settings: Settings, folder: Path
) -> Played:
    """Play games in turn; a player that learns is updated after each round of episodes.

    Resumes from the newest checkpoint in `folder`. The result equals an uninterrupted run's, if
    measured times are equal.

    Args:
      seats: games, made with the same settings.
      params: initial parameters of the agent.
      player: way of playing.
      settings: settings of play.
      folder: folder of checkpoints.

    Raises:
      ValueError: the folder holds checkpoints of other settings.
    """
    same = {name: getattr(settings, name) for name in ("reward", "measurements", "updates", "seed")}
    described = {
        **dataclasses.asdict(settings.agent),
        **player._asdict(),
        **same,
        "games": [[each.game.name, each.name(each.game.roots)] for each in seats],
        "begun": digest_arrays(params),
    }
    rounds = _Rounds(seats, player, settings)
    names = ", ".join(each.game.name for each in seats)
    state, _ = run(
        xrlflow.start(params, settings=settings.agent),
        rounds.play,
        steps=settings.updates,
        folder=folder,
        described=described,
        checkpoint_every=1,
        notes=rounds,
        is_over=lambda: all(each.is_spent for each in seats),
        label=f"{'learning' if player.learning else 'playing'}: {names}",
    )
    return Played(jax.device_get(state.params), rounds.history, rounds.resumed)


@dataclass
class _Rounds:
    """Rounds of episodes, whose progress is saved with each checkpoint.

    Attributes:
      seats: games.
      player: way of playing.
      settings: settings of play.
      history: metrics, a row for each round and game.
      resumed: time of the rounds before an interruption, s.
    """

    seats: Sequence[Seat]
    player: Player
    settings: Settings
    history: list[dict[str, Any]] = field(default_factory=list)
    resumed: float = 0.0

    def __post_init__(self) -> None:
        is_random = self.player.at_random
        self._policy = xrlflow.uniform if is_random else xrlflow.policy(self.settings.agent)

    def play(
        self, index: int, state: xrlflow.TrainState
    ) -> tuple[xrlflow.TrainState, dict[str, float]]:
        """Play a round, and return the state after learning from it."""
        played: dict[str, list[tuple[xrlflow.Episode, float]]] = {}
        learned: list[tuple[Seat, xrlflow.Episode, xrlflow.Size]] = []
        seed, agent = self.settings.seed, self.settings.agent
        for number in range(agent.episodes):
            still = [each for each in self.seats if not each.is_spent]
            if not still:
                break
            seat = still[(index * agent.episodes + number) % len(still)]
            begin = time.perf_counter()
            episode = self._episode(seat, state.params, (seed, index, number))
            taken = time.perf_counter() - begin
            played.setdefault(seat.game.name, []).append((episode, taken))
            if not seat.is_spent:  # else rewards may be unknown
                learned.append((seat, episode, seat.env.size))
        seats, rows = {each.game.name: each for each in self.seats}, []
        for name, own in played.items():
            gains = [episode.reward.sum() for episode, _ in own]
            seats[name].returns += map(float, gains)
            row = {
                "game": name,
                "update": index,
                "reward": float(np.mean(gains)),
                "rewrites": sum(len(episode.action) for episode, _ in own),
                "measured": len(seats[name].known),
                "best": seats[name].best[0].share,
                "playing s": sum(seconds for _, seconds in own),
            }
            rows.append(row)
        begin, told = time.perf_counter(), dict[str, Any]()
        if self.player.learning and learned:
            rng = np.random.default_rng((seed, index))
            episodes = [(scaled(each, seat.returns), size) for seat, each, size in learned]
            state, watched = xrlflow.improve(state, episodes, rng, settings=agent)
            told = {**watched._asdict(), "learning s": time.perf_counter() - begin}
        self.history += [{**row, **told} for row in rows]
        return state, {}

    def _episode(self, seat: Seat, params: Any, seed: tuple[int, ...]) -> xrlflow.Episode:
        """Return an episode, and keep its programs if they are fast."""
        rng, before = np.random.default_rng(seed), list[int]()
        if rng.random() < self.player.going_on:
            before = _measured(seat.best[0].actions, self.settings.agent.every)
        episode = xrlflow.play(seat.env, self._policy, params, rng, begin=before)
        for step in np.flatnonzero(np.isfinite(episode.seconds)):
            share = float(episode.seconds[step] / seat.env.first)
            actions = [*before, *episode.action[: step + 1].tolist()]
            seat.keep(actions, share, episode.roots[step])
        return episode

    def dump(self) -> dict[str, Any]:
        """Return the progress as JSON values."""
        games = [
            (each.known, each.best, each.returns, [int(count) for count in each.env.size])
            for each in self.seats
        ]
        return {"history": self.history, "games": games}

    def restore(self, values: dict[str, Any]) -> None:
        """Take the values that `dump` returned."""
        self.history = values["history"]
        for seat, (known, best, returns, size) in zip(self.seats, values["games"], strict=True):
            seat.known.update(known)
            seat.best, seat.returns = [Reached(*one) for one in best], returns
            seat.env.make_room(xrlflow.Size(*size))
        learning = {row["update"]: row.get("learning s", 0.0) for row in self.history}
        self.resumed = sum(row["playing s"] for row in self.history) + sum(learning.values())


def _measured(actions: Sequence[int], every: int) -> list[int]:
    """Return actions up to the last measurement before their end; the end may end an episode."""
    return list(actions[: (len(actions) - 1) // every * every if actions else 0])


def scaled(episode: xrlflow.Episode, returns: Sequence[float]) -> xrlflow.Episode:
    """Return an episode with rewards ÷ the root mean square of its game's returns, at least 1.

    So a game that becomes five times as fast counts as much as one that gains a hundredth.
    """
    most = max(1.0, float(np.sqrt(np.mean(np.square(returns)))))
    return episode._replace(reward=(episode.reward / most).astype(np.float32))
