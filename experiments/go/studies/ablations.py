"""Ablate GO: compare policies trained without some part, on models that none was trained on.

    python -m experiments.go.studies.ablations

Each policy is trained several times, like the one that ships, but for fewer steps. All search the
models of `experiments.go.studies.validate`, with the same random keys.

Two more searches use the unchanged policy: one moves one group in each decision, the other draws
all decisions of a budget at once from the start.

Two variants change the initial parameters, and train for as many steps beforehand. One policy
imitates heuristics first (`experiments.go.studies.imitation`); the other starts from a network
trained on priorities alone.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.go import training as trainer
from experiments.go.studies import imitation, validate
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


def scheduled_before(
    training: trainer.Training,
    policy: go.Settings,
    seed: int,
    folder: Path,
    every: Sequence[go.Searches],
) -> Any:
    """Return random heads on a network that was trained for as many steps on priorities alone."""
    alone = dataclasses.replace(policy, tasks=("scheduling",))
    trained, _ = trainer.train(training, alone, seed, folder)
    heads = trainer.initial(jax.random.fold_in(jax.random.key(seed), 0), every, policy)["params"]
    network = {name: x for name, x in trained["params"].items() if not name.startswith("head_")}
    return {"params": heads | network}


class Part(NamedTuple):
    """Differences of a policy from the one that ships.

    Attributes:
      changes: changed settings.
      simulate: function that makes the simulator that the policy observes.
      before: function that returns initial parameters for training.
      searches_before: whether the policy also searches with these initial parameters.
    """

    changes: dict[str, Any]
    simulate: trainer.Simulate = go.simulator_of
    before: Callable[..., Any] | None = None
    searches_before: bool = False


AS_IT_IS = "as it is"
PARTS = {
    AS_IT_IS: Part({}),
    "no attention of a task's own": Part(dict(task_layers=0)),
    "no attention": Part(dict(layers=0, task_layers=0)),
    "no superposition": Part(dict(superposition=False)),
    "no schedule": Part({}, blind),
    "warm start": Part({}, before=imitation.imitated, searches_before=True),
    "priorities first": Part({}, before=scheduled_before),
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
    pools = partial(trainer.pools, policy=unchanged, starts=training.starts)
    validation = pools(trainer.VALIDATION, settings.devices)
    every = pools(trainer.TRAIN, training.devices)
    found: dict[str, list[np.ndarray]] = {}

    def search(name: str, params: Any, simulate: trainer.Simulate, *ways: Any) -> None:
        run = partial(validate.gains, key, params, validation, simulate=simulate)
        each = [run(policy, iterations=steps, seeds=settings.seeds) for policy, steps in ways]
        found.setdefault(name, []).append(np.concatenate(each, -1))

    for part in settings.parts:
        changes, simulate, before, searches_before = PARTS[part]
        policy = dataclasses.replace(unchanged, **changes)
        usual = (policy, settings.iterations)
        for seed in range(settings.trainings):
            folder, begun = settings.folder / part / str(seed), None
            if before:
                begun = before(training, policy, seed, folder / "before", every)
            if searches_before:
                search(f"{part}, not trained since", begun, simulate, usual)
            params, _ = trainer.train(training, policy, seed, folder, every, simulate, begun)
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
        settings.training.starts,
        settings.policy.evaluations_per_iteration,
        {name: np.array(trainings) for name, trainings in found.items()},
        cell,
        f"mean and range of {settings.trainings} trainings",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
