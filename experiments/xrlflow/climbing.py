"""Climb by whole programs: a few more rewrites are kept if they are measured to be faster."""

import time
from typing import Any

import numpy as np

from experiments.xrlflow.training import Played, Seat
from gopt.systems import xrlflow
from gopt.systems.xrlflow.episodes import drawn

STEPS = 5  # most rewrites at once


def climb(seat: Seat, params: Any, *, seed: int) -> Played:
    """Climb from the fastest known program until all measurements are spent.

    Args:
      seat: game, whose episodes measure nothing before their end.
      params: parameters of the agent that proposes rewrites.
      seed: seed of the draws.
    """
    env = seat.env
    choose, rng = xrlflow.policy(env.settings), np.random.default_rng(seed)
    begin, history = time.perf_counter(), list[dict[str, Any]]()
    # Draws may repeat measured programs, so tries are limited as well.
    for _ in range(10 * seat.most):
        if seat.is_spent:
            break
        actions = _followed(env, seat.best[0].actions, choose, params, rng)
        share = float(seat.seconds(env.view.roots) / env.first)
        if np.isfinite(share):
            seat.keep(actions, share, env.view.roots)
        taken = time.perf_counter() - begin
        history.append({"measured": len(seat.known), "best": seat.best[0].share, "s": taken})
    return Played(params, history)


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
    for _ in range(int(rng.integers(STEPS)) + 1):
        view, is_last = env.view, len(actions) + 1 >= env.settings.horizon
        if is_last or not view.found:
            break
        chances, _ = choose(params, xrlflow.pad(view.seen, env.size))
        chances = np.array(chances, np.float64)[: len(view.found) + 1]
        chances[xrlflow.NOTHING] = 0
        if not chances.any():
            break
        actions = [*actions, drawn(chances, rng)]
        env.step(actions[-1])
    return actions
