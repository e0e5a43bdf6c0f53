"""Compare decisions drawn group after group, as by an autoregressive policy, with joint draws.

    python -m experiments.go.autoregressive --weights gopt/systems/go/policy.npz

Both ways draw from one policy, only for groups of its coarsest level. The policy was trained to
decide all groups at once. In a joint draw, each group observes the best decision so far. In a
sequential draw, each group also observes the new values of the groups before it: p(y^t | G) = Π_g
p(y_g^t | h_G, y_<g^t, y^(t-1)). Both simulate the best decision once in each iteration.

Searches are as in `experiments.go.validate`. The default iterations cost as many evaluations as 5
and 20 iterations of the whole policy. The groups that a draw moves are counted at the start of
searches.

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
import numpy as np
from rich.progress import track

from experiments.go import training as trainer
from experiments.go import validate
from experiments.go.case import OBJECTIVE
from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least
from experiments.throughput.timing import machine, measure
from gopt.cost.hardware import p100s
from gopt.cost.schedule.op_times import OpTimes
from gopt.cost.schedule.problem import Problem, prepare
from gopt.sources import synthetic
from gopt.systems import go

DRAWN = 16  # decisions of each row in which moved groups are counted


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the comparison.

    Attributes:
      weights: weights of a policy that places ops.
      devices: numbers of devices.
      iterations: iterations of a search after which gains are shown.
      seeds: searches of each graph and start, with the same random keys for both ways.
      ops: sizes of the graphs on which drawing is timed, on two devices.
      rounds: rounds of timing; the least time counts.
      seed: seed of everything random.
      folder: folder of tables and all figures.
    """

    weights: Path
    devices: tuple[int, ...] = (2, 4)
    iterations: tuple[int, ...] = (14, 56)
    seeds: int = 4
    ops: tuple[int, ...] = at_least(1, (1000, 10_000, 80_000))
    rounds: int = at_least(1, 3)
    seed: int = 0
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
    task, level = policy.moves[kind]
    action = go.sample(key, said(seen, decision, kind, policy), 1)
    return _one(
        go.apply_action(seen.inputs, decision, action, name=policy.tasks[task], level=level)
    )


def in_sequence(
    key: jax.Array, seen: Seen, decision: go.OpDecisions, *, kind: int, policy: go.Settings
) -> go.OpDecisions:
    """Return a decision with new values for groups, each drawn given those before it, `[N]`.

    If no group is moved in the end, one move is drawn by the probabilities of moves, as in
    `go.sample`.
    """
    (task, level), to_move = policy.moves[kind], jax.random.fold_in(key, 0)
    name = policy.tasks[task]
    count = min(policy.levels[level], len(seen.inputs.share))

    def visit(
        now: go.OpDecisions, row: tuple[jax.Array, jax.Array]
    ) -> tuple[go.OpDecisions, jax.Array]:
        group, key = row
        chosen = jax.random.categorical(key, said(seen, now, kind, policy)[group])
        action = jnp.zeros((1, count), jnp.int32).at[0, group].set(chosen)
        return _one(go.apply_action(seen.inputs, now, action, name=name, level=level)), chosen

    rows = jnp.arange(count), jax.random.split(jax.random.fold_in(key, 1), count)
    drawn, chosen = jax.lax.scan(visit, decision, rows)
    # All groups stay, except for one.
    settled = said(seen, decision, kind, policy).at[:, 0].set(-go.NEVER)
    action = go.sample(to_move, settled, 1)
    other = _one(go.apply_action(seen.inputs, decision, action, name=name, level=level))
    return jax.tree.map(lambda x, y: jnp.where((chosen == 0).all(), y, x), drawn, other)


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


def moved(params: Any, pool: go.Searches, draw: Draw, policy: go.Settings) -> float:
    """Return the mean number of groups that a placement draw moves at the start of searches."""
    task = policy.tasks.index("placement")
    kind = policy.moves.index((task, 0))

    def one(row: tuple[jax.Array, go.Searches]) -> jax.Array:
        key, (problem, inputs, order, start) = row
        timing = go.simulator_of(problem, OBJECTIVE, order).timing(start.decision)
        seen = Seen(params, go.embed(params, inputs, settings=policy), inputs, timing)
        drawn = draw(key, seen, start.decision, kind=kind, policy=policy)
        changed = (drawn.placement != start.decision.placement).astype(jnp.int32)
        return jnp.sum(jax.ops.segment_max(changed, inputs.group[0], policy.levels[0]) > 0)

    keys = jax.random.split(jax.random.key(0), DRAWN * len(pool.start.cost))
    again = jax.tree.map(lambda x: jnp.concatenate([x] * DRAWN), pool)
    counted = jax.jit(lambda *rows: jax.lax.map(one, rows))(keys, again)
    return float(counted.mean())


def seconds(params: Any, ops: int, policy: go.Settings, settings: Settings) -> dict[str, float]:
    """Return the CPU time of drawing one decision on a graph, s, by kind and way of drawing."""
    graph = synthetic.layered(settings.seed, ops)
    problem = prepare(graph, p100s(2))
    inputs = jax.tree.map(jnp.asarray, go.inputs(graph, problem, settings=policy))

    @jax.jit
    def look(problem: Problem, params: Any, inputs: go.Inputs) -> tuple[Seen, go.OpDecisions]:
        simulator = go.simulator_of(problem, OBJECTIVE)
        start = go.begin(problem, jnp.zeros(problem.shape.ops, jnp.int32), simulator).decision
        embedding = go.embed(params, inputs, settings=policy)
        return Seen(params, embedding, inputs, simulator.timing(start)), start

    seen, start = look(problem, params, inputs)
    calls: dict[str, Callable[[], Any]] = {}
    for kind, (task, level) in enumerate(policy.moves):
        if task == 0 and level > 0:
            for name, draw in DRAWS.items():
                run = jax.jit(partial(draw, kind=kind, policy=policy))
                label = f"{policy.levels[level]} groups at most, {name}"
                calls[label] = partial(run, jax.random.key(settings.seed), seen, start)
    spent = measure(calls, rounds=settings.rounds, seconds=60.0)
    return {label: timing.cpu for label, timing in spent.items()}


def policy_of(path: Path) -> tuple[Any, go.Settings]:
    """Return a policy.

    Raises:
      ValueError: the policy does not place ops, it fuses ops, so that ops follow their kernels, or
        it has only one level.
    """
    params, policy = go.load(path)
    if "placement" not in policy.tasks or "fusion" in policy.tasks or len(policy.levels) < 2:
        raise ValueError(
            f"{path} decides {policy.tasks} on levels {policy.levels}: expected placement, no "
            "fusion, and two levels at least"
        )
    return params, policy


def main(settings: Settings) -> None:
    """Compare both ways, and print and save their gains, moved groups and times."""
    params, policy = policy_of(settings.weights)
    same = {name: getattr(settings, name) for name in ("devices", "iterations", "seeds", "seed")}
    starts, folder = trainer.STARTS[:2], settings.folder
    search = validate.Settings((settings.weights,), starts=starts, folder=folder, **same)
    pools = trainer.pools(trainer.VALIDATION, search.devices, policy, starts)
    find = partial(
        validate.gains,
        jax.random.key(search.seed),
        params,
        policy=policy,
        iterations=search.iterations,
        seeds=search.seeds,
    )
    found, groups = {}, {}
    for name, draw in track(DRAWS.items(), "searches"):
        run = partial(rollout, draw=draw)
        found[name] = np.concatenate([find(pool=pool, run=run) for pool in pools], 1)
        groups[name] = float(np.mean([moved(params, pool, draw, policy) for pool in pools]))
    each = 1 + policy.samples * len(policy.tasks)
    validate.report(search, [1 + steps * each for steps in search.iterations], found)
    rows = [(name, f"{count:.1f}") for name, count in groups.items()]
    tables.show("Groups that a draw moves", ("drawn", "groups"), rows, folder / "groups.md")
    taken = {ops: seconds(params, ops, policy, settings) for ops in track(settings.ops, "seconds")}
    rows = [
        (f"{ops} ops, {label}", f"{spent:.4f}")
        for ops, each in taken.items()
        for label, spent in each.items()
    ]
    title = f"s of CPU time to draw one decision; {machine()}"
    tables.show(title, ("drawn", "s"), rows, folder / "seconds.md")
    store.save_json(folder / "drawn.json", {"groups": groups, "seconds": taken})
    store.save_settings(folder, settings)  # instead of the search's own settings


def _one(decisions: go.OpDecisions) -> go.OpDecisions:
    return jax.tree.map(lambda x: x[0], decisions)


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
