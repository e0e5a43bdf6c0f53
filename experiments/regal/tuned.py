"""Tuned BRKGA: Betas and an elite bias that are equal for all ops of all graphs.

These proposals ignore the graph, so a policy that reads it has to beat them. Priorities of ops are
drawn from one distribution, independently, so their distribution makes no difference. The share of
each device, transfers before or after ops, and the elite bias do.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost.schedule.problem import Problem
from gopt.systems import regal

# All candidates are drawn from the Betas: none of the first population stays uniform.
SETTINGS = regal.Settings(parts=tuple(regal.PARTS), trust=1.0)


class Levels(NamedTuple):
    """Levels of the Betas of each kind of gene, and of the elite bias.

    Attributes:
      devices: mean and deviation for each device.
      priority: mean and deviation of priorities.
      transfer: mean and deviation of transfer keys.
      elite_bias: elite bias.
    """

    devices: tuple[tuple[int, int], ...]
    priority: tuple[int, int]
    transfer: tuple[int, int]
    elite_bias: int


MIDDLE, WIDEST = SETTINGS.bins // 2, SETTINGS.bins - 1
UNIFORM = (MIDDLE, WIDEST)
STANDARD = Levels((UNIFORM, UNIFORM), UNIFORM, UNIFORM, int(0.4 * SETTINGS.bins))
# Results of `python -m experiments.regal --table tuning --objective ...`.
TUNED = {
    "peak_memory": Levels(((6, 15), (7, 11)), (15, 15), (0, 12), 1),
    "makespan": Levels(((0, 15), (6, 4)), (0, 14), (15, 15), 2),
    "capped_makespan": Levels(((1, 11), (8, 15)), (1, 15), (6, 15), 3),
}


def action(problem: Problem, levels: Levels) -> regal.Action:
    """Return the action that proposes the same for every op."""
    betas = jnp.array([*levels.devices, levels.priority])
    shift = jnp.array(levels.transfer) - betas[-1]
    said = regal.Action(betas, jnp.array(levels.elite_bias), shift)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (problem.shape.ops, *x.shape)), said)
