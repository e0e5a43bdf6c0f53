"""Ablate GO: compare policies trained without some part, on models that none was trained on.

    python -m experiments.go.studies.ablations

Each policy is trained several times, like the one that ships, but for fewer steps. All search the
models of `experiments.go.studies.validate`, with the same random keys.

Two more searches use the unchanged policy: one moves one group in each decision, the other draws
all decisions of a budget at once from the start.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.go import training as trainer
from experiments.go.studies import validate
from experiments.harness import command_line
from experiments.harness.command_line import at_least, choice
from gopt.cost.schedule.op_times import OpTimes
from gopt.systems import go


def blind(problem: Any, objective: str, order: Any = None) -> go.Simulator:
    """Return a simulator that hides run times: all ops run at once, and none is critical."""
    simulator = go.simulator_of(problem, objective, order)

    def timing(decision: go.OpDecisions) -> OpTimes:
        shapes = jax.eval_shape(simulator.timing, decision)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        blank = {"slack": zeros.slack + 1, "makespan": zeros.makespan + 1}
        return zeros._replace(device=decision.placement, **blank)

    return go.Simulator(simulator.cost, timing)


AS_IT_IS = "as it is"
# By part, the changed settings of the policy and the maker of the simulator that it observes.
PARTS: dict[str, tuple[dict[str, Any], trainer.Simulate]] = {
    AS_IT_IS: ({}, go.simulator_of),
    "no attention of a task's own": (dict(task_layers=0), go.simulator_of),
    "no attention": (dict(layers=0, task_layers=0), go.simulator_of),
    "no superposition": (dict(superposition=False), go.simulator_of),
    "no schedule": ({}, blind),
}


@dataclass(frozen=True)
class Settings(validate.SearchSettings):
    """Settings of the comparison.

    Attributes:
      parts: names of variants from `PARTS`; by default all.
      trainings: trainings of each policy.
      folder: folder of policies, the table and all gains.
      policy: settings of the unchanged policy.
      training: settings of all trainings.
    """

    parts: tuple[str, ...] = choice(PARTS)
    trainings: int = at_least(1, 2)
    folder: Path = Path("runs/go/ablations")
    policy: go.Settings = field(
        default_factory=lambda: go.Settings(tasks=("placement", "scheduling"))
    )
    training: trainer.Training = field(
        default_factory=lambda: trainer.Training(steps=64, checkpoint_every=16)
    )


def searches(
    policy: go.Settings, iterations: tuple[int, ...]
) -> dict[str, list[tuple[go.Settings, tuple[int, ...]]]]:
    """Return the policies and iterations of each way to search with the unchanged policy."""
    alone = dataclasses.replace(policy, changes=policy.changes * 1e-6)  # one group always moves
    many = [dataclasses.replace(policy, samples=steps * policy.samples) for steps in iterations]
    return {
        AS_IT_IS: [(policy, iterations)],
        "one group at a time": [(alone, iterations)],
        "one shot": [(each, (1,)) for each in many],
    }


def main(settings: Settings) -> None:
    """Run the comparison."""
    training, unchanged, key = settings.training, settings.policy, jax.random.key(settings.seed)
    pools = partial(trainer.pools, policy=unchanged)
    validation = pools(trainer.VALIDATION, settings.devices)
    every = pools(trainer.TRAIN, training.devices)
    found: dict[str, list[np.ndarray]] = {}

    def search(name: str, params: Any, simulate: trainer.Simulate, *ways: Any) -> None:
        run = partial(validate.gains, key, params, validation, simulate=simulate)
        each = [run(policy, iterations=steps, seeds=settings.seeds) for policy, steps in ways]
        found.setdefault(name, []).append(np.concatenate(each, -1))

    for part in settings.parts:
        changes, simulate = PARTS[part]
        policy = dataclasses.replace(unchanged, **changes)
        usual = (policy, settings.iterations)
        for seed in range(settings.trainings):
            folder = settings.folder / part / str(seed)
            params, _ = trainer.train(training, policy, seed, folder, every, simulate)
            ways = searches(*usual) if part == AS_IT_IS else {part: [usual]}
            for name, each in ways.items():
                search(name, params, simulate, *each)
            report(settings, found)
        jax.clear_caches()  # the programs of several policies exceed the memory maps of a process
    untrained = trainer.initial(key, every, unchanged)
    search("untrained", untrained, go.simulator_of, (unchanged, settings.iterations))
    report(settings, found)


def report(settings: Settings, found: dict[str, list[np.ndarray]]) -> None:
    """Print and save the gains of policies, log ratios `[S, R, T]` for each training."""

    def cell(ratio: np.ndarray) -> str:
        each = 100 * (1 - np.exp(np.nanmean(ratio, (1, 2))))
        return f"{each.mean():.1f} ({each.min():.1f} to {each.max():.1f})"

    validate.report(
        settings,
        settings.policy.evaluations_per_iteration,
        {name: np.array(trainings) for name, trainings in found.items()},
        cell,
        f"mean and range of {settings.trainings} trainings",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
