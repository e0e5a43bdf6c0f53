"""Settings of REGAL, and the outputs of a policy for an op."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from gopt.learning.settings import (
    MAX_LAYERS,
    MAX_SIZE,
    check_choice,
    check_numbers,
)

# Outputs of the policy for an op, by the part of the search that they guide. Placement: a point in
# a plane in which devices are directions, and the width of the Betas of its devices. Scheduling:
# mean and deviation of the Beta of its priority. Elite bias: the chance that a gene comes from the
# elite parent. Transfers: shifts of the Betas of its tensors' transfers against the Beta of the
# first reader's priority.
PARTS = {
    "placement": ("x", "y", "device_deviation"),
    "scheduling": ("priority", "priority_deviation"),
    "elite_bias": ("elite_bias",),
    "transfers": ("transfer", "transfer_deviation"),
}
PLACES = tuple(place for places in PARTS.values() for place in places)

# Places nearest to standard BRKGA: means of 1/2, the widest deviations, a bias of 0.7.
STANDARD = dict.fromkeys(PLACES, 0.0)
STANDARD |= {"device_deviation": 1.0, "priority": 0.5, "priority_deviation": 1.0}
STANDARD |= {"elite_bias": 0.4}


NETWORKS = ("message_passing", "recurrent")  # "recurrent" reads a graph as a sequence, as GAS does
HEADS = ("independent", "autoregressive")


@dataclass(frozen=True)
class Settings:
    """Settings of the policy, its search, its initial state, and its training.

    Attributes:
      parts: parts of the search that the policy guides, some of `PARTS`. The others are as in
        standard BRKGA, up to quantisation; but transfers have the priority of their first reader.
      network: network that embeds ops, one of `NETWORKS`.
      head: whether the places of an op depend on earlier ops' places, one of `HEADS`. Noise does
        not: ops share it, so the sample of one op would reveal the samples of later ones.
      bins: levels of the means, and of the deviations, of the Betas.
      width: size of embeddings.
      rounds: rounds of message passing.
      trust: share of the first population, and of the mutants, that is drawn from the Betas. The
        rest is uniform, so that a wrong action for a graph costs little.
      lean: initial offset of the means of devices towards the sides of the guide.
      follow: initial weight of the guide's order in the means of priorities.
      heavy_share: share of all bytes that an op reads or makes at which its guidance is reduced by
        a factor of e (see `loosen_heavy`). In graphs of up to thirty tensors, ops are hardly
        guided.
      device_deviation: initial place of the deviations of devices among the levels, in 0..1.
      priority_deviation: initial place of the deviations of priorities among the levels, in 0..1.
      exploration: root mean square of the noise on the places in training, over all directions. It
        is lower where only differences between ops count, because ops do not move together there.
      advantage_floor: reward spread below which advantages of a graph are scaled down.
      learning_rate: initial Adam learning rate, decayed linearly to 0.
      steps: gradient steps of training, over which the learning rate falls.
    """

    parts: tuple[str, ...] = ("placement", "scheduling")
    network: str = "message_passing"
    head: str = "independent"
    bins: int = 16
    width: int = 64
    rounds: int = 4
    trust: float = 0.8
    lean: float = 0.3
    follow: float = 1.0
    heavy_share: float = 0.03
    device_deviation: float = 0.9
    priority_deviation: float = 0.3
    exploration: float = 0.1
    advantage_floor: float = 2e-3
    learning_rate: float = 1e-3
    steps: int = 120

    def __post_init__(self) -> None:
        unknown = sorted(set(self.parts) - set(PARTS))
        if unknown or not self.parts:
            raise ValueError(f"parts is {self.parts}: expected some of {', '.join(PARTS)}")
        check_choice(self, "network", NETWORKS)
        check_choice(self, "head", HEADS)
        check_numbers(self, "rounds", at_least=1, at_most=MAX_LAYERS)
        check_numbers(self, "bins", "width", at_least=1, at_most=MAX_SIZE)
        check_numbers(self, "steps", at_least=1)
        shares = ("trust", "device_deviation", "priority_deviation")
        check_numbers(self, *shares, at_least=0, at_most=1)
        check_numbers(self, "lean", "follow")
        check_numbers(self, "heavy_share", "exploration", "advantage_floor", above=0)
        check_numbers(self, "learning_rate", above=0)


def is_led(settings: Settings) -> Bool[np.ndarray, " L"]:
    """Return whether the policy guides each place, bool `[L]`."""
    return np.array([part in settings.parts for part, places in PARTS.items() for _ in places])
