"""The ranking workloads are the published models: sizes, shapes, lookups, products of pairs."""

from collections import Counter
from itertools import combinations, pairwise

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from gopt.workloads.recommendation.deeprank import Measure, deeprank, hinge
from gopt.workloads.recommendation.dlrm import dlrm, interact
from gopt.workloads.sequential.recurrent import GRUCell
from tests.workloads.tiny import TINY, compiled, random_module, stepped, traced

ROWS = TINY["dlrm"].make.keywords["rows"]


def click_through():
    """The tiny model, numbers, and categories that leave rows of the longest table unread."""
    apply, variables, (numbers, categories) = compiled("dlrm")
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, min(rows, 10), len(categories)) for rows in ROWS]
    categories = np.stack(columns, axis=1).astype(categories.dtype)
    return apply, variables, np.asarray(numbers), categories


def test_parameters_of_dlrm_agree_with_the_published_number():
    count = dlrm().num_parameters()
    assert count == pytest.approx(540e6, rel=0.01)
    widths = [(13, 512, 256, 64, 16), (16 + 27 * 26 // 2, 512, 256, 1)]
    dense = sum((a + 1) * b for net in widths for a, b in pairwise(net))
    assert count == 33_762_577 * 16 + dense == 540_677_217


def test_dlrm_traces_at_full_size_without_allocating():
    known = {id(x) for x in jax.live_arrays()}
    workload = dlrm()
    fn, args = workload.forward()
    forward, logits = jax.make_jaxpr(fn, return_shape=True)(*args)
    assert (logits.shape, logits.dtype) == ((128,), jnp.float32)
    found = Counter(eqn.primitive.name for eqn in forward.eqns)
    inner = Counter(
        eqn.primitive.name
        for outer in forward.eqns
        if "jaxpr" in outer.params
        for eqn in outer.params["jaxpr"].eqns
    )
    # A lookup for each table, one of pairs; a product for each layer, one of vectors.
    assert (found + inner)["gather"] == 26 + 1
    assert (found + inner)["dot_general"] == 4 + 3 + 1

    fn, args = workload.train_step()
    step = jax.make_jaxpr(fn)(*args)
    assert sum(x.nbytes for x in jax.live_arrays() if id(x) not in known) < 1000
    assert all(np.size(c) <= 351 for c in (*forward.consts, *step.consts))


def test_interaction_is_every_pair_once():
    vectors = np.random.default_rng(0).standard_normal((3, 5, 4), np.float32)
    expected = [
        [x[i] @ x[j] for j, i in sorted(combinations(range(5), 2), key=lambda pair: pair[::-1])]
        for x in vectors
    ]
    np.testing.assert_allclose(interact(vectors), expected, rtol=1e-5, atol=1e-6)
    assert interact(vectors[:, :1]).shape == (3, 0)


def test_dlrm_is_its_definition():
    apply, variables, numbers, categories = click_through()
    params = jax.tree.map(np.asarray, variables["params"])

    def layer(x, weights):
        return x @ weights["kernel"] + weights["bias"]

    expected = []
    for x, rows in zip(numbers, categories, strict=True):
        for k in range(3):
            x = np.maximum(layer(x, params["bottom"][f"Dense_{k}"]), 0)
        vectors = [x, *(params[f"table_{k}"][row] for k, row in enumerate(rows))]
        pairs = [vectors[i] @ vectors[j] for i in range(4) for j in range(i)]
        hidden = np.maximum(layer(np.array([*x, *pairs]), params["top"]["Dense_0"]), 0)
        expected.append(layer(hidden, params["click"])[0])
    assert np.ptp(expected) > 0.1
    found = apply(variables, numbers, categories)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_step_of_dlrm_changes_the_rows_that_were_read_and_all_layers():
    apply, variables, numbers, categories = click_through()
    _, momentum, _, _ = traced("dlrm").step_shapes
    momentum = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), momentum)
    clicks = np.array([0, 1, 1, 0], np.float32)
    step = traced("dlrm").step
    after, momentum, loss = step(variables, momentum, (numbers, categories), clicks)
    chex.assert_tree_all_finite((after, momentum))

    logits = np.asarray(apply(variables, numbers, categories))
    chances = 1 / (1 + np.exp(-logits))
    likely = np.where(clicks == 1, chances, 1 - chances)
    np.testing.assert_allclose(loss, -np.log(likely).mean(), rtol=1e-5)

    moved = jax.tree.map(lambda a, b: np.abs(a - b) > 0, after, variables)["params"]
    for k, rows in enumerate(ROWS):
        read = np.isin(np.arange(rows), categories[:, k])
        np.testing.assert_array_equal(moved.pop(f"table_{k}").any(axis=1), read)
    assert all(x.any() for x in jax.tree.leaves(moved))


def test_parameters_of_deeprank_are_those_of_the_published_configuration():
    tables = 193_367 * (50 + 1)
    convolutions = 50 + 50 + (3 * 3 * 3 + 1) * 4
    recurrent = 2 * 3 * 3 * (4 + 1 + 3 + 1)
    assert deeprank().num_parameters() == tables + convolutions + recurrent + 2 * 3 + 1


def test_local_relevance_is_the_largest_output_of_each_kernel():
    module = Measure(kernels=2)
    variables, (query, contexts), found = random_module(module, (2, 3, 4), (2, 3, 2, 5, 4))
    params = variables["params"]
    kernel, bias = params["Conv_0"]["kernel"], params["Conv_0"]["bias"]
    for text, term, context in np.ndindex(2, 3, 2):
        words = contexts[text, term, context]
        padded = np.zeros((3 + 2, 5 + 2, 3))
        padded[1:-1, 1:-1, 0] = query[text] @ words.T
        padded[1:-1, 1:-1, 1] = query[text] @ params["query"]["kernel"]
        padded[1:-1, 1:-1, 2] = (words @ params["context"]["kernel"]).T
        outputs = [
            np.einsum("ijk,ijkf->f", padded[i : i + 3, j : j + 3], kernel) + bias
            for i, j in np.ndindex(3, 5)
        ]
        largest = np.max(outputs, axis=0)
        expected = np.where(largest > 0, largest, largest / 5)
        np.testing.assert_allclose(found[text, term, context], expected, rtol=1e-4, atol=1e-5)


def test_deeprank_reads_contexts_both_ways_and_weighs_terms():
    apply, variables, (query, contexts, positions) = compiled("deeprank")
    params = jax.tree.map(np.asarray, variables["params"])
    words, importance = params["words"]["embedding"], params["importance"]["embedding"]
    query, contexts, positions = map(np.asarray, (query, contexts, positions))
    positions = positions + 3 * np.arange(2)
    local = Measure(kernels=2).apply({"params": params["Measure_0"]}, words[query], words[contexts])
    aggregation = params["Aggregation_0"]

    def last(direction, steps):
        state = np.zeros(3, np.float32)
        for step in steps:
            state, _ = GRUCell(3).apply({"params": aggregation[direction]}, state, step)
        return state

    expected = []
    for text in range(4):
        total = np.zeros(6)
        weights = softmax(importance[query[text], 0])
        for term, weight in enumerate(weights):
            nearness = 1 / (1 + positions[text, term])
            steps = np.column_stack([local[text, term], nearness]).astype(np.float32)
            both = [last("forward", steps), last("backward", steps[::-1])]
            total += weight * np.concatenate(both)
        dense = aggregation["Dense_0"]
        expected.append((total @ dense["kernel"] + dense["bias"])[0])
    assert np.ptp(expected) > 1e-2
    found = apply(variables, query, contexts, positions)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_hinge_asks_the_better_document_to_lead_by_one():
    scores = jnp.array([2.0, 0.5, 0.3, 0.1, -1.0, 0.25])
    assert hinge(scores, jnp.array([0, 0, 1])) == pytest.approx((0 + 0.8 + 0) / 3)
    assert hinge(scores, jnp.array([1, 1, 0])) == pytest.approx((2.5 + 1.2 + 2.25) / 3)
    apply, variables, inputs = compiled("deeprank")
    *_, loss, better = stepped("deeprank")
    np.testing.assert_allclose(loss, hinge(apply(variables, *inputs), better), rtol=1e-5)
