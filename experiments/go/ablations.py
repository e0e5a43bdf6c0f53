"""Ablate GO: compare policies trained without some part, on models that none was trained on.

    python -m experiments.go.ablations

Each policy is trained several times, like the one that ships, but for fewer steps. All search the
models of `experiments.go.validate`, with the same random keys.

Two more searches use the unchanged policy: one moves one group in each decision, the other draws
all decisions of a budget at once from the start.

Two variants change the initial parameters, and train for as many steps beforehand. One policy
imitates heuristics first (`experiments.go.imitation`); the other starts from a network trained on
priorities alone.
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

from experiments.go import imitation, validate
from experiments.go import training as trainer
from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from gopt.cost.schedule.op_times import OpTimes
from gopt.systems import go


def blind(problem: Any, objective: str, order: Any = None) -> go.Simulator:
    """Return a simulator that hides run times: all ops run at once, and none is critical."""

    def timing(decision: go.OpDecisions) -> OpTimes:
        device, zeros = decision.placement, jnp.zeros_like(decision.placement)
        never = dict.fromkeys(("arrived", "start", "end", "local_slack"), zeros)
        transfer_arrival = jnp.zeros((problem.shape.tensors, problem.num_devices), jnp.int32)
        rest = {"device": device, "slack": zeros + 1, "transfer_arrival": transfer_arrival}
        return OpTimes(**never, **rest, makespan=jnp.int32(1))

    return go.Simulator(go.simulator_of(problem, objective, order).cost, timing)


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
    first = jax.tree.map(lambda x: x[0], every[0].inputs)
    heads = go.init(jax.random.fold_in(jax.random.key(seed), 0), first, settings=policy)
    network = {
        name: part for name, part in trained["params"].items() if not name.startswith("head_")
    }
    return {"params": heads["params"] | network}


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
ONE_GROUP, ONE_SHOT = "one group at a time", "one shot"  # variants of the search


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the comparison.

    Attributes:
      parts: names of variants from `PARTS`; by default all.
      trainings: trainings of each policy.
      devices: numbers of devices.
      iterations: iterations of a search after which gains are shown.
      seeds: searches of each graph and start, with the same random keys for each policy.
      seed: seed of everything random.
      folder: folder of policies, the table and all gains.
      policy: settings of the unchanged policy.
      training: settings of all trainings.
    """

    parts: tuple[str, ...] = choice(PARTS)
    trainings: int = at_least(1, 2)
    devices: tuple[int, ...] = at_least(1, (2, 4))
    iterations: tuple[int, ...] = at_least(1, (5, 20, 50))
    seeds: int = at_least(1, 4)
    seed: int = 0
    folder: Path = Path("runs/go/ablations")
    policy: go.Settings = field(
        default_factory=lambda: go.Settings(tasks=("placement", "scheduling"))
    )
    training: trainer.Training = field(
        default_factory=lambda: trainer.Training(steps=64, checkpoint_every=16)
    )


Search = Callable[..., np.ndarray]  # parameters, policy and simulator to log ratios, [S, R, T]


def searches(settings: Settings) -> dict[str, Search]:
    """Return searches of all validation models, by name."""
    starts = settings.training.starts
    pools = trainer.pools(trainer.VALIDATION, settings.devices, settings.policy, starts)
    key = jax.random.key(settings.seed)
    only_one = settings.policy.changes * 1e-6  # one of several movable groups always moves

    def gains(
        params: Any, policy: go.Settings, simulate: trainer.Simulate, iterations: Sequence[int]
    ) -> np.ndarray:
        run = partial(validate.gains, key, iterations=iterations, seeds=settings.seeds)
        return np.concatenate([run(params, pool, policy, simulate=simulate) for pool in pools], 1)

    def one_group(params: Any, policy: go.Settings, simulate: trainer.Simulate) -> np.ndarray:
        alone = dataclasses.replace(policy, changes=only_one)
        return gains(params, alone, simulate, settings.iterations)

    def one_shot(params: Any, policy: go.Settings, simulate: trainer.Simulate) -> np.ndarray:
        each = [
            dataclasses.replace(policy, samples=steps * policy.samples)
            for steps in settings.iterations
        ]
        return np.concatenate([gains(params, many, simulate, (1,)) for many in each], -1)

    return {
        AS_IT_IS: partial(gains, iterations=settings.iterations),
        ONE_GROUP: one_group,
        ONE_SHOT: one_shot,
    }


def main(settings: Settings) -> None:
    """Run the comparison."""
    store.save_settings(settings.folder, settings)
    ways = searches(settings)
    training = settings.training
    every = trainer.pools(trainer.TRAIN, training.devices, settings.policy, training.starts)
    found: dict[str, list[np.ndarray]] = {}
    for part in settings.parts:
        changes, simulate, before, searches_before = PARTS[part]
        policy = dataclasses.replace(settings.policy, **changes)
        for seed in range(settings.trainings):
            folder, begun = settings.folder / part / str(seed), None
            if before:
                begun = before(training, policy, seed, folder / "before", every)
            if searches_before:
                gained = ways[AS_IT_IS](begun, policy, simulate)
                found.setdefault(f"{part}, not trained since", []).append(gained)
            params, _ = trainer.train(training, policy, seed, folder, every, simulate, begun)
            for way, search in ways.items() if part == AS_IT_IS else [(part, ways[AS_IT_IS])]:
                found.setdefault(way, []).append(search(params, policy, simulate))
            report(settings, found)
        jax.clear_caches()  # the programs of several policies exceed the memory maps of a process
    first = jax.tree.map(lambda x: x[0], every[0].inputs)
    params = go.init(jax.random.key(settings.seed), first, settings=settings.policy)
    found["untrained"] = [ways[AS_IT_IS](params, settings.policy, go.simulator_of)]
    report(settings, found)
    print(f"saved in {settings.folder}")


def report(settings: Settings, found: dict[str, list[np.ndarray]]) -> None:
    """Print and save the gains of policies, log ratios `[S, R, T]` for each training."""
    each = settings.policy.evaluations_per_iteration
    evaluations = [1 + steps * each for steps in settings.iterations]
    starts = settings.training.starts
    rows, many = [], len(starts)
    for name, trainings in found.items():
        by_start = [[x[:, k::many] for k in range(many)] for x in trainings]
        shorter = 100 * (1 - np.exp(np.nanmean(by_start, (2, 3))))  # [trainings, starts, T]
        columns = shorter.reshape(len(trainings), -1).T
        rows.append([name, *(f"{x.mean():.1f} ({x.min():.1f} to {x.max():.1f})" for x in columns)])
    title = (
        f"{validate.title_of(settings.devices)} and {settings.seeds} searches, mean and range of "
        f"{settings.trainings} trainings"
    )
    heads = ["policy", *(f"{start}, {n}" for start in starts for n in evaluations)]
    tables.show(title, heads, rows, settings.folder / "table.md")
    store.save_json(settings.folder / "gains.json", {"evaluations": evaluations, "log": found})


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
