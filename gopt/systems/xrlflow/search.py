"""Searches by the agent: one for `gopt.rewrite`, one with the interface of learned systems."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from gopt.host.progress import Progress
from gopt.plots.units import format_seconds
from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.search.result import RewriteSearch, RewriteSearchResult
from gopt.search.result import SearchResult
from gopt.systems.xrlflow.episodes import play, policy
from gopt.systems.xrlflow.inputs import Rewriting
from gopt.systems.xrlflow.settings import Settings

Tree = Any


def agent(
    params: Tree,
    settings: Settings,
    *,
    episodes: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> RewriteSearch:
    """Return a search in which an agent rewrites programs, and the cheapest is kept.

        search = agent(*load())
        gopt.rewrite(model, weights, x, constant_argnums=0, search=search)

    A model gives the costs of programs without measuring them, so each step of an episode counts.

    Args:
      params: parameters of the network.
      settings: settings of the agent.
      episodes: number of episodes. The first takes the likeliest rewrites, the others draw them.
      seed: random seed of the draws.
      progress: shows progress, and ends the search when its time is over or at Ctrl-C.

    Raises:
      ValueError: `episodes` is less than 1.
    """
    if not episodes >= 1:
        raise ValueError(f"episodes is {episodes}: expected 1 at least")
    from gopt.systems.xrlflow.environment import RewriteEnv

    every = dataclasses.replace(settings, every=1)
    choose, watch = policy(settings), progress or Progress()

    def search(
        terms: Terms, roots: Sequence[int], cost: OpCost, rules: Sequence[Rule]
    ) -> RewriteSearchResult:
        prices = TermCosts(terms, cost)
        best = RewriteSearchResult(tuple(roots), prices.program(roots), (), 0, "")
        if not 0 < best.cost < math.inf:
            return best._replace(stop_reason=f"the program costs {best.cost} s: there is no reward")
        env = RewriteEnv(terms, roots, prices.program, cost=cost, rules=rules, settings=every)
        visited = 0
        watch.phase("episodes", episodes)
        with watch.interruptible():
            for index in range(episodes):
                if watch.is_over:
                    break
                rng = np.random.default_rng((seed, index))
                played = play(env, choose, params, rng, greedy=index == 0)
                visited += len(played.action)
                step = played.best()
                if step is not None and played.seconds[step] < best.cost:
                    found = played.roots[step], float(played.seconds[step])
                    best = RewriteSearchResult(*found, tuple(played.rules[: step + 1]), 0, "")
                watch.advance(index + 1, f"best {format_seconds(best.cost)} by the model")
        stopped = watch.cut_note or f"{episodes} episodes are played"
        return best._replace(num_visited=visited, stop_reason=stopped)

    return search


def search(
    key: PRNGKeyArray,
    problem: Rewriting,
    params: Tree,
    *,
    objective: str,
    evaluations: int,
    settings: Settings,
) -> SearchResult:
    """Return the cheapest program of some episodes: its results, a tuple of terms.

    The first episode takes the likeliest rewrites, the others draw them. Inputs are read on the
    way, from each program that is reached.

    Args:
      key: random key.
      problem: the program, costs and rules.
      params: parameters of the network.
      objective: "makespan", the sum of the costs of ops.
      evaluations: number of programs that are costed; the last episode is played to its end.
      settings: settings of the agent.

    Raises:
      ValueError: the objective is not "makespan", or the initial program has no positive cost.
    """
    if objective != "makespan":
        raise ValueError(f"objective is {objective!r}: expected 'makespan'")
    terms, roots, cost, rules = problem
    every = dataclasses.replace(settings, every=1)
    seconds = TermCosts(terms, cost).program
    from gopt.systems.xrlflow.environment import RewriteEnv

    env = RewriteEnv(terms, roots, seconds, cost=cost, rules=rules, settings=every)
    choose, seed = policy(settings), np.asarray(jax.random.key_data(key)).tolist()
    best, least, used = tuple(roots), env.first, 1
    history, evaluated = [least], [used]
    while used < evaluations:
        rng = np.random.default_rng((*seed, len(history)))
        played = play(env, choose, params, rng, greedy=len(history) == 1)
        used += len(played.action)
        step = played.best()
        if step is not None and played.seconds[step] < least:
            best, least = played.roots[step], float(played.seconds[step])
        history.append(least)
        evaluated.append(used)
    return SearchResult(best, least, np.array(history), np.array(evaluated))
