"""Run the BRKGA of pymoo, which calls back with keys and knows nothing about graphs.

A candidate's genes are all its op and tensor keys in one row, float64 in [0, 1].
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.host.extras import check_installed, optional
from gopt.search.brkga import Settings

Cost = Callable[[Keys], np.ndarray]  # float32 keys [P, ...] to costs [P]


def as_keys(genes: np.ndarray, template: Keys) -> Keys:
    """Return rows of genes `[P, L]` as float32 keys `[P, ...]` with the shapes of `template`."""
    ends = np.cumsum([np.prod(leaf.shape, dtype=int) for leaf in template])[:-1]
    parts = np.split(genes.astype(np.float32), ends, axis=1)
    pairs = zip(parts, template, strict=True)
    return Keys(*(part.reshape(-1, *leaf.shape) for part, leaf in pairs))


def pymoo(
    cost: Cost, template: Keys, *, settings: Settings, bias: float, generations: int, seed: int
) -> float:
    """Return the best cost that pymoo's BRKGA finds; it costs whole populations.

    Its elimination of duplicates is off, because gopt has none and it would take most of the time.
    """
    check_installed(optional("pymoo", "peers", "pymoo"))
    from pymoo.algorithms.soo.nonconvex.brkga import BRKGA, EliteBiasedSelection
    from pymoo.core.duplicate import NoDuplicateElimination
    from pymoo.core.mating import Mating
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.binx import BinomialCrossover
    from pymoo.operators.mutation.nom import NoMutation
    from pymoo.optimize import minimize

    genes = sum(int(np.prod(leaf.shape)) for leaf in template)

    class Scheduling(Problem):
        def __init__(self) -> None:
            super().__init__(n_var=genes, n_obj=1, xl=0.0, xu=1.0)

        def _evaluate(self, x: np.ndarray, out: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            out["F"] = cost(as_keys(x, template))[:, None]

    algorithm = BRKGA(
        n_elites=settings.elites,
        n_offsprings=settings.population - settings.elites - settings.mutants,
        n_mutants=settings.mutants,
        bias=bias,
        mating=Mating(
            EliteBiasedSelection(),
            BinomialCrossover(bias, prob=1.0, n_offsprings=1),
            NoMutation(),
            eliminate_duplicates=NoDuplicateElimination(),
        ),
    )
    algorithm.initialization.eliminate_duplicates = NoDuplicateElimination()
    found = minimize(Scheduling(), algorithm, ("n_gen", generations + 1), seed=seed)
    return float(found.F[0])
