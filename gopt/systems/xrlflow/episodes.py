"""Episodes: a policy acts in an environment."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from gopt.learning import losses
from gopt.systems.xrlflow.network import apply
from gopt.systems.xrlflow.observation import Observation, Size, pad
from gopt.systems.xrlflow.settings import Settings

if TYPE_CHECKING:
    from gopt.systems.xrlflow.environment import RewriteEnv

Tree = Any
Policy = Callable[[Tree, Observation], tuple[Any, Any]]  # returns probabilities [S] and a value


class Episode(NamedTuple):
    """Observations, actions and rewards of `T` steps.

    Attributes:
      seen: observations without padding.
      action: int32 `[T]`.
      log_prob: float32 `[T]`.
      value: float32 `[T]`, predicted values.
      reward: float32 `[T]`.
      last: value of the last program; 0 if the episode was terminated.
      seconds: float64 `[T]`, time of the program after each step; not finite if not measured.
      roots: results of the program after each step.
      rules: names of the applied rules.
    """

    seen: list[Observation]
    action: np.ndarray
    log_prob: np.ndarray
    value: np.ndarray
    reward: np.ndarray
    last: float
    seconds: np.ndarray
    roots: list[tuple[int, ...]]
    rules: list[str]

    def best(self) -> int | None:
        """Return the step after which the program was fastest; `None` if it was never measured."""
        known = np.where(np.isfinite(self.seconds), self.seconds, np.inf)
        return int(np.argmin(known)) if np.isfinite(known).any() else None


def policy(settings: Settings) -> Policy:
    """Return a function that gives the probabilities of slots and a value; it is compiled once."""

    @jax.jit
    def told(params: Tree, seen: Observation) -> tuple[jax.Array, jax.Array]:
        said = apply(params, seen, settings=settings)
        return jax.nn.softmax(said.logits), said.value

    return told


def uniform(params: Tree, seen: Observation) -> tuple[np.ndarray, float]:
    """Return equal probabilities of all candidates, for random episodes.

    An episode ends only when no candidate is left.
    """
    there = np.array(seen.mask, np.float64)
    there[0] = there.sum() == 1
    return there / there.sum(), 0.0


def play(
    env: "RewriteEnv",
    choose: Policy,
    params: Tree,
    rng: np.random.Generator,
    *,
    greedy: bool = False,
    begin: Sequence[int] = (),
) -> Episode:
    """Play an episode and return it.

    Args:
      env: environment.
      choose: policy, see `policy`, or `uniform`.
      params: parameters of the policy.
      rng: random generator of actions.
      greedy: whether the likeliest action is taken.
      begin: actions before the episode, which must not end it.

    Raises:
      ValueError: `begin` ends the episode.
    """
    shown, _ = env.reset()
    for action in begin:
        shown, _, is_terminated, is_truncated, _ = env.step(action)
        if is_terminated or is_truncated:
            raise ValueError(f"begin is {list(begin)}: expected actions that do not end an episode")
    seen, roots, rules, steps = list[Observation](), list[tuple[int, ...]](), list[str](), []
    is_over, is_truncated = False, False
    while not is_over:
        view = env.view
        probabilities, value = choose(params, _read(shown))
        chances = np.asarray(probabilities, np.float64)[: len(view.found) + 1]
        action = int(np.argmax(chances)) if greedy else drawn(chances, rng)
        shown, reward, is_terminated, is_truncated, info = env.step(action)
        is_over = is_terminated or is_truncated
        seen.append(view.seen)
        roots.append(info["roots"])
        rules += [view.found[action - 1].rule] if action else []
        log_prob = np.log(max(chances[action], 1e-30))
        steps.append((action, log_prob, float(value), reward, info["seconds"]))
    last = float(choose(params, _read(shown))[1]) if is_truncated else 0.0
    actions, *figures, seconds = map(np.array, zip(*steps, strict=True))
    log_probs, values, rewards = (each.astype(np.float32) for each in figures)
    return Episode(
        *(seen, actions.astype(np.int32), log_probs, values, rewards, last, seconds, roots, rules)
    )


def _read(shown: dict[str, Any]) -> Observation:
    return Observation(**{**shown, "mask": shown["mask"].astype(bool)})


def drawn(chances: np.ndarray, rng: np.random.Generator) -> int:
    """Return a slot drawn from the probabilities `[S]`; the result does not depend on padding."""
    edges = np.cumsum(chances)
    found = int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
    return min(found, int(np.flatnonzero(chances)[-1]))


class Decisions(NamedTuple):
    """A batch of training data for PPO; every leaf has an axis `[B]`.

    Attributes:
      seen: observations, `[B, ...]`.
      action: int32 `[B]`.
      log_prob: float32 `[B]`, log-probability when the action was taken.
      advantage: float32 `[B]`.
      target: float32 `[B]`, target of the value.
      weight: float32 `[B]`, 0 for padding.
    """

    seen: Observation
    action: Any
    log_prob: Any
    advantage: Any
    target: Any
    weight: Any


def advantages(episode: Episode, settings: Settings) -> Float32[np.ndarray, " T"]:
    """Return generalised advantages of the steps of an episode, float32 `[T]`."""
    following = np.append(episode.value[1:], episode.last).astype(np.float32)
    found = losses.generalized_advantages(
        jnp.asarray(episode.reward),
        jnp.asarray(episode.value),
        jnp.asarray(following),
        discount=settings.discount,
        trace=settings.trace,
    )
    return np.asarray(found)


def batches(
    episodes: list[tuple[Episode, Size]], rng: np.random.Generator, settings: Settings
) -> list[Decisions]:
    """Return all decisions of some episodes in random batches, each padded to one size.

    Advantages are standardised to mean 0 and deviation 1 over all episodes.

    Args:
      episodes: episodes, each with the size that its observations are padded to.
      rng: random generator of the order.
      settings: settings of the training.
    """
    found = [advantages(episode, settings) for episode, _ in episodes]
    every = np.concatenate(found)
    middle, spread = every.mean(), every.std() + 1e-8
    rows: dict[Size, list[tuple[Any, ...]]] = {}
    for (episode, size), advantage in zip(episodes, found, strict=True):
        target = advantage + episode.value
        parts = (episode.action, episode.log_prob, (advantage - middle) / spread, target)
        rows.setdefault(size, []).extend(zip(episode.seen, *parts, strict=True))
    made = []
    for size, own in rows.items():
        order = rng.permutation(len(own))
        for first in range(0, len(own), settings.batch):
            chosen = [own[k] for k in order[first : first + settings.batch]]
            made.append(_stacked(chosen, size, settings.batch))
    return [made[k] for k in rng.permutation(len(made))]


def _stacked(rows: list[tuple[Any, ...]], size: Size, count: int) -> Decisions:
    weight = np.zeros(count, np.float32)
    weight[: len(rows)] = 1
    rows = rows + rows[:1] * (count - len(rows))
    seen, *others = zip(*rows, strict=True)
    padded = [pad(one, size) for one in seen]
    stacked = Observation(*(np.stack(leaves) for leaves in zip(*padded, strict=True)))
    action, log_prob, advantage, target = map(np.array, others)
    return Decisions(stacked, action, log_prob, advantage, target, weight)
