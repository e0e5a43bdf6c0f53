"""The one rule for "significantly faster": choose on some rounds, judge on the others."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped

from gopt.measure.timing import Times

# Half of the rounds judge. If all have one sign, 2 of 2**6 sign vectors are as extreme: p = 0.03.
FEWEST_TEST_ROUNDS = 12
SIGNIFICANCE = 0.05


class Choice(NamedTuple):
    """A program that was chosen among several.

    Attributes:
      name: of the program.
      reason: why it was chosen, in words.
    """

    name: str
    reason: str


def choose(times: Mapping[str, Times], refused: Mapping[str, str] = MappingProxyType({})) -> Choice:
    """Choose the first of several timed programs, unless another one is significantly faster.

    Even rounds find the fastest program: the least median ratio of process time. Odd rounds judge
    it. It is chosen if its process time is significantly less there, and its wall time is not
    significantly more.

    Args:
      times: seconds per call of each program, by name; the first one is the base.
      refused: programs that must not be chosen, and why.

    Raises:
      ValueError: programs were timed in different numbers of rounds.
    """
    (base, own), *_ = times.items()
    rounds = len(own.process)
    for name, other in times.items():
        if (len(other.process), len(other.wall)) != (rounds, rounds):
            raise ValueError(f"times[{name!r}] has {len(other.process)} rounds: expected {rounds}")
    others = [name for name in times if name != base and name not in refused]
    why = "".join(f"; {name} is refused: {refused[name]}" for name in times if name in refused)
    if not others:
        return Choice(base, f"there is nothing else to choose{why}")
    if rounds < FEWEST_TEST_ROUNDS:
        return Choice(
            base,
            f"{rounds} round{' is' if rounds == 1 else 's are'} too few to tell what is faster: "
            f"{FEWEST_TEST_ROUNDS} at least",
        )
    even, odd = slice(0, None, 2), slice(1, None, 2)
    fastest = min(others, key=lambda name: np.median(_logs(times[name].process, own.process, even)))
    if np.median(_logs(times[fastest].process, own.process, even)) >= 0:
        return Choice(base, f"nothing is faster{why}")
    process = _logs(times[fastest].process, own.process, odd)
    wall = _logs(times[fastest].wall, own.wall, odd)
    p = sign_flip_p(process)
    if process.mean() >= 0 and p < SIGNIFICANCE:
        return Choice(base, f"{fastest} is slower in the rounds that judge (p = {p:.2g}){why}")
    if not (process.mean() < 0 and p < SIGNIFICANCE):
        return Choice(base, f"{fastest} is not significantly faster (p = {p:.2g}){why}")
    p_wall = sign_flip_p(wall)
    if wall.mean() > 0 and p_wall < SIGNIFICANCE:
        return Choice(base, f"{fastest} takes significantly more wall time (p = {p_wall:.2g}){why}")
    return Choice(fastest, f"it is significantly faster than {base} (p = {p:.2g}){why}")


def sign_flip_p(differences: Shaped[np.ndarray, " rounds"]) -> float:
    """Return the two-sided p-value of a sign-flip test that differences are around zero.

    The statistic is the sum. Under the null hypothesis each difference is as likely as its
    negative. Up to 13 differences all sign vectors are tried. Beyond that 9 999 are drawn, always
    the same ones, and the observed one is counted among them.

    Args:
      differences: paired differences, such as log ratios of times. `[rounds]`, at least two
    """
    from scipy.stats import permutation_test  # slow import

    found = permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=9_999, rng=0
    )
    return float(found.pvalue)


def _logs(times: np.ndarray, base: np.ndarray, rounds: slice) -> np.ndarray:
    """Return log ratios of times in some rounds."""
    tiny = np.finfo(float).tiny  # a clock that ticks slowly may say zero
    return np.log(np.maximum(times[rounds], tiny) / np.maximum(base[rounds], tiny))
