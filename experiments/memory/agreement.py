"""Bytes of plans by the model beside XLA's own account, for plans of similar budgets."""

from typing import Any

import numpy as np
from scipy import stats

from experiments.memory.subject import subject
from gopt.host.progress import Progress
from gopt.measure.timing import memory
from gopt.scheduling.recompute.compiled import is_order_free, jit_schedule
from gopt.scheduling.recompute.plans import search_plan

PLANS = 24
BUDGETS = 0.4, 0.6  # range of the budgets, shares of XLA's bytes without arguments


def compare(name: str, evaluations: int, seed: int, target: str | None = None) -> dict[str, Any]:
    """Return the bytes of the plans of a step, their rank correlation and the errors.

    Args:
      name: name of the step.
      evaluations: budget of each search.
      seed: random seed of the first search; the others count on from it.
      target: machine to compile for, see `gopt.schedule`.
    """
    given = subject(name, target)
    machine = given.found.kernels.target
    planned, needed = [], []
    for k, share in enumerate(np.linspace(*BUDGETS, PLANS).tolist()):
        bytes = int(share * given.limit)
        plan = search_plan(given.found, bytes, bytes, evaluations, seed + k, Progress())
        schedule = plan.schedule._replace(is_free=is_order_free(machine))
        compiled = machine.compile(jit_schedule(schedule), given.step.args)
        planned.append(plan.packed)
        needed.append(memory(compiled).without_arguments)
    errors = np.abs(np.array(planned) / np.array(needed) - 1)
    return {
        "step": name,
        "planned": planned,
        "needed": needed,
        "correlation": float(stats.spearmanr(planned, needed).statistic),
        "error": float(np.median(errors)),
        "largest error": float(errors.max()),
    }
