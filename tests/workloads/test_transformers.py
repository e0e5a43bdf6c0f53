"""The transformers are the published models: what each attends to, embeds and loses."""

import math
from itertools import groupby

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from gopt.graph.tracing import trace
from gopt.workloads.transformers.relative_attention import relative_shift, sinusoids
from gopt.workloads.transformers.switch import Experts, switch
from gopt.workloads.transformers.text_to_text import Block, position_buckets
from tests.workloads.tiny import compiled, random_like, random_module, stepped


def test_bert_sees_both_sides_but_no_padding():
    apply, variables, (token_ids, segments, _, masked) = compiled("bert")
    mask = jnp.ones_like(token_ids).at[:, 4:].set(0)

    def words(tokens):
        return apply(variables, tokens, segments, mask, masked)[0]

    before = words(token_ids)
    assert np.abs(words(token_ids.at[:, 3].add(5)) - before).max() > 1e-3
    assert np.abs(words(token_ids.at[:, 0].add(5)) - before).max() > 1e-3
    np.testing.assert_array_equal(words(token_ids.at[:, 4:].add(5)), before)


def test_vit_knows_the_order_of_patches_only_by_their_positions():
    apply, variables, (images,) = compiled("vit")
    patches = images.reshape(2, 3, 4, 3, 4, 3)[:, ::-1]
    reordered = patches.reshape(images.shape)
    assert np.abs(apply(variables, reordered) - apply(variables, images)).max() > 1e-3
    params = variables["params"]
    blind = {"params": {**params, "positions": jnp.zeros_like(params["positions"])}}
    np.testing.assert_allclose(apply(blind, reordered), apply(blind, images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_words_are_read_from_the_embedding_that_writes_them(name):
    apply, variables, inputs = compiled(name)
    params = variables["params"]
    swapped = jnp.array([0, 1, 3, 2, *range(4, 11)])  # words that do not occur in the inputs
    words = {"embedding": params["words"]["embedding"][swapped]}
    after = apply({"params": {**params, "words": words}}, *inputs)
    np.testing.assert_allclose(after, apply(variables, *inputs)[..., swapped], rtol=1e-5)


@pytest.mark.slow
def test_transformer_xl_memory_continues_a_segment():
    apply, variables, (first, *memories) = compiled("transformer_xl")
    second = first + 5
    # A memory as long as the segment keeps all of it.
    long = [jnp.concatenate([m, m[:, :1]], axis=1) for m in memories]
    whole, _ = apply(variables, jnp.concatenate([first, second], axis=1), *long)
    _, kept = apply(variables, first, *long)
    both = [jnp.concatenate(parts, axis=1) for parts in zip(long, kept, strict=True)]
    continued, _ = apply(variables, second, *both)
    np.testing.assert_allclose(continued, whole[:, first.shape[1] :], rtol=1e-4, atol=1e-5)
    forgotten, _ = apply(variables, second, *jax.tree.map(jnp.zeros_like, both))
    assert np.abs(forgotten - continued).max() > 1e-3


def test_adaptive_softmax_gives_a_distribution():
    apply, variables, inputs = compiled("transformer_xl_adaptive")
    log_probabilities, _ = apply(variables, *inputs)
    np.testing.assert_allclose(jnp.exp(log_probabilities).sum(axis=-1), 1, rtol=1e-5)


def test_relative_shift_looks_up_the_distance_of_query_and_key():
    queries, memory = 3, 2
    keys = queries + memory
    scores = jax.random.normal(jax.random.key(0), (2, queries, keys))
    shifted = relative_shift(scores)
    for query in range(queries):
        for key in range(query + memory + 1):
            distance = query + memory - key
            np.testing.assert_array_equal(
                shifted[:, query, key], scores[:, query, keys - 1 - distance]
            )


def test_sinusoids_fall_to_distance_zero():
    encoding = sinusoids(4, 0, 6)
    np.testing.assert_array_equal(encoding[-1], [0, 0, 0, 1, 1, 1])
    angle = 3 * 10_000 ** (-2 / 6)
    np.testing.assert_allclose(encoding[1, [1, 4]], [math.sin(angle), math.cos(angle)], rtol=1e-5)


@pytest.mark.parametrize(("causal", "buckets"), [(True, 32), (False, 16)])
def test_position_buckets_grow_logarithmically(causal, buckets):
    length, near = 200, buckets // 2
    found = np.asarray(position_buckets(length, causal=causal))
    # Bucket near + k begins at distance near * (128 / near) ** (k / near), in whole numbers here.
    starts = [
        *range(near),
        *(
            next(d for d in range(129) if d**near >= near**near * (128 // near) ** k)
            for k in range(near)
        ),
    ]
    for query in (0, 1, 77, length - 1):
        for key in range(length):
            distance = max(query - key, 0) if causal else abs(query - key)
            bucket = max(k for k, start in enumerate(starts) if start <= distance)
            future = not causal and key > query
            assert found[query, key] == bucket + buckets * future, (query, key)


def test_a_t5_block_is_its_definition():
    block = Block(heads=2, width=3, inner=7)
    shapes = [(2, 4, 5), (2, 4, 4), (2, 6, 5)]
    x, bias, memory = random_like(0, tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))
    variables = random_like(1, jax.eval_shape(block.init, jax.random.key(0), x, bias, memory))
    params = jax.tree.map(np.asarray, variables["params"])

    def norm(k, vectors):
        mean = (vectors**2).mean(axis=-1, keepdims=True)
        return vectors / np.sqrt(mean + 1e-6) * params[f"RMSNorm_{k}"]["scale"]

    def attention(name, queries, sources, bias):
        weights = {part: leaf["kernel"] for part, leaf in params[name].items()}
        out = np.zeros_like(queries)
        for batch, query, head in np.ndindex(*queries.shape[:2], 2):
            asked = queries[batch, query] @ weights["query"][:, head]
            keys = sources[batch] @ weights["key"][:, head]
            chances = np.exp(keys @ asked + bias[head, query])
            values = sources[batch] @ weights["value"][:, head]
            out[batch, query] += chances / chances.sum() @ values @ weights["out"][head]
        return out

    y = np.asarray(x)
    y = y + attention("self_attention", norm(0, y), norm(0, y), np.asarray(bias))
    y = y + attention("cross_attention", norm(1, y), np.asarray(memory), np.zeros((2, 4, 6)))
    inner = np.maximum(norm(2, y) @ params["Dense_0"]["kernel"], 0)
    y = y + inner @ params["Dense_1"]["kernel"]
    np.testing.assert_allclose(block.apply(variables, x, bias, memory), y, rtol=1e-4, atol=1e-5)


def test_each_t5_stack_has_one_table_of_positions():
    apply, variables, inputs = compiled("t5")
    params = variables["params"]
    tables = [
        (path[0].key, table.shape)
        for path, table in jax.tree_util.tree_leaves_with_path(params)
        if path[-1].key == "positions"
    ]
    assert tables == [("decoder", (2, 32)), ("encoder", (2, 32))]
    before = apply(variables, *inputs)
    for stack, _ in tables:
        # A constant added to all scores of a query is what softmax does not see.
        shifted, turned = (
            {"params": {**params, stack: {**params[stack], "positions": table}}}
            for table in (params[stack]["positions"] + 1, params[stack]["positions"][::-1])
        )
        np.testing.assert_allclose(apply(shifted, *inputs), before, rtol=1e-4, atol=1e-5)
        assert np.abs(apply(turned, *inputs) - before).max() > 1e-3


def test_tokens_go_to_their_expert_first_come_first_served():
    count, capacity = 3, 2
    module = Experts(experts=count, inner=7, capacity=capacity)
    variables, (x,), (made, imbalance) = random_module(module, (2, 8, 5))
    params = variables["params"]
    chances = softmax(x @ params["router"]["kernel"], axis=-1)
    expected, used = np.zeros_like(x), np.zeros((2, count))
    for text in range(2):
        for token, vector in enumerate(x[text]):
            expert = chances[text, token].argmax()
            used[text, expert] += 1
            if used[text, expert] <= capacity:
                inner = np.maximum(vector @ params["enter"][expert], 0)
                gate = chances[text, token, expert]
                expected[text, token] = gate * (inner @ params["leave"][expert])
    assert used.max() > capacity and (used > 0).sum() > 2
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
    shares = [sum(used[text] / 8 * chances[text].mean(axis=0)) * count for text in range(2)]
    np.testing.assert_allclose(imbalance, np.mean(shares), rtol=1e-5)


def test_experts_that_are_all_used_alike_have_imbalance_one():
    module = Experts(experts=4, inner=3, capacity=2)
    x = 50 * jnp.eye(4)[None, jnp.array([0, 1, 2, 3, 3, 2, 1, 0])]
    shapes = jax.eval_shape(module.init, jax.random.key(0), x)["params"]
    even = {**random_like(0, shapes), "router": {"kernel": jnp.eye(4)}}
    one_for_all = {**even, "router": {"kernel": jnp.ones((4, 4)) * jnp.array([1, 0, 0, 0])}}
    imbalances = [module.apply({"params": p}, x)[1] for p in (even, one_for_all)]
    np.testing.assert_allclose(imbalances, [1, 4], rtol=1e-5)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_every_second_block_of_a_switch_transformer_is_sparse(stack):
    fn, args = switch(layers=4).forward()
    scopes = [name.split("/") for name in trace(fn, *args).names]
    blocks = [scope[2] for scope in scopes if scope[1:2] == [stack] and "Block" in scope[2]]
    order = [block for block, _ in groupby(blocks)]
    assert order == ["Block_0", "SparseBlock_0", "Block_1", "SparseBlock_1"]


@pytest.mark.parametrize(("factor", "capacities"), [(1.0, {64, 15}), (1.25, {80, 18})])
def test_experts_have_places_for_their_share_of_a_text(factor, capacities):
    fn, args = switch(layers=2, capacity_factor=factor).forward()
    equations = trace(fn, *args).program.equations
    shapes = [eqn.outvars[0].aval.shape for eqn in equations]
    experts, batch, inner = 8, 8, 3072
    found = {s[2] for s in shapes if len(s) == 4 and s[:2] + s[3:] == (experts, batch, inner)}
    assert found == capacities  # of source and target, rounded up


@pytest.mark.slow
def test_the_loss_of_a_switch_transformer_counts_the_imbalance():
    apply, variables, inputs = compiled("switch")
    logits, imbalance = apply(variables, *inputs)
    *_, loss, targets = stepped("switch")
    chances = softmax(np.asarray(logits), axis=-1)
    right = np.take_along_axis(chances, np.asarray(targets)[..., None], axis=-1)
    assert imbalance > 1.5  # about 1 in each of two sparse blocks
    np.testing.assert_allclose(loss, -np.log(right).mean() + 0.01 * imbalance, rtol=1e-5)
