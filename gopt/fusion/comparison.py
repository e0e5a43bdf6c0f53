"""Ways to run a function as they were measured, and which of them is surely the fastest."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gopt.measure.timing import FEWEST_TURNS, Times, median_ratio
from gopt.plots.units import format_seconds
from gopt.program.program import Program

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FusedProgram(NamedTuple):
    """A way to run a function, as it was measured."""

    name: str
    function: Callable[..., Any]  # jitted
    fuse: np.ndarray | None  # bool [N]; None: as XLA decides
    kernels: int | None  # that run; None: as XLA decides
    predicted: float | None  # s, the sum of the times of its kernels
    times: Times  # of a call in each turn


@dataclass(frozen=True, eq=False, repr=False)
class Fusing:
    """Ways to fuse the ops of a function, and what each takes. Print it for a table.

    Attributes:
      program: the function as equations.
      candidates: what was compared, XLA's own program first.
      searched: seconds of the best configuration after each evaluation, by the sum of its kernels;
        empty where no op can be fused.
      failures: kernels that could not be compiled or timed, and why.
    """

    program: Program
    candidates: tuple[FusedProgram, ...]
    searched: np.ndarray
    failures: dict[str, str]

    @property
    def before(self) -> FusedProgram:
        """XLA's own program."""
        return self.candidates[0]

    @property
    def after(self) -> FusedProgram:
        """The fastest; XLA's own program, unless another one is faster with 95 % confidence.

        That is by the time that the process spends on all cores. What surely takes longer on the
        wall, with the same confidence, is not chosen either: then it is XLA's own.

        The first half of the turns says which is fastest, the other half whether it is faster: the
        best of several by the same turns would look better than it is. Of fewer than 12 turns half
        cannot tell, see `gopt.measure.timing.median_ratio`: then it is XLA's own, too.
        """
        return self._choice[0]

    @cached_property
    def _choice(self) -> tuple[FusedProgram, str]:
        """What is chosen, and why it is XLA's own program, if it is."""
        least = 2 * FEWEST_TURNS
        if self._turns < least:
            return self.before, f"turns are too few to tell what is faster: {least} at least"
        half = self._turns // 2
        fastest = min(self.candidates, key=lambda c: self.ratio(c, slice(half))[0])
        if fastest is self.before:
            return self.before, "nothing is faster"
        confirming = slice(-half, None)
        if not self.ratio(fastest, confirming)[2] < 1:
            return self.before, f"{fastest.name} is not surely faster"
        if self.ratio(fastest, confirming, clock="wall")[1] > 1:
            return self.before, f"{fastest.name} surely takes longer on the wall"
        return fastest, ""

    def ratio(
        self,
        candidate: FusedProgram,
        of: slice = slice(None),
        *,
        clock: Literal["process", "wall"] = "process",
    ) -> tuple[float, float, float]:
        """Returns the time of a candidate as a share of XLA's, and its 95 % interval.

        Args:
          candidate: one of the candidates.
          of: which turns count.
          clock: by which, see `gopt.measure.timing.Times`.
        """
        times, base = (getattr(c.times, clock)[of] for c in (candidate, self.before))
        return median_ratio(times, base)

    @property
    def _turns(self) -> int:
        return len(self.before.times.process)

    def apply(self) -> Callable[..., Any]:
        """Returns the fastest program as a jitted function: same arguments, same values.

        It is there to be called. Rules of differentiation of its own (`jax.custom_jvp`) are lost in
        it, and it has compiler options, so that JAX refuses it within another transformation: to
        differentiate, fuse the gradient.
        """
        return self.after.function

    def plot(self) -> "Figure":
        """Returns the time of the best configuration against evaluations of the search.

        Raises:
          ValueError: nothing was searched.
        """
        if not len(self.searched):
            raise ValueError("nothing was searched: the function has no op that can be fused")
        from gopt import plots

        steps = np.arange(1, len(self.searched) + 1)
        return plots.convergence(
            {"sum of kernels": (steps, 1e3 * self.searched[None])}, label="time, ms"
        )

    def __str__(self) -> str:
        width = 2 + max(len(candidate.name) for candidate in self.candidates)
        lines = [
            f"{len(self.program.equations)} equations; process time of the best of "
            f"{self._turns} turns, and the median of what turns take of XLA's",
            f"{'':{width}}{'kernels':>9}{'their sum':>12}{'measured':>12}{'of XLA':>9}  "
            f"{'95 %':11}{'wall, of XLA':>14}",
        ]
        for c in self.candidates:
            kernels = "" if c.kernels is None else str(c.kernels)
            predicted = "" if c.predicted is None else format_seconds(c.predicted)
            middle, low, high = self.ratio(c)
            measured = format_seconds(float(c.times.process.min()))
            wall, _, _ = self.ratio(c, clock="wall")
            lines.append(
                f"{c.name:{width}}{kernels:>9}{predicted:>12}{measured:>12}{middle:>9.3f}  "
                f"{f'{low:.3f}-{high:.3f}':11}{wall:>14.3f}"
            )
        if self.failures:
            lines.append(f"{len(self.failures)} kernels failed, see `failures`")
        chosen, why = self._choice
        return "\n".join([*lines, f"chosen: {chosen.name}{f' ({why})' if why else ''}"])
