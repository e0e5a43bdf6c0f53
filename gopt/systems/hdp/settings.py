"""Settings of HDP: sizes of its networks, sampling, and training."""

from dataclasses import dataclass

from gopt.learning.settings import MAX_SIZE, check_numbers


@dataclass(frozen=True)
class Settings:
    """Sizes and settings. Most are as published; `PUBLISHED` has all published values.

    `infeasible_cost` is our choice. Trials on two graphs of 3700 ops and two devices chose
    `learning_rate`, `bound` and `width` (published: 0.1, 5 and 512), `spread` (published: none,
    so 1), and zero noise (Grappler: 0.5). With a small `spread`, groups change with each draw. With
    a large `bound`, draws soon stop changing.

    Attributes:
      groups: largest number of groups of ops.
      per_device: largest number of groups for each device.
      hidden: size of the hidden layer of the grouper.
      spread: factor of the grouper's logits; about their initial standard deviation.
      width: size of the recurrent states of the placer.
      bound: logits of devices are between -bound and bound (the "tanh constant").
      temperature: divisor of logits of devices before they are bounded.
      noise: standard deviation of the noise of logits, in units of their root mean square.
      groupings: number of times that ops are grouped in a step.
      placements: number of times that each grouping is placed.
      decay: decay of the moving average of rewards that is the baseline.
      infeasible_cost: cost of a placement without a finite cost, as a multiple of the mean cost of
        the first placements.
      learning_rate: Adam learning rate.
      max_gradient_norm: largest global norm of the gradient, which is clipped to it.
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
    infeasible_cost: float = 100.0
    learning_rate: float = 0.001
    max_gradient_norm: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(self, "groups", "per_device", "hidden", at_least=1, at_most=MAX_SIZE)
        check_numbers(self, "groupings", "placements", at_least=1)
        check_numbers(self, "width", at_least=2, at_most=MAX_SIZE)
        if self.width % 2:
            raise ValueError(f"width is {self.width}: expected an even number, one half each way")
        check_numbers(self, "decay", at_least=0, below=1)
        check_numbers(self, "noise", at_least=0)
        check_numbers(self, "spread", "bound", "temperature", above=0)
        check_numbers(self, "infeasible_cost", "learning_rate", "max_gradient_norm", above=0)

    def groups_on(self, devices: int) -> int:
        """Return the number of groups of ops on a machine, `K`, from its number of devices."""
        return min(self.groups, self.per_device * devices)


# Settings of the paper, and the noise of Grappler, which stops it after 750 steps; here it stays.
PUBLISHED = Settings(spread=1.0, width=512, bound=5.0, noise=0.5, learning_rate=0.1)
