"""The searches of `gopt.schedule`: by name, from heuristics to trained policies, or a callable.

Networks are imported where they are used, so that `import gopt` stays light.
"""

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.graph.graph import Graph
from gopt.heuristics import HEURISTICS
from gopt.heuristics.schedule import baselines
from gopt.heuristics.schedule.evolve import evolve
from gopt.host.progress import Progress
from gopt.plots.units import format_bytes, format_seconds
from gopt.search.loop import Run, Slices
from gopt.search.parallel import on_host
from gopt.search_argument import Weights, load_policy


class ScheduleSearch(Protocol):
    """A callable for `search=` of `gopt.schedule`, see `gopt.search_argument`."""

    def __call__(
        self, key: jax.Array, graph: Graph, problem: Problem, /, *, objective: str, evaluations: int
    ) -> Keys:
        """Return the keys of a schedule."""


SEARCHES: tuple[str, ...] = ("best", "regal", "go", "brkga", *HEURISTICS)
LEARNED = ("regal", "go")


class Finder(NamedTuple):
    """A search and its arguments.

    Attributes:
      search: one of `SEARCHES`, or a callable.
      weights: policy for one of `LEARNED`, see `gopt.schedule`.
      evaluations: number of candidates that the search may cost.
      seed: random seed of the search.
      progress: shows progress, and ends a search with a name when its time is over or at Ctrl-C;
        `None` runs the search whole.
    """

    search: str | ScheduleSearch
    weights: Weights | None
    evaluations: int
    seed: int
    progress: Progress | None = None

    @on_host
    def find(self, graph: Graph, problem: Problem, objective: str) -> Keys:
        """Return the keys of the schedule that the search finds.

        Args:
          graph: padded graph.
          problem: the graph on a machine, on the host.
          objective: one of `gopt.cost.schedule.objectives.OBJECTIVES`.

        Raises:
          ValueError: the policy does not exist.
        """
        if isinstance(self.search, str) and self.search in HEURISTICS:
            return HEURISTICS[self.search](problem)
        run = slices(self.progress, problem, objective) if self.progress else None
        named: dict[str, ScheduleSearch] = {
            "best": partial(self._best, run=run),
            "brkga": partial(self._brkga, run=run),
            "regal": partial(self._regal, run=run),
            "go": partial(self._go, run=run),
        }
        key, budget = jax.random.key(self.seed), self.evaluations
        if isinstance(self.search, str):
            search = named[self.search]
            return search(key, graph, problem, objective=objective, evaluations=budget)
        with (self.progress or Progress()).interrupts_raised():
            return self.search(key, graph, problem, objective=objective, evaluations=budget)

    def _best(
        self, key: jax.Array, graph: Graph, problem: Problem, /, *, run: Run | None, **budget: Any
    ) -> Keys:
        from gopt.scheduling import best

        del graph
        return best.search(key, problem, run=run, **budget).best

    def _brkga(
        self, key: jax.Array, graph: Graph, problem: Problem, /, *, run: Run | None, **budget: Any
    ) -> Keys:
        del graph
        search = _evolve if run is None else partial(evolve, run=run)
        return search(key, problem, **budget).best

    def _go(
        self, key: jax.Array, graph: Graph, problem: Problem, /, *, run: Run | None, **budget: Any
    ) -> Keys:
        from gopt.systems import go

        params, settings = load_policy(self.weights, go.load)
        budget |= {"inputs": go.inputs(graph, problem, settings=settings), "settings": settings}
        return go.search(key, problem, params, run=run, **budget).best

    def _regal(
        self, key: jax.Array, graph: Graph, problem: Problem, /, *, run: Run | None, **budget: Any
    ) -> Keys:
        from gopt.scheduling import best
        from gopt.systems import regal

        devices, objective = problem.num_devices, budget["objective"]
        if self.weights is None and devices != 2:
            raise ValueError(
                f"search is 'regal': the policies that ship are for 2 devices, the problem has "
                f"{devices}; expected weights=, hardware= with 2 devices, or search='best'"
            )
        params, settings = load_policy(
            self.weights, regal.load, objective=objective, devices=devices
        )
        inputs = regal.inputs(graph, problem, settings=settings, objective=objective)
        action = _action(params, inputs, settings=settings)
        budget |= {"initial": best.Starts(baselines.heuristic_keys(problem), action)}
        return best.search(key, problem, settings=settings, run=run, **budget).best


def slices(
    progress: Progress, problem: Problem, objective: str, name: str = "steps of the search"
) -> Slices:
    """Return slices in which the searches of a problem run.

    Args:
      progress: shows progress, and knows when the time is over.
      problem: one problem, on the host.
      objective: objective to minimise.
      name: name of the search.
    """

    def text(cost: float) -> str:
        if objective == "peak_memory":
            return f"{format_bytes(cost * float(problem.unit))} with arguments"
        return format_seconds(cost * float(problem.tick))

    return Slices(progress, name, text)


_evolve = jax.jit(evolve, static_argnames=("objective", "evaluations"))


@partial(jax.jit, static_argnames="settings")
def _action(params: Any, inputs: Any, *, settings: Any) -> Any:
    from gopt.systems import regal

    return regal.act(None, params, inputs, settings=settings)
