"""What searches over discrete decisions share."""

from collections.abc import Callable
from typing import NamedTuple

import jax

Cost = Callable[[jax.Array], jax.Array]  # decisions [P, N] to costs [P], to be minimised


class Result(NamedTuple):
    """What a run found."""

    decisions: jax.Array  # [N], the best
    cost: jax.Array  # []
    history: jax.Array  # [evaluations], the best cost after each
