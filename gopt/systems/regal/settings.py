"""Settings of REGAL, and what a policy may say of an op."""

from dataclasses import dataclass

import numpy as np

# What the policy says of an op, by the part of the search that it leads. Placement: where it lies
# in a plane in which devices are directions, and how wide the Betas of its devices are. Scheduling:
# mean and deviation of the Beta of its priority. Then the chance that a gene comes from the elite
# parent, and how far the Betas of the transfers of what it makes are from that of the priority of
# the first reader.
PARTS = {
    "placement": ("x", "y", "device_deviation"),
    "scheduling": ("priority", "priority_deviation"),
    "elite_bias": ("elite_bias",),
    "transfers": ("transfer", "transfer_deviation"),
}
PLACES = tuple(place for places in PARTS.values() for place in places)

# Places nearest to what standard BRKGA does: means of 1/2, the widest deviations, a bias of 0.7.
STANDARD = dict.fromkeys(PLACES, 0.0)
STANDARD |= {"device_deviation": 1.0, "priority": 0.5, "priority_deviation": 1.0}
STANDARD |= {"elite_bias": 0.4}


NETWORKS = ("message_passing", "recurrent")  # the second reads a graph as a sequence: GAS
HEADS = ("independent", "autoregressive")


@dataclass(frozen=True)
class Settings:
    """Sizes of the policy, how it is searched from, where it starts, and how it is trained.

    Attributes:
      parts: of the search that the policy leads, some of `PARTS`; the rest is, to a level, as in
        standard BRKGA, but that transfers go when their first reader has its turn.
      network: that embeds ops, one of `NETWORKS`.
      head: whether the places of an op depend on those of earlier ops, one of `HEADS`. Noise does
        not: it is shared by ops, and what an op took would tell what later ones take.
      bins: levels of the means, and of the deviations, of the Betas.
      width: size of embeddings.
      rounds: rounds of message passing.
      trust: share of the first population, and of the mutants, that is drawn from the Betas; the
        rest is uniform, so that an action that is wrong for a graph costs little.
      lean: how far the means of devices part at first, towards the sides of the guide.
      follow: how far the means of priorities follow the order of the guide at first.
      heavy: share of all bytes with which the proposals for an op are narrowed 1/e as much (see
        `loosen_heavy`). In graphs of thirty tensors and less they hardly are.
      device_deviation: place of the first deviations of devices among the levels, in 0..1.
      priority_deviation: that of priorities.
      exploration: root mean square of the noise on the places while training, in all directions;
        ops do not move together where only how they differ counts, so that it is less there.
      quiet: differences of the rewards of one graph that count for little in training.
      learning_rate: of Adam, at first.
      steps: gradient steps of training, over which the learning rate falls to zero evenly.
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
    heavy: float = 0.03
    device_deviation: float = 0.9
    priority_deviation: float = 0.3
    exploration: float = 0.1
    quiet: float = 2e-3
    learning_rate: float = 1e-3
    steps: int = 120

    def __post_init__(self) -> None:
        unknown = sorted(set(self.parts) - set(PARTS))
        if unknown or not self.parts:
            raise ValueError(f"parts is {self.parts}: expected some of {', '.join(PARTS)}")
        for name, known in (("network", NETWORKS), ("head", HEADS)):
            if getattr(self, name) not in known:
                expected = ", ".join(known)
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected one of {expected}")
        for name in ("bins", "width", "rounds", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 at least")
        if not 0 <= self.trust <= 1:
            raise ValueError(f"trust is {self.trust}: expected 0..1")
        for name in ("heavy", "exploration", "quiet"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: expected more than 0")


def is_led(settings: Settings) -> np.ndarray:
    """Returns which places count, bool `[L]`."""
    return np.array([part in settings.parts for part, places in PARTS.items() for _ in places])
