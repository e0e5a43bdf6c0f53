"""Climb by whole programs: a few more rewrites are kept if they are measured to be faster."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.xrlflow.training import Played, Reached, Seat, fastest, start
from gopt.systems import xrlflow
from gopt.systems.xrlflow.episodes import drawn

STEPS = 5  # most rewrites at once


def climb(
    seat: Seat, choose: xrlflow.Policy, params: Any, known: Sequence[Reached] = (), *, seed: int
) -> Played:
    """Return the fastest program found until all measurements are spent.

    Args:
      seat: game, whose episodes measure nothing before their end.
      choose: policy that proposes rewrites, as from `gopt.systems.xrlflow.policy`.
      params: parameters of the policy.
      known: programs that were measured before.
      seed: seed of the draws.
    """
    game, budget, env = seat
    rng, best, begin = np.random.default_rng(seed), [start(seat)], time.perf_counter()
    for one in known:
        best = fastest(best, one)
    history = list[dict[str, Any]]()
    # Draws may repeat measured programs, so tries are limited as well.
    for _ in range(10 * budget.most):
        if budget.is_spent:
            break
        actions = _followed(env, best[0].actions, choose, params, rng)
        share = float(budget(env.view.roots) / env.first)
        if np.isfinite(share):
            best = fastest(best, Reached(actions, share, budget.name(env.view.roots)))
        taken = time.perf_counter() - begin
        history.append({"measured": len(budget.known), "best": best[0].share, "s": taken})
    return Played(params, {game.name: best}, history)


def _followed(
    env: xrlflow.RewriteEnv,
    actions: list[int],
    choose: xrlflow.Policy,
    params: Any,
    rng: np.random.Generator,
) -> list[int]:
    """Apply given actions and a few more that are drawn, and return all of them.

    If the horizon has no room for more, drawn actions replace the last ones.
    """
    env.reset()
    actions = actions[: max(env.settings.horizon - 1 - STEPS, 0)]
    for action in actions:
        env.step(action)
    more = list[int]()
    for _ in range(int(rng.integers(STEPS)) + 1):
        view, last = env.view, len(actions) + len(more) + 1 >= env.settings.horizon
        if last or not view.found:
            break
        chances, _ = choose(params, xrlflow.pad(view.seen, env.size))
        chances = np.array(chances, np.float64)[: len(view.found) + 1]
        chances[xrlflow.NOTHING] = 0
        if not chances.any():
            break
        more.append(drawn(chances, rng))
        env.step(more[-1])
    return [*actions, *more]
