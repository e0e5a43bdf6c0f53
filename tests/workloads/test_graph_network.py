"""The graph network is the published one: its parameters, messages, residuals and reach."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.workloads.graph_network import graph_network

TINY = graph_network(nodes=7, edges=12, steps=3, hidden=8)


def random_variables(workload, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: (0.5 * rng.standard_normal(x.shape)).astype(x.dtype), workload.variables()
    )


def random_inputs(workload, seed=1):
    rng = np.random.default_rng(seed)
    particles, materials, relations, senders, receivers = workload.inputs
    nodes = particles.shape[0]
    return (
        rng.standard_normal(particles.shape, np.float32),
        rng.integers(0, 9, materials.shape),
        rng.standard_normal(relations.shape, np.float32),
        rng.integers(0, nodes, senders.shape),
        rng.integers(0, nodes, receivers.shape),
    )


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


def test_traces_without_allocating():
    before = {id(x) for x in jax.live_arrays()}
    workload = graph_network()
    fn, args = workload.train_step()
    step, (variables, momentum, loss) = jax.make_jaxpr(fn, return_shape=True)(*args)
    assert sum(x.nbytes for x in jax.live_arrays() if id(x) not in before) < 1000
    assert all(np.size(c) <= 1 for c in step.consts)
    chex.assert_trees_all_equal_shapes_and_dtypes((variables, momentum), args[:2])
    assert loss.shape == ()


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
    variables, inputs = random_variables(TINY), random_inputs(TINY)
    ours = TINY.module.apply(variables, *inputs)
    assert ours.shape == TINY.targets.shape == (7, 2)
    assert np.ptp(ours, axis=0).min() > 1e-2
    exact = jax.tree.map(lambda x: x.astype(float), variables["params"])
    np.testing.assert_allclose(ours, reference(exact, *inputs), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_step_reaches_one_edge_further(steps):
    nodes = 8
    workload = graph_network(nodes=nodes, edges=nodes - 1, steps=steps, hidden=32)
    variables = random_variables(workload)
    particles, materials, relations, _, _ = random_inputs(workload)
    senders, receivers = np.arange(nodes - 1), np.arange(1, nodes)

    def apply(particles):
        return workload.module.apply(variables, particles, materials, relations, senders, receivers)

    changed = particles.copy()
    changed[0] += 1
    moved = np.abs(apply(changed) - apply(particles)).max(axis=1) > 1e-6
    assert np.flatnonzero(moved).tolist() == list(range(steps + 1))


def test_no_step_shares_its_weights():
    variables, inputs = random_variables(TINY), random_inputs(TINY)
    outputs = [TINY.module.apply(variables, *inputs)]
    for step in range(3):
        params = dict(variables["params"])
        name = f"MessagePassing_{step}"
        params[name] = jax.tree.map(lambda x: 2 * x, params[name])
        outputs.append(TINY.module.apply({"params": params}, *inputs))
    for index, one in enumerate(outputs):
        for other in outputs[:index]:
            assert np.abs(one - other).max() > 1e-3


def test_a_train_step_has_a_gradient_for_every_parameter():
    variables, inputs = random_variables(TINY), random_inputs(TINY)
    inputs = (inputs[0], np.array([0, 1, 2, 3, 4, 5, 6]), *inputs[2:])
    targets = np.ones(TINY.targets.shape, np.float32)
    step, (_, momentum, _, _) = TINY.train_step()
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), momentum)
    after, gradients, loss = jax.jit(step)(variables, zeros, inputs, targets)
    errors = TINY.module.apply(variables, *inputs) - targets
    np.testing.assert_allclose(loss, (errors**2).sum() / 7, rtol=1e-4)
    chex.assert_tree_all_finite((after, gradients))
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.abs(gradient).max() > 1e-7, jax.tree_util.keystr(path)


@pytest.mark.parametrize("field", ["nodes", "edges", "steps", "hidden", "dimensions"])
def test_bad_sizes_raise(field):
    with pytest.raises(ValueError, match=f"^{field}: expected at least 1, got 0"):
        partial(graph_network, **{field: 0})()
