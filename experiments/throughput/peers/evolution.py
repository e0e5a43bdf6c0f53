"""Run BRKGA by other packages. They call back with keys, and know nothing about graphs.

A candidate's genes are all its op and tensor keys in one row, float64 in [0, 1].
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.search.brkga import Settings

Cost = Callable[[Keys], np.ndarray]  # float32 keys [P, ...] to costs [P]


def as_keys(genes: np.ndarray, template: Keys) -> Keys:
    """Return rows of genes `[P, L]` as float32 keys `[P, ...]` with the shapes of `template`."""
    ends = np.cumsum([np.prod(leaf.shape, dtype=int) for leaf in template])[:-1]
    parts = np.split(genes.astype(np.float32), ends, axis=1)
    pairs = zip(parts, template, strict=True)
    return Keys(*(part.reshape(-1, *leaf.shape) for part, leaf in pairs))


def num_genes(template: Keys) -> int:
    """Return the number of genes of a candidate, `L`."""
    return sum(int(np.prod(leaf.shape)) for leaf in template)


def pymoo(
    cost: Cost, template: Keys, *, settings: Settings, bias: float, generations: int, seed: int
) -> float:
    """Return the best cost that pymoo's BRKGA finds; it costs whole populations.

    Its elimination of duplicates is off, because gopt has none and it would take most of the time.
    """
    from pymoo.algorithms.soo.nonconvex.brkga import BRKGA, EliteBiasedSelection
    from pymoo.core.duplicate import NoDuplicateElimination
    from pymoo.core.mating import Mating
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.binx import BinomialCrossover
    from pymoo.operators.mutation.nom import NoMutation
    from pymoo.optimize import minimize

    class Scheduling(Problem):
        def __init__(self) -> None:
            super().__init__(n_var=num_genes(template), n_obj=1, xl=0.0, xu=1.0)

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


def brkga_mp_ipr(
    cost: Cost, template: Keys, *, settings: Settings, bias: float, generations: int, seed: int
) -> float:
    """Return the best cost that brkga-mp-ipr finds; it decodes one candidate after another.

    This is the Python package; its authors have others in C++ and Julia.
    """
    from brkga_mp_ipr.algorithm import BrkgaMpIpr
    from brkga_mp_ipr.enums import Sense
    from brkga_mp_ipr.types import BaseChromosome, BrkgaParams

    class Decoder:
        def decode(self, chromosome: BaseChromosome, rewrite: bool) -> float:
            genes = np.fromiter(chromosome, np.float64, len(chromosome))
            return float(cost(as_keys(genes[None], template))[0])

    params = BrkgaParams()
    params.population_size = settings.population
    # Half a candidate more, because the package rounds down.
    params.elite_percentage = (settings.elites + 0.5) / settings.population
    params.mutants_percentage = (settings.mutants + 0.5) / settings.population
    params.num_elite_parents, params.total_parents = 1, 2
    params.num_independent_populations = 1
    search = BrkgaMpIpr(Decoder(), Sense.MINIMIZE, seed, num_genes(template), params)
    search.set_bias_custom_function({1: bias, 2: 1 - bias}.__getitem__)
    search.initialize()
    for _ in range(generations):
        _put_in_order(search._current_populations[0])
        search.evolve(1)
    return float(search.get_best_fitness())


def _put_in_order(population: Any) -> None:
    """Sort chromosomes by fitness: release 0.9.1 takes the first of them as the elites."""
    population.chromosomes = [population.chromosomes[index] for _, index in population.fitness]
    population.fitness = [(value, k) for k, (value, _) in enumerate(population.fitness)]


SEARCHES = {"pymoo": pymoo, "brkga-mp-ipr": brkga_mp_ipr}
