"""Costs of priority dispatch per second: gopt, and an event-driven simulator in numba.

The simulator, `experiments.throughput.peers.dispatching`, runs on all cores. Ops are dispatched by
priority, or first come, first served, with the same placements. "List order" is the cost
`gopt.cost.schedule.execution` of the same keys.
"""

from functools import partial
from typing import Any

import jax

from experiments.throughput.graphs import GRAPHS
from experiments.throughput.list_order import BOTH, gopt_evaluation
from experiments.throughput.peers import dispatching
from experiments.throughput.timing import check_same, place, rates
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.problem import prepare
from gopt.search.parallel import shard_candidates
from gopt.search.population import uniforms

DEVICES = (2, 8)
LIST_ORDER = "list order"


def compare(
    name: str, devices: int, *, population: int, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """Return records of the speed of costing a population of one graph, by priority and first come.

    Raises:
      RuntimeError: gopt and the simulator compute different costs.
    """
    graph = GRAPHS[name]()
    problem = prepare(graph, unit_rate_devices(devices))
    tables = dispatching.tables(problem)
    keys = place(uniforms(jax.random.key(seed), keys_shape(problem), population))
    first_come = Keys(keys.device, None, None)
    given = {"by priority": keys._replace(transfer=None), "first come": first_come}
    ours = jax.jit(shard_candidates(jax.vmap(partial(dispatch.evaluate, problem))))
    calls = {LIST_ORDER: partial(gopt_evaluation(problem, BOTH), keys)}
    for served, candidates in given.items():
        pair = {
            "gopt": partial(ours, candidates),
            "compiled": partial(dispatching.evaluate, tables, jax.device_get(candidates)),
        }
        check_same(f"{name}, {served}", *(jax.device_get(call()) for call in pair.values()))
        calls |= {f"{who}, {served}": call for who, call in pair.items()}
    found = rates(calls, dict.fromkeys(calls, population), rounds=rounds)
    return [
        {
            "graph": name,
            "ops": int(graph.num_ops),
            "devices": devices,
            "population": population,
            "served": served,
            "per_second": {who: found[f"{who}, {served}"] for who in ("gopt", "compiled")}
            | {LIST_ORDER: found[LIST_ORDER]},
        }
        for served in given
    ]
