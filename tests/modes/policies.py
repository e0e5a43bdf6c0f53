"""Learned systems on a tiny graph: actions, losses with gradients, steps and searches.

Call `given` first: it runs on the host, and is kept.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gopt.systems import go, hdp, local_advantage, placeto, regal
from gopt.systems.one_graph import placement_cost
from tests.modes.graphs import fusible_graph, fusion_problem, graph, problem

SETTINGS: dict[Any, Any] = {
    regal: regal.Settings(width=8, rounds=1, steps=3),
    go: go.Settings(
        tasks=("placement", "scheduling"),
        **dict(width=8, heads=2, segment=8, levels=(8,), iterations=2, epochs=1, samples=2),
    ),
    hdp: hdp.Settings(per_device=2, hidden=8, width=8),
    placeto: placeto.Settings(groups=3, rounds=1, steps=3),
    local_advantage: local_advantage.Settings(width=8, rounds=1, steps=3, configurations=2),
}


@cache
def given(system: Any) -> tuple[Any, Any]:
    """Return inputs, and parameters that are not random, as NumPy arrays."""
    pair = (
        (fusible_graph(), fusion_problem()) if system is local_advantage else (graph(), problem())
    )
    inputs = system.inputs(*pair, settings=SETTINGS[system])
    init = partial(system.init, settings=SETTINGS[system])
    shapes = jax.eval_shape(init, jax.random.key(0), inputs)
    params = jax.tree.map(
        lambda s: np.float32(0.3 * np.sin(1 + np.arange(s.size)).reshape(s.shape)), shapes
    )
    return jax.device_get((inputs, params))


@cache
def order() -> np.ndarray:
    return go.critical_path_order(problem())


def learned(system: Any, params: Any, batch: Any) -> Any:
    loss = partial(system.loss, settings=SETTINGS[system])
    return jax.value_and_grad(loss, has_aux=True)(params, batch)


def of_regal() -> Any:
    inputs, params = given(regal)
    settings, key, graphs = SETTINGS[regal], jax.random.key(0), inputs.graphs
    action = regal.act(key, params, inputs, settings=settings)
    places = regal.sample(key, params, graphs, samples=2, settings=settings)
    batch = regal.Trajectory(graphs, places, jnp.float32([-1, -0.9]))
    return action, learned(regal, params, jax.tree.map(lambda x: x[None], batch))


def regal_search() -> Any:
    inputs, params = given(regal)
    how = dict(inputs=inputs, objective="makespan", evaluations=130, settings=SETTINGS[regal])
    return regal.search(jax.random.key(0), problem(), params, **how)


def of_go() -> Any:
    inputs, params = given(go)
    settings, key = SETTINGS[go], jax.random.key(0)
    simulator = go.simulator_of(problem(), "makespan", order())
    start = go.begin(problem(), np.arange(len(inputs.share)) % 2, simulator)
    _, trajectory, history = go.rollout(
        key, params, inputs, start, simulator, iterations=2, settings=settings
    )
    return history, learned(go, params, go.Batch(inputs, trajectory))


def of_hdp() -> Any:
    inputs, params = given(hdp)
    settings, key = SETTINGS[hdp], jax.random.key(0)
    actions, log_prob = hdp.sample(key, params, inputs, settings=settings)
    costs = placement_cost(problem(), "makespan")(hdp.placements(inputs, actions))
    reward = hdp.reward(costs, costs[0], settings).reshape(log_prob.shape)
    batch = hdp.Trajectory(key, inputs, reward, reward.mean())
    return actions, costs, learned(hdp, params, batch), trained(hdp)


def of_placeto() -> Any:
    inputs, params = given(placeto)
    action = placeto.act(jax.random.key(0), params, inputs, settings=SETTINGS[placeto])
    return action, trained(placeto)


def trained(system: Any) -> Any:
    """Return the state after a step, in which a system on one graph acts, learns and searches."""
    inputs, params = given(system)
    task = system.Task(inputs, placement_cost(problem(), "makespan"))
    state = system.start(params, task, settings=SETTINGS[system])
    state, metrics = system.step(state, jax.random.key(1), task, settings=SETTINGS[system])
    return state.params, metrics, state.unit, state.device, state.cost


def of_local_advantage() -> Any:
    inputs, params = given(local_advantage)
    settings, count = SETTINGS[local_advantage], len(fusion_problem().compute)
    action = local_advantage.act(None, params, inputs, settings=settings)
    rows = np.sin(np.arange(2 * count, dtype=np.float32)).reshape(2, count)
    batch = local_advantage.Samples(inputs, (rows > 0).astype(np.int32), rows, rows**2)
    found = local_advantage.search(
        *(jax.random.key(0), fusion_problem(), params),
        **dict(inputs=inputs, objective="makespan", evaluations=10, settings=settings),
    )
    bits = local_advantage.advantages(fusion_problem(), rows[0] > 0)
    return action, bits, learned(local_advantage, params, batch), found


POLICIES: dict[str, Callable[[], Any]] = {
    "regal": of_regal,
    "regal, search": regal_search,
    "go": of_go,
    "hdp": of_hdp,
    "placeto": of_placeto,
    "local_advantage": of_local_advantage,
}
