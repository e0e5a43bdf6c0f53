"""Tuned BRKGA: Betas and an elite bias that are the same for all ops of all graphs.

Proposals that do not look at a graph, and so what a policy that looks has to beat. Where priorities
of ops are drawn alike and independently, from what makes no difference; what does is the share of
each device, transfers before or after ops, and the elite bias.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost.schedule.problem import Problem
from gopt.systems import regal

# All is drawn from the Betas: none of the first population stays uniform.
SETTINGS = regal.Settings(parts=tuple(regal.PARTS), trust=1.0)


class Levels(NamedTuple):
    """Mean and deviation of the Betas of each kind of gene, and the elite bias, in levels."""

    devices: tuple[tuple[int, int], ...]
    priority: tuple[int, int]
    transfer: tuple[int, int]
    elite_bias: int


MIDDLE, WIDEST = SETTINGS.bins // 2, SETTINGS.bins - 1
UNIFORM = (MIDDLE, WIDEST)
STANDARD = Levels((UNIFORM, UNIFORM), UNIFORM, UNIFORM, int(0.4 * SETTINGS.bins))
# What `python -m experiments.regal.tuning --objective ...` found, with its default settings.
TUNED = {
    "peak_memory": Levels(((6, 15), (7, 11)), (15, 15), (0, 12), 1),
    "makespan": Levels(((0, 15), (6, 4)), (0, 14), (15, 15), 2),
    "capped_makespan": Levels(((1, 11), (8, 15)), (1, 15), (6, 15), 3),
}


def action(problem: Problem, levels: Levels) -> regal.Action:
    """Return the action that says the same of every op."""
    betas = jnp.array([*levels.devices, levels.priority])
    shift = jnp.array(levels.transfer) - betas[-1]
    said = regal.Action(betas, jnp.array(levels.elite_bias), shift)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (problem.shape.ops, *x.shape)), said)
