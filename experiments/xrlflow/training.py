"""Play games of rewriting with an agent or at random, and train the agent on its episodes."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.progress import track

from experiments.harness import command_line
from experiments.harness.command_line import at_least, choice
from experiments.xrlflow.games import REWARDS, Clocks, Game, Seconds
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

    def _again(self, seconds: Seconds, **changes: Any) -> "xrlflow.RewriteEnv":
        """Return another environment of the game."""
        terms, roots, cost = self.game.terms, self.game.roots, self.env.cost
        settings = dataclasses.replace(self.env.settings, **changes)
        return xrlflow.RewriteEnv(terms, roots, seconds, cost=cost, settings=settings)


def play(
    seats: Sequence[Seat], params: Any, player: Player, settings: Settings
) -> tuple[Any, list[dict[str, Any]]]:
    """Play games in turn; a player that learns is updated after each round of episodes.

    Args:
      seats: games, made with the same settings.
      params: initial parameters of the agent.
      player: way of playing.
      settings: settings of play.

    Returns:
      The parameters of the agent, and metrics, a row for each round and game.
    """
    state = xrlflow.start(params, settings=settings.agent)
    choose = xrlflow.uniform if player.at_random else xrlflow.policy(settings.agent)
    names, history = ", ".join(each.game.name for each in seats), list[dict[str, Any]]()
    label = f"{'learning' if player.learning else 'playing'}: {names}"
    for index in track(range(settings.updates), label):
        if all(each.is_spent for each in seats):
            break
        rows, episodes = _round(index, seats, state.params, choose, player, settings)
        begin, told = time.perf_counter(), dict[str, Any]()
        if player.learning and episodes:
            rng = np.random.default_rng((settings.seed, index))
            state, watched = xrlflow.improve(state, episodes, rng, settings=settings.agent)
            told = {**watched._asdict(), "learning s": time.perf_counter() - begin}
        history += [{**row, **told} for row in rows]
    return jax.device_get(state.params), history


def _round(
    index: int,
    seats: Sequence[Seat],
    params: Any,
    choose: xrlflow.Policy,
    player: Player,
    settings: Settings,
) -> tuple[list[dict[str, Any]], list[tuple[xrlflow.Episode, xrlflow.Size]]]:
    """Play a round, and return metrics of each game, and the episodes to learn from."""
    played: dict[str, list[tuple[xrlflow.Episode, float]]] = {}
    learned: list[tuple[Seat, xrlflow.Episode, xrlflow.Size]] = []
    count = settings.agent.episodes
    for number in range(count):
        still = [each for each in seats if not each.is_spent]
        if not still:
            break
        seat = still[(index * count + number) % len(still)]
        begin = time.perf_counter()
        rng, before = np.random.default_rng((settings.seed, index, number)), list[int]()
        if rng.random() < player.going_on:
            before = _measured(seat.best[0].actions, settings.agent.every)
        episode = xrlflow.play(seat.env, choose, params, rng, begin=before)
        for step in np.flatnonzero(np.isfinite(episode.seconds)):
            share = float(episode.seconds[step] / seat.env.first)
            seat.keep([*before, *episode.action[: step + 1].tolist()], share, episode.roots[step])
        taken = time.perf_counter() - begin
        played.setdefault(seat.game.name, []).append((episode, taken))
        if not seat.is_spent:  # else rewards may be unknown
            learned.append((seat, episode, seat.env.size))
    by_name, rows = {each.game.name: each for each in seats}, []
    for name, own in played.items():
        seat, gains = by_name[name], [episode.reward.sum() for episode, _ in own]
        seat.returns += map(float, gains)
        row = {
            "game": name,
            "update": index,
            "reward": float(np.mean(gains)),
            "rewrites": sum(len(episode.action) for episode, _ in own),
            "measured": len(seat.known),
            "best": seat.best[0].share,
            "playing s": sum(seconds for _, seconds in own),
        }
        rows.append(row)
    return rows, [(scaled(each, seat.returns), size) for seat, each, size in learned]


def _measured(actions: Sequence[int], every: int) -> list[int]:
    """Return actions up to the last measurement before their end; the end may end an episode."""
    return list(actions[: (len(actions) - 1) // every * every if actions else 0])


def scaled(episode: xrlflow.Episode, returns: Sequence[float]) -> xrlflow.Episode:
    """Return an episode with rewards ÷ the root mean square of its game's returns, at least 1.

    So a game that becomes five times as fast counts as much as one that gains a hundredth.
    """
    most = max(1.0, float(np.sqrt(np.mean(np.square(returns)))))
    return episode._replace(reward=(episode.reward / most).astype(np.float32))
