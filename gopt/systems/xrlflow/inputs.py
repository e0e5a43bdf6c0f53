"""Inputs of the agent: the observation of a single program, outside an environment."""

from collections.abc import Sequence
from typing import NamedTuple

from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Matcher
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.systems.xrlflow.candidates import candidates, in_order
from gopt.systems.xrlflow.observation import Observation, observe
from gopt.systems.xrlflow.settings import Settings


class Rewriting(NamedTuple):
    """A program to be rewritten.

    Attributes:
      terms: terms of the program; terms of other programs are added to them.
      roots: results of the program.
      cost: cost of an op, in s.
      rules: rules of rewriting.
    """

    terms: Terms
    roots: tuple[int, ...]
    cost: OpCost
    rules: Sequence[Rule] = RULES


def inputs(graph: Terms, problem: Rewriting, *, settings: Settings) -> Observation:
    """Return the observation of a program and all its candidates.

    Args:
      graph: terms of the program.
      problem: the program, costs and rules.
      settings: settings of the agent.
    """
    order = in_order(graph, problem.roots)
    most = 2 * len(graph.live(problem.roots))
    found = candidates(Matcher(graph, problem.rules), problem.roots, order, most)
    price = TermCosts(graph, problem.cost).term
    return observe(graph, problem.roots, order, found, price, reach=settings.layers)
