"""Settings of HDP: sizes of its networks, how it samples, how it is trained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Sizes and settings: the published ones, but for some; `PUBLISHED` has all of those.

    Ours are `failing`, and by trials on two graphs of 3700 ops and two devices `learning_rate`,
    `bound` and `width` (published: 0.1, 5 and 512), `spread` (published: none, that is 1), and that
    there is no noise (Grappler: 0.5). Where `spread` is small, what a group is changes with each
    draw; where `bound` is large, what is drawn soon does not change at all.

    Attributes:
      groups: how many groups of ops there are at most.
      per_device: how many groups there are at most for each device.
      hidden: size of the hidden layer of the grouper.
      spread: by which the grouper's logits are multiplied; about their first deviation.
      width: size of the recurrent states of the placer.
      bound: logits of devices are between -bound and bound (the "tanh constant").
      temperature: by which logits of devices are divided before they are bounded.
      noise: deviation of what is added to logits, in units of their root mean square.
      groupings: how many times ops are grouped in a step.
      placements: how many times each grouping is placed.
      decay: of the moving average of rewards that is the baseline.
      failing: what a placement without a finite cost counts, in costs of the first placements.
      learning_rate: of Adam.
      norm: to which the gradient is clipped.
    """

    groups: int = 256
    per_device: int = 20
    hidden: int = 64
    spread: float = 10.0
    width: int = 256
    bound: float = 2.0
    temperature: float = 10.0
    noise: float = 0.0
    groupings: int = 1
    placements: int = 4
    decay: float = 0.9
    failing: float = 100.0
    learning_rate: float = 0.001
    norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("groups", "per_device", "hidden", "groupings", "placements"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 at least")
        if self.width < 2 or self.width % 2:
            raise ValueError(f"width is {self.width}: expected an even number, one half each way")
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay is {self.decay}: expected 0 at least and less than 1")
        if self.noise < 0:
            raise ValueError(f"noise is {self.noise}: expected 0 at least")
        for name in ("spread", "bound", "temperature", "failing", "learning_rate", "norm"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: expected more than 0")

    def groups_on(self, devices: int) -> int:
        """Returns how many groups of ops there are on a machine of some devices, `K`."""
        return min(self.groups, self.per_device * devices)


# Of the paper, and the noise of Grappler, which stops it after 750 steps; here it goes on.
PUBLISHED = Settings(spread=1.0, width=512, bound=5.0, noise=0.5, learning_rate=0.1)
