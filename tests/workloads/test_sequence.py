"""The sequence workloads are the published models: sizes, shapes, causality, memory."""

import math
from collections import Counter
from functools import cache
from itertools import pairwise

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.workloads.base import Workload
from gopt.workloads.bert import bert
from gopt.workloads.gnmt import GNMT, gnmt
from gopt.workloads.gpt2 import gpt2
from gopt.workloads.recurrent import LSTMCell, zero_carry
from gopt.workloads.relative_attention import relative_shift, sinusoids
from gopt.workloads.rnnlm import rnnlm
from gopt.workloads.t5 import t5
from gopt.workloads.text_to_text import Block, position_buckets
from gopt.workloads.transformer_xl import transformer_xl
from gopt.workloads.vit import vit
from gopt.workloads.wavenet import wavenet

WIKITEXT = {
    "layers": 16,
    "hidden": 410,
    "heads": 10,
    "inner": 2100,
    "vocabulary": 267_735,
    "cutoffs": (20_000, 40_000, 200_000),
}
TINY = {
    "bert": bert(
        batch=2,
        length=6,
        predictions=3,
        layers=2,
        hidden=16,
        heads=2,
        inner=24,
        positions=8,
        vocabulary=11,
    ),
    "vit": vit(batch=2, size=12, patch=4, layers=2, hidden=16, heads=2, inner=24),
    "gpt2": gpt2(
        batch=2, length=6, layers=2, hidden=16, heads=2, inner=24, positions=8, vocabulary=11
    ),
    "transformer-xl": transformer_xl(
        batch=2, length=4, memory=3, layers=2, hidden=16, heads=2, inner=24, vocabulary=11
    ),
    "transformer-xl-adaptive": transformer_xl(
        batch=2,
        length=4,
        memory=3,
        layers=2,
        hidden=16,
        heads=2,
        inner=24,
        vocabulary=11,
        cutoffs=(4, 7),
    ),
    "t5": t5(
        batch=2,
        source_length=6,
        target_length=5,
        layers=2,
        hidden=16,
        heads=2,
        width=6,
        inner=24,
        vocabulary=11,
    ),
    "rnnlm": rnnlm(batch=2, length=4, layers=2, hidden=8, vocabulary=11),
    "gnmt": gnmt(batch=2, source_length=3, target_length=4, layers=3, hidden=8, vocabulary=11),
    "wavenet": wavenet(
        batch=2, length=24, stacks=2, layers=4, channels=8, bands=5, upsampling=(2, 3)
    ),
}
OUTPUTS = {
    "bert": [(2, 3, 11), (2, 2)],
    "vit": [(2, 1000)],
    "gpt2": [(2, 6, 11)],
    "transformer-xl": [(2, 4, 11), (2, 3, 16), (2, 3, 16)],
    "transformer-xl-adaptive": [(2, 4, 11), (2, 3, 16), (2, 3, 16)],
    "t5": [(2, 5, 11)],
    "rnnlm": [(2, 4, 11), *[(2, 8)] * 4],
    "gnmt": [(2, 4, 11)],
    "wavenet": [(2, 24, 2)],
}


def random_like(seed, tree):
    """Normal floats, and integers that are valid as tokens, segments, masks and positions."""
    rng = np.random.default_rng(seed)

    def draw(x):
        if jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 2, x.shape), x.dtype)
        return jnp.asarray(0.5 * rng.normal(size=x.shape), x.dtype)

    return jax.tree.map(draw, tree)


@cache
def compiled(name):
    """The forward pass of a tiny workload, with one set of random weights and inputs."""
    fn, (variables, *inputs) = TINY[name].forward()
    return jax.jit(fn), random_like(0, variables), random_like(1, tuple(inputs))


def primitives(fn, args) -> Counter:
    """How often each primitive occurs, sub-programs included."""
    found: Counter = Counter()

    def visit(jaxpr):
        for eqn in jaxpr.eqns:
            found[eqn.primitive.name] += 1
            for sub in jax.tree.leaves(
                list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
            ):
                if hasattr(sub, "eqns"):
                    visit(getattr(sub, "jaxpr", sub))

    visit(jax.make_jaxpr(fn)(*args).jaxpr)
    return found


@pytest.mark.parametrize(
    ("workload", "published", "difference"),
    [
        (bert(), 110_106_428, 0),
        (vit(), 86_567_656, 0),
        (gpt2(), 124_439_808, 0),
        (transformer_xl(), 41_055_436, 0),
        (transformer_xl(**WIKITEXT), 151_107_538, 0),
        (t5(), 60_506_624, 0),
        (t5(layers=12, hidden=768, heads=12, inner=3072), 222_903_552, 0),
        (t5(layers=24, hidden=1024, heads=32, width=128, inner=16_384), 2_851_598_336, 0),
        (gnmt(source_length=2, target_length=2), 160_671_297, -9 * 4 * 1024),
        (rnnlm(length=2), 66_000_000, 22_000),
        (wavenet(), 4_570_000, 308),
    ],
    ids=lambda value: value.name if isinstance(value, Workload) else None,
)
def test_parameters_agree_with_the_published_number(workload, published, difference):
    count = workload.num_parameters()
    assert count == published + difference
    assert count == pytest.approx(published, rel=0.01)


def test_the_medium_rnnlm_has_the_published_twenty_million():
    assert round(rnnlm(length=2, hidden=650).num_parameters(), -6) == 20_000_000


def test_the_bert_encoder_with_pooler_has_the_published_number():
    params = bert().variables()["params"]
    encoder = [params["words"], params["Encoder_0"], params["pooler"]]
    assert sum(x.size for x in jax.tree.leaves(encoder)) == 109_482_240


@pytest.mark.parametrize("name", TINY)
def test_forward_and_train_step_trace_without_arrays(name):
    workload = TINY[name]
    fn, args = workload.forward()
    assert [x.shape for x in jax.make_jaxpr(fn)(*args).out_avals] == OUTPUTS[name]
    step, args = workload.train_step()
    variables, momentum, loss = jax.tree.map(
        lambda x: (x.shape, x.dtype), jax.make_jaxpr(step, return_shape=True)(*args)[1]
    )
    assert (variables, momentum) == jax.tree.map(lambda x: (x.shape, x.dtype), args[:2])
    assert loss == ((), jnp.float32)


@pytest.mark.parametrize("name", TINY)
def test_forward_is_finite_and_not_constant(name):
    apply, variables, inputs = compiled(name)
    outputs = jax.tree.leaves(apply(variables, *inputs))
    assert [x.shape for x in outputs] == OUTPUTS[name]
    chex.assert_tree_all_finite(outputs)
    assert all(np.ptp(x) > 1e-3 for x in outputs)


@pytest.mark.parametrize("name", TINY)
def test_a_train_step_has_a_gradient_for_every_parameter(name):
    _, variables, inputs = compiled(name)
    step, (_, momentum, _, targets) = TINY[name].train_step()
    momentum = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), momentum)
    after, momentum, loss = jax.jit(step)(variables, momentum, inputs, random_like(2, targets))
    assert np.isfinite(loss)
    chex.assert_tree_all_finite((after, momentum))
    assert len(jax.tree.leaves(momentum)) == len(jax.tree.leaves(variables["params"]))
    still = [
        jax.tree_util.keystr(path)
        for path, gradient in jax.tree_util.tree_leaves_with_path(momentum)
        if np.abs(gradient).max() < 1e-7
    ]
    # Softmax ignores what it is shifted by, so that a bias of the keys has no gradient.
    assert all("'key']['bias']" in path for path in still), still


@pytest.mark.parametrize(
    ("name", "argument", "causal"),
    [
        ("gpt2", 0, True),
        ("transformer-xl", 0, True),
        ("transformer-xl-adaptive", 0, True),
        ("t5", 1, True),
        ("t5", 0, False),
        ("rnnlm", 0, True),
        ("gnmt", 1, True),
        ("gnmt", 0, False),
        ("wavenet", 0, True),
    ],
)
def test_a_later_input_changes_no_earlier_output(name, argument, causal):
    apply, variables, inputs = compiled(name)
    position = inputs[argument].shape[1] // 2
    changed = list(inputs)
    changed[argument] = inputs[argument].at[:, position].add(3)
    before = jax.tree.leaves(apply(variables, *inputs))[0]
    after = jax.tree.leaves(apply(variables, *changed))[0]
    moved = np.abs(after - before).max(axis=(0, 2)) > 1e-6
    assert moved[position]
    assert moved[:position].any() != causal


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


def test_wavenet_sees_exactly_its_receptive_field():
    apply, variables, (audio, mel) = compiled("wavenet")

    def last(audio):
        return apply(variables, audio, mel)[:, -1].sum()

    reach = np.flatnonzero(np.abs(jax.jit(jax.grad(last))(audio)[0]))
    dilations = [1, 2, 1, 2]
    assert audio.shape[1] - 1 - reach[0] == 2 * sum(dilations)


def test_transformer_xl_memory_continues_a_segment():
    apply, variables, (first, *memories) = compiled("transformer-xl")
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


def test_rnnlm_state_continues_a_segment():
    apply, variables, (token_ids, *state) = compiled("rnnlm")
    whole, end = apply(variables, token_ids, *state)
    _, middle = apply(variables, token_ids[:, :2], *state)
    half, continued_end = apply(variables, token_ids[:, 2:], *middle)
    np.testing.assert_allclose(half, whole[:, 2:], rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(end, continued_end, rtol=1e-5, atol=1e-6)
    assert np.abs(apply(variables, token_ids[:, 2:], *state)[0] - half).max() > 1e-3


def test_gnmt_layers_from_the_third_on_are_residual():
    apply, variables, inputs = compiled("gnmt")
    params = dict(variables["params"])
    for stack, third in (("Encoder_0", "LSTMCell_1"), ("Decoder_0", "LSTMCell_2")):
        zeros = jax.tree.map(jnp.zeros_like, params[stack][third])
        params[stack] = {**params[stack], third: zeros}
    silent = {"params": params}  # A cell of zeros outputs zero: only the residual is left.
    two_layers = GNMT(vocabulary=11, layers=2, hidden=8)
    np.testing.assert_allclose(
        apply(silent, *inputs), jax.jit(two_layers.apply)(silent, *inputs), rtol=1e-5, atol=1e-6
    )


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


def test_adaptive_softmax_gives_a_distribution():
    apply, variables, inputs = compiled("transformer-xl-adaptive")
    log_probabilities, _ = apply(variables, *inputs)
    np.testing.assert_allclose(jnp.exp(log_probabilities).sum(axis=-1), 1, rtol=1e-5)


def test_the_lstm_cell_is_that_of_flax():
    cell, reference = LSTMCell(4), nn.OptimizedLSTMCell(4)
    x = jax.random.normal(jax.random.key(0), (2, 3))
    carry = tuple(jax.random.normal(jax.random.key(k), (2, 4)) for k in (1, 2))
    params = cell.init(jax.random.key(3), carry, x)["params"]["Dense_0"]
    params["bias"] = jax.random.normal(jax.random.key(4), params["bias"].shape)
    kernels, biases = jnp.split(params["kernel"], 4, axis=1), jnp.split(params["bias"], 4)
    theirs = {}
    for gate, kernel, bias in zip("ifgo", kernels, biases, strict=True):
        theirs[f"i{gate}"] = {"kernel": kernel[:3]}
        theirs[f"h{gate}"] = {"kernel": kernel[3:], "bias": bias}
    chex.assert_trees_all_close(
        cell.apply({"params": {"Dense_0": params}}, carry, x),
        reference.apply({"params": theirs}, carry, x),
        rtol=1e-5,
    )
    chex.assert_trees_all_equal_shapes(zero_carry(2, 4), carry)


@pytest.mark.parametrize(
    ("at", "cells"),
    [
        (lambda n: rnnlm(batch=2, length=n, layers=3, hidden=8, vocabulary=11), 3),
        (
            lambda n: gnmt(
                batch=2, source_length=n, target_length=2, layers=4, hidden=8, vocabulary=11
            ),
            5,
        ),
        (
            lambda n: gnmt(
                batch=2, source_length=2, target_length=n, layers=4, hidden=8, vocabulary=11
            ),
            4,
        ),
    ],
    ids=["rnnlm", "gnmt-encoder", "gnmt-decoder"],
)
def test_each_time_step_has_its_own_ops(at, cells):
    counts = [primitives(*at(n).forward()) for n in (3, 4, 5)]
    assert "scan" not in counts[0] and "while" not in counts[0]
    steps = [after - before for before, after in pairwise(counts)]
    assert steps[0] == steps[1]
    assert steps[0]["tanh"] >= 2 * cells
    assert steps[0]["dot_general"] >= cells


def test_stacks_restart_the_dilations():
    fn, args = wavenet(batch=1, length=256, stacks=2, layers=6, channels=4).forward()
    jaxpr = jax.make_jaxpr(fn)(*args)
    dilations = [
        eqn.params["rhs_dilation"]
        for eqn in jaxpr.eqns
        if eqn.primitive.name == "conv_general_dilated" and len(eqn.params["rhs_dilation"]) == 1
    ]
    assert dilations == [(1,), (2,), (4,)] * 2


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: bert(heads=7), "heads"),
        (lambda: bert(length=513), "length"),
        (lambda: bert(heads=0), "heads"),
        (lambda: vit(heads=7), "heads"),
        (lambda: vit(size=225), "size"),
        (lambda: vit(layers=0), "layers"),
        (lambda: gpt2(heads=7), "heads"),
        (lambda: gpt2(length=1025), "length"),
        (lambda: gpt2(layers=0), "layers"),
        (lambda: transformer_xl(heads=7), "heads"),
        (lambda: transformer_xl(hidden=7, heads=7), "hidden"),
        (lambda: transformer_xl(layers=0), "layers"),
        (lambda: transformer_xl(cutoffs=(20, 10)), r"cutoffs\[1\]"),
        (lambda: transformer_xl(cutoffs=(20, 204)), r"cutoffs\[1\]"),
        (lambda: t5(layers=0), "layers"),
        (lambda: t5(width=0), "width"),
        (lambda: t5(source_length=0), "source_length"),
        (lambda: t5(target_length=0), "target_length"),
        (lambda: rnnlm(length=0), "length"),
        (lambda: rnnlm(layers=0), "layers"),
        (lambda: gnmt(source_length=0), "source_length"),
        (lambda: gnmt(target_length=0), "target_length"),
        (lambda: gnmt(layers=1), "layers"),
        (lambda: wavenet(stacks=4), "layers"),
        (lambda: wavenet(length=100), "length"),
    ],
)
def test_bad_sizes_raise(build, field):
    with pytest.raises(ValueError, match=f"^{field}: expected"):
        build()
