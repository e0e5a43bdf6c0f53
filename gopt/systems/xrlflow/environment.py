"""The environment: rewrite a program step by step, and measure it at intervals.

Needs the extra `xrlflow`.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gopt.host.extras import optional
from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Matcher
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.systems.xrlflow.candidates import Candidate, candidates, in_order
from gopt.systems.xrlflow.observation import (
    LARGEST,
    NODE_KINDS,
    RANK,
    Observation,
    Size,
    observe,
    pad,
    size_of,
)
from gopt.systems.xrlflow.settings import Settings

gymnasium = optional("gymnasium", "xrlflow", "X-RLflow")
spaces = optional("gymnasium.spaces", "xrlflow", "X-RLflow")

NOTHING = 0  # action that ends an episode
_KEPT = 512  # number of programs whose candidates are cached


class View(NamedTuple):
    """A program, its candidates, and its observation without padding.

    Attributes:
      roots: results of the program.
      found: candidates of the program.
      seen: observation of the program.
    """

    roots: tuple[int, ...]
    found: list[Candidate]
    seen: Observation


class Slots(spaces.Discrete):  # type: ignore[name-defined]
    """Space of actions; random actions are drawn from valid slots.

    Attributes:
      there: number of slots without padding.
    """

    def __init__(self, slots: int, seed: np.random.Generator | None = None):
        """Make the space, given the number of slots with padding."""
        super().__init__(slots, seed=seed)
        self.there = slots

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        """Return a random action; a valid one if no mask is given."""
        if mask is None and probability is None:
            mask = (np.arange(self.n) < self.there).astype(np.int8)
        return super().sample(mask, probability)


class RewriteEnv(gymnasium.Env[dict[str, Any], np.int64]):  # type: ignore[name-defined]
    """Episodes of rewrites of one program.

    An action is a slot: 0 ends the episode, slot k takes a candidate, made by the rule
    `info["rules"][k - 1]`. If a program has more candidates than slots, the number of slots grows
    to the next bucket and stays there, so spaces change. `mask` in the observation tells the valid
    slots.

    After each `every` rewrites and at the end, the program is measured. The reward is the fall of
    its time since the last measurement, in hundredths of the initial time. All other rewrites are
    rewarded with a bonus. If a program cannot be measured, the reward is 0, and the next one counts
    from the last measurement. An episode is truncated after `horizon` rewrites. It is terminated by
    action 0, or when no candidate is left.

    Attributes:
      settings: settings of episodes.
      start: results of the initial program.
      first: time of the initial program, in s.
      cost: cost of an op.
      view: current program.
      size: size of observations with padding; it grows when needed, see `make_room`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as gymnasium declares it)
    action_space: Slots
    observation_space: Any

    def __init__(
        self,
        terms: Terms,
        roots: Sequence[int],
        seconds: Callable[[tuple[int, ...]], float],
        *,
        cost: OpCost,
        rules: Sequence[Rule] = RULES,
        settings: Settings | None = None,
    ):
        """Make the environment of a program and its rewards.

        Args:
          terms: terms of the program; terms of other programs are added to them.
          roots: results of the program.
          seconds: maps the results of a program to its time in s, by a model or measured (see
            `gopt.rewriting.cost.program_times`). Not finite if it failed.
          cost: cost of an op, which distinguishes candidates if the network takes hints.
          rules: rules of rewriting.
          settings: settings of episodes.

        Raises:
          ValueError: the initial program takes no time, or cannot be measured.
        """
        self.settings = settings or Settings()
        self.start = tuple(roots)
        self._terms, self._seconds = terms, seconds
        self.cost = cost
        self._matcher, self._prices = Matcher(terms, rules), TermCosts(terms, cost)
        self._most = 2 * len(terms.live(roots))
        self._views: dict[tuple[int, ...], View] = {}
        self.size = self._shown = Size()
        self.action_space, self.observation_space = Slots(1), _space(Size())
        self.first = seconds(self.start)
        if not 0 < self.first < np.inf:
            raise ValueError(
                f"the program takes {self.first} s as it is: expected a positive number, which it "
                "has if an op of it costs anything, and it can be measured"
            )
        self.view = self._view(self.start)
        self._last, self._done, self._is_over = self.first, 0, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode with the initial program. Only actions are random."""
        super().reset(seed=seed, options=options)
        self.view = self._view(self.start)
        self._last, self._done, self._is_over = self.first, 0, False
        return self._observation(), self._info(self.first)

    def step(
        self, action: np.int64 | int
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take a candidate, or end the episode.

        Raises:
          ValueError: the candidate does not exist, or the episode is over.
        """
        if self._is_over:
            raise ValueError("the episode is over: expected reset()")
        there, action = len(self.view.found), operator.index(action)
        if not 0 <= action <= there:
            raise ValueError(f"action is {action}: expected 0 to {there}, as the mask tells")
        if action != NOTHING:
            by = dict(self.view.found[action - 1].by)
            after = self._terms.replace(self.view.roots, by)
            if after is None:
                raise RuntimeError("a candidate depends on itself")
            self.view, self._done = self._view(after), self._done + 1
        is_terminated = action == NOTHING or not self.view.found
        is_truncated = self._done >= self.settings.horizon and not is_terminated
        self._is_over = is_terminated or is_truncated
        seconds, reward = np.nan, self.settings.bonus
        if self._is_over or self._done % self.settings.every == 0:
            seconds = self._seconds(self.view.roots)
            reward = 0.0
            if np.isfinite(seconds):
                reward = 100 * (self._last - seconds) / self.first
                self._last = seconds
        return self._observation(), reward, is_terminated, is_truncated, self._info(seconds)

    def make_room(self, size: Size) -> None:
        """Enlarge observations to hold a size, for example the size of another environment."""
        self.size = self.size.holding(size)
        self._make_spaces(self.view)

    def _view(self, roots: tuple[int, ...]) -> View:
        """Return a program, its candidates, and its observation; enlarge observations to fit."""
        view = self._views.pop(roots, None)
        if view is None:
            order = in_order(self._terms, roots)
            found = candidates(self._matcher, roots, order, self._most)
            seen = observe(
                self._terms, roots, order, found, self._prices.term, reach=self.settings.layers
            )
            view = View(roots, found, seen)
        self._views[roots] = view  # moved to the end: the most recent one
        if len(self._views) > _KEPT:
            del self._views[next(iter(self._views))]
        self.size = self.size.holding(size_of(view.seen))
        self._make_spaces(view)
        return view

    def _make_spaces(self, view: View) -> None:
        if self._shown != self.size:
            self._shown = self.size
            self.action_space = Slots(self.size.slots, self.action_space.np_random)
            self.observation_space = _space(self.size)
        self.action_space.there = len(view.found) + 1

    def _observation(self) -> dict[str, Any]:
        seen = pad(self.view.seen, self.size)
        return seen._replace(mask=seen.mask.astype(np.int8))._asdict()

    def _info(self, seconds: float) -> dict[str, Any]:
        """Return the program, its time if it was measured, and the rules of slots."""
        return {
            "roots": self.view.roots,
            "seconds": seconds,
            "rules": tuple(one.rule for one in self.view.found),
        }


def _space(size: Size) -> Any:
    """Return the space of observations."""
    nodes, edges, left, slots = size

    def below(count: int, *shape: int) -> Any:
        return spaces.Box(0, count - 1, shape, np.int32)

    return spaces.Dict(
        {
            "kind": below(len(NODE_KINDS), nodes),
            "slot": below(slots + 1, nodes),
            "sender": below(nodes, edges),
            "receiver": below(nodes, edges),
            "size": spaces.Box(0, LARGEST, (edges, RANK), np.float32),
            "left": below(nodes, left),
            "left_slot": below(slots + 1, left),
            "change": spaces.Box(-1, 1, (slots,), np.float32),
            "mask": spaces.MultiBinary(slots),
        }
    )
