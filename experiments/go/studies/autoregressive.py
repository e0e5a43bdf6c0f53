"""Compare decisions drawn group after group, as by an autoregressive policy, with joint draws.

    python -m experiments.go.studies.autoregressive

Both ways draw from one policy, only for groups of its coarsest level. The policy was trained to
decide all groups at once. In a joint draw, each group observes the best decision so far. In a
sequential draw, each group also observes the new values of the groups before it: p(y^t | G) = Π_g
p(y_g^t | h_G, y_<g^t, y^(t-1)). Both simulate the best decision once in each iteration.

Searches are as in `experiments.go.studies.validate`. The default iterations cost as many
evaluations as 5 and 20 iterations of the whole policy.

The time to draw one decision is measured on random graphs. These have no weights, and so only one
group on the coarsest level; the other levels are timed. A sequential draw reads the features of the
whole graph again for each group. Times exclude simulation and embedding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.progress import track

from experiments.go import training as trainer
from experiments.go.case import OBJECTIVE
from experiments.go.studies import validate
from experiments.harness import command_line, tables
from experiments.harness.command_line import UsageError, at_least
from experiments.throughput.timing import machine
from gopt.cost.hardware import p100s
from gopt.cost.schedule.op_times import OpTimes
from gopt.cost.schedule.problem import Problem, prepare
from gopt.measure.timing import seconds
from gopt.sources import synthetic
from gopt.systems import go


@dataclass(frozen=True)
class Settings(validate.SearchSettings):
    """Settings of the comparison.

    Attributes:
      weights: weights of a policy that places ops; by default the one that ships.
      ops: sizes of the graphs on which drawing is timed, on two devices.
      folder: folder of tables and all figures.
    """

    iterations: tuple[int, ...] = at_least(1, (14, 56))
    weights: Path | None = None
    ops: tuple[int, ...] = at_least(1, (1000, 10_000, 80_000))
    folder: Path = Path("runs/go/autoregressive")


class Seen(NamedTuple):
    """Observation of a policy, without its earlier decisions.

    Attributes:
      params: parameters of the policy.
      embedding: embedding of the graph.
      inputs: inputs of GO.
      timing: simulated times of ops in the best decision so far.
    """

    params: Any
    embedding: go.Embedding
    inputs: go.Inputs
    timing: OpTimes


def said(seen: Seen, decision: go.OpDecisions, kind: int, policy: go.Settings) -> jax.Array:
    """Return the policy's logits for a kind of moves around a decision, `[K, 1 + V]`."""
    # Run times of ops are not simulated again.
    timing = seen.timing._replace(device=decision.placement)
    groups = go.observe(seen.inputs, decision, timing, settings=policy)
    return go.moves(seen.params, seen.embedding, groups, settings=policy)[kind].logits


def at_once(
    key: jax.Array, seen: Seen, decision: go.OpDecisions, *, kind: int, policy: go.Settings
) -> go.OpDecisions:
    """Return a decision with new values for groups that are drawn independently, `[N]`."""
    action = go.sample(key, said(seen, decision, kind, policy), 1)
    return _moved(seen, decision, action, kind, policy)


def in_sequence(
    key: jax.Array, seen: Seen, decision: go.OpDecisions, *, kind: int, policy: go.Settings
) -> go.OpDecisions:
    """Return a decision with new values for groups, each drawn given those before it, `[N]`.

    If no group is moved in the end, one move is drawn by the probabilities of moves, as in
    `go.sample`.
    """
    count = min(policy.levels[policy.moves[kind][1]], len(seen.inputs.share))

    def visit(
        now: go.OpDecisions, row: tuple[jax.Array, jax.Array]
    ) -> tuple[go.OpDecisions, jax.Array]:
        group, key = row
        chosen = jax.random.categorical(key, said(seen, now, kind, policy)[group])
        action = jnp.zeros((1, count), jnp.int32).at[0, group].set(chosen)
        return _moved(seen, now, action, kind, policy), chosen

    rows = jnp.arange(count), jax.random.split(jax.random.fold_in(key, 1), count)
    drawn, chosen = jax.lax.scan(visit, decision, rows)
    # All groups stay, except for one.
    settled = said(seen, decision, kind, policy).at[:, 0].set(-go.NEVER)
    action = go.sample(jax.random.fold_in(key, 0), settled, 1)
    other = _moved(seen, decision, action, kind, policy)
    return jax.tree.map(lambda x, y: jnp.where((chosen == 0).all(), y, x), drawn, other)


def _moved(
    seen: Seen, decision: go.OpDecisions, action: jax.Array, kind: int, policy: go.Settings
) -> go.OpDecisions:
    """Return a decision after an action `[1, K]` on the groups of a kind of moves."""
    task, level = policy.moves[kind]
    name = policy.tasks[task]
    moved = go.apply_action(seen.inputs, decision, action, name=name, level=level)
    return jax.tree.map(lambda x: x[0], moved)


Draw = Callable[..., go.OpDecisions]
DRAWS: dict[str, Draw] = {"at once": at_once, "one after another": in_sequence}


def rollout(
    key: jax.Array,
    params: Any,
    inputs: go.Inputs,
    start: go.State,
    simulator: go.Simulator,
    *,
    iterations: int,
    settings: go.Settings,
    draw: Draw,
) -> tuple[go.State, None, jax.Array]:
    """Return the best decision after iterations, None, and costs after each, as `go.rollout`.

    Each iteration draws samples of all tasks on the coarsest level around the best decision so far.
    """
    embedding = go.embed(params, inputs, settings=settings)
    kinds = [kind for kind, (_, level) in enumerate(settings.moves) if level == 0]

    def step(best: go.State, key: jax.Array) -> tuple[go.State, jax.Array]:
        seen = Seen(params, embedding, inputs, simulator.timing(best.decision))

        def samples(kind: int) -> go.OpDecisions:
            one = partial(draw, seen=seen, decision=best.decision, kind=kind, policy=settings)
            return jax.vmap(one)(jax.random.split(jax.random.fold_in(key, kind), settings.samples))

        drawn = jax.tree.map(lambda *x: jnp.concatenate(x), *map(samples, kinds))
        best = go.keep_best(best, drawn, simulator.cost(drawn))
        return best, best.cost

    best, costs = jax.lax.scan(step, start, jax.random.split(key, iterations))
    return best, None, costs


def taken(params: Any, ops: int, policy: go.Settings, settings: Settings) -> dict[str, float]:
    """Return the CPU time of drawing one decision on a graph, s, by kind and way of drawing."""
    graph = synthetic.layered(settings.seed, ops)
    problem = prepare(graph, p100s(2))
    inputs = jax.tree.map(jnp.asarray, go.inputs(graph, problem, settings=policy))
    start = trainer.begin(problem, jnp.zeros(problem.shape.ops, jnp.int32), None, None).decision

    @jax.jit
    def look(problem: Problem, params: Any, inputs: go.Inputs, start: go.OpDecisions) -> Seen:
        timing = go.simulator_of(problem, OBJECTIVE).timing(start)
        return Seen(params, go.embed(params, inputs, settings=policy), inputs, timing)

    seen, key = look(problem, params, inputs, start), jax.random.key(settings.seed)
    calls: dict[str, Callable[[], Any]] = {}
    for kind, (task, level) in enumerate(policy.moves):
        if task == 0 and level > 0:
            for name, draw in DRAWS.items():
                run = jax.jit(partial(draw, kind=kind, policy=policy))
                label = f"{policy.levels[level]} groups at most, {name}"
                calls[label] = partial(run, key, seen, start)
    return seconds(calls, repeats=3)


def main(settings: Settings) -> None:
    """Compare both ways, and print and save their gains and times.

    Raises:
      UsageError: the policy does not place ops, it fuses ops, so that ops follow their kernels, or
        it has only one level.
    """
    params, policy = go.load(settings.weights)
    if "placement" not in policy.tasks or "fusion" in policy.tasks or len(policy.levels) < 2:
        raise UsageError(
            f"the policy decides {policy.tasks} on levels {policy.levels}: expected placement, no "
            "fusion, and two levels at least"
        )
    pools = trainer.pools(trainer.VALIDATION, settings.devices, policy)
    search = partial(
        validate.gains,
        *(jax.random.key(settings.seed), params, pools, policy),
        iterations=settings.iterations,
        seeds=settings.seeds,
    )
    ways = track(DRAWS.items(), "searches")
    found = {name: search(run=partial(rollout, draw=draw)) for name, draw in ways}
    validate.report(settings, 1 + policy.samples * len(policy.tasks), found)
    times = [taken(params, ops, policy, settings) for ops in track(settings.ops, "seconds")]
    tables.show(
        f"s of CPU time to draw one decision, least of three rounds; {machine()}",
        ("drawn", *(f"{ops} ops" for ops in settings.ops)),
        [(label, *(f"{each[label]:.4f}" for each in times)) for label in times[0]],
        settings.folder / "seconds.md",
    )


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
