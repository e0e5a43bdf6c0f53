"""The graph network is the published one: its parameters, messages, residuals and reach."""

from functools import partial

import jax
import numpy as np
import pytest

from gopt.workloads.graph_network import graph_network
from tests.workloads.tiny import compiled, random_like, stepped


def by_hand(steps, dimensions):
    """Counts (inputs, outputs) of all dense layers after the paper; 9 materials in 16 numbers."""
    wide, materials = 128, 9 * 16
    velocities, walls = 5 * dimensions, 2 * dimensions

    def mlp(inputs, outputs):
        return sum((n + 1) * m for n, m in ((inputs, wide), (wide, wide), (wide, outputs)))

    norm = 2 * wide
    encoders = mlp(velocities + walls + 16, wide) + mlp(dimensions + 1, wide) + 2 * norm
    step = mlp(3 * wide, wide) + mlp(2 * wide, wide) + 2 * norm
    return materials + encoders + steps * step + mlp(wide, dimensions)


@pytest.mark.parametrize(("steps", "dimensions"), [(10, 2), (10, 3), (1, 2)])
def test_number_of_parameters_is_that_of_the_paper(steps, dimensions):
    workload = graph_network(steps=steps, dimensions=dimensions)
    assert workload.num_parameters() == by_hand(steps, dimensions)


def test_the_default_has_the_documented_number_of_parameters():
    assert graph_network().num_parameters() == 1_591_826


def mlp(params, x):
    for name in ("Dense_0", "Dense_1"):
        x = np.maximum(x @ params[name]["kernel"] + params[name]["bias"], 0)
    return x @ params["Dense_2"]["kernel"] + params["Dense_2"]["bias"]


def norm_mlp(params, *parts):
    x = mlp(params["MLP_0"], np.concatenate(parts))
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    return x * params["LayerNorm_0"]["scale"] + params["LayerNorm_0"]["bias"]


def reference(params, particles, materials, relations, senders, receivers):
    """The network, node by node and edge by edge."""
    embedding = params["materials"]["embedding"]
    nodes = [
        norm_mlp(params["encode_nodes"], particle, embedding[material])
        for particle, material in zip(particles, materials, strict=True)
    ]
    edges = [norm_mlp(params["encode_edges"], relation) for relation in relations]
    for step in range(3):
        own = params[f"MessagePassing_{step}"]
        received = np.zeros((len(nodes), 8))
        for index, (sender, receiver) in enumerate(zip(senders, receivers, strict=True)):
            message = norm_mlp(own["edges"], edges[index], nodes[receiver], nodes[sender])
            received[receiver] += message
            edges[index] = edges[index] + message
        nodes = [
            node + norm_mlp(own["nodes"], total, node)
            for node, total in zip(nodes, received, strict=True)
        ]
    return np.array([mlp(params["decode"], node) for node in nodes])


def test_the_network_is_that_of_the_paper():
    apply, variables, inputs = compiled("graph_network")
    ours = apply(variables, *inputs)
    assert np.ptp(ours, axis=0).min() > 1e-2
    inputs = jax.tree.map(np.asarray, inputs)
    exact = jax.tree.map(lambda x: np.asarray(x, float), variables["params"])
    np.testing.assert_allclose(
        ours, reference(exact, *map(np.asarray, inputs)), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_step_reaches_one_edge_further(steps):
    nodes = 8
    workload = graph_network(nodes=nodes, edges=nodes - 1, steps=steps, hidden=32)
    variables = random_like(0, workload.variables())
    particles, materials, relations, _, _ = random_like(1, workload.inputs, (0, nodes))
    senders, receivers = np.arange(nodes - 1), np.arange(1, nodes)

    def apply(particles):
        return workload.module.apply(variables, particles, materials, relations, senders, receivers)

    moved = np.abs(apply(particles.at[0].add(1)) - apply(particles)).max(axis=1) > 1e-6
    assert np.flatnonzero(moved).tolist() == list(range(steps + 1))


def test_no_step_shares_its_weights():
    apply, variables, inputs = compiled("graph_network")
    outputs = [apply(variables, *inputs)]
    for step in range(3):
        params = dict(variables["params"])
        name = f"MessagePassing_{step}"
        params[name] = jax.tree.map(lambda x: 2 * x, params[name])
        outputs.append(apply({"params": params}, *inputs))
    for index, one in enumerate(outputs):
        for other in outputs[:index]:
            assert np.abs(one - other).max() > 1e-3


def test_the_loss_is_the_squared_error_of_a_particle():
    *_, loss, targets = stepped("graph_network")
    apply, variables, inputs = compiled("graph_network")
    errors = apply(variables, *inputs) - targets
    np.testing.assert_allclose(loss, (errors**2).sum() / 7, rtol=1e-4)


@pytest.mark.parametrize("field", ["nodes", "edges", "steps", "hidden", "dimensions"])
def test_bad_sizes_raise(field):
    with pytest.raises(ValueError, match=f"^{field}: expected at least 1, got 0"):
        partial(graph_network, **{field: 0})()
