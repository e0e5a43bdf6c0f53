"""The arguments `search=` and `weights=`, which `schedule`, `fuse` and `rewrite` share.

`search` is a name or a callable. A verb calls a callable once for each problem, with the arguments
below. It returns a decision, which is costed, compiled and compared like all others.

    schedule    search(key, graph, problem, *, objective, evaluations) -> Keys
    fuse        search(key, graph, problem, *, cost, start, evaluations) -> FusionSearchResult
    rewrite     search(terms, roots, cost, rules) -> RewriteSearchResult

Args:
  key: random key, made from the seed of the verb.
  graph: padded `gopt.Graph` of the kernels (`schedule`); graph of the equations (`fuse`).
  problem: the graph on a machine, as NumPy arrays: `gopt.Problem` (`schedule`);
    `gopt.cost.fusion.problem.FusionProblem` (`fuse`).
  objective: objective to minimise, one of `gopt.OBJECTIVES`.
  evaluations: number of candidates that the search may cost.
  cost: for `fuse`, a function from a configuration, bool `[N]`, to the sum of the measured times of
    its kernels, s; infinite where a kernel failed. For `rewrite`, the cost of an op in s, see
    `gopt.rewriting.OpCost`.
  start: configuration to begin with, bool `[N]`.
  terms: terms of the function, see `gopt.rewriting.Terms`. The search adds its own.
  roots: results of the function, as terms.
  rules: equalities to rewrite by.

Returns:
  The decision: `gopt.Keys` without an axis of candidates; `gopt.fusion.FusionSearchResult`; or
  `gopt.rewriting.RewriteSearchResult`.

Options of a callable are bound with `functools.partial`, and so is a policy: `weights` is for
searches with a name.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

Policy = tuple[Any, Any]  # parameters and settings, as `load` of a learned system returns them
Weights = str | os.PathLike[str] | Policy


def check_search(
    search: Any, weights: Weights | None, names: Sequence[str], learned: Sequence[str]
) -> None:
    """Check the arguments `search` and `weights` of a verb.

    Args:
      search: a name or a callable.
      weights: a file or a loaded policy, if one is given.
      names: names of the searches of the verb.
      learned: names of the searches that have a policy.

    Raises:
      ValueError: the search is unknown, or weights are given for a search without a policy.
    """
    if not callable(search) and search not in names:
        choices = ", ".join(names)
        raise ValueError(f"search is {search!r}: expected one of {choices}, or a callable")
    if weights is not None and (callable(search) or search not in learned):
        what = "a callable search" if callable(search) else f"search {search!r}"
        raise ValueError(
            f"weights are given for {what}, which has no learned policy: "
            f"expected a search of {', '.join(learned)}"
        )


def search_name(search: str | Callable[..., Any]) -> str:
    """Return the name of a search in the table of a result."""
    return search if isinstance(search, str) else "searched"


def load_policy(weights: Weights | None, load: Callable[..., Policy], **options: Any) -> Policy:
    """Return parameters and settings: those given, or those in a file.

    Args:
      weights: a loaded policy, a file, or `None` for the policy that ships.
      load: function that loads a file of the learned system.
      **options: further arguments of `load`.

    Raises:
      ValueError: a loaded policy is not a pair, or the file holds another policy.
      FileNotFoundError: the file does not exist.
    """
    if weights is None or isinstance(weights, str | os.PathLike):
        return load(weights, **options)
    if not isinstance(weights, tuple) or len(weights) != 2:
        raise ValueError(
            f"weights is a {type(weights).__name__}: expected a path, or the pair of parameters "
            "and settings that `load` of the system returns"
        )
    return weights
