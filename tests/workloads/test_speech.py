"""The speech workloads are the published models: blocks, receptive fields, losses."""

import math
from itertools import groupby, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax

from gopt.graph.kinds import KINDS
from gopt.graph.tracing import trace
from gopt.workloads.sequential.wavenet import wavenet
from gopt.workloads.transformers.conformer import Block, Subsampling, conformer
from gopt.workloads.transformers.relative_attention import sinusoids
from tests.workloads.tiny import compiled, random_module, stepped, traced

SIZES = {"S": {"hidden": 144}, "M": {}, "L": {"layers": 18, "hidden": 512, "heads": 8}}


def test_wavenet_sees_exactly_its_receptive_field():
    _, variables, (audio, mel) = compiled("wavenet")

    def last(audio):
        return traced("wavenet").workload.module.apply(variables, audio, mel)[:, -1].sum()

    reach = np.flatnonzero(np.abs(jax.jit(jax.grad(last))(audio)[0]))
    dilations = [1, 2, 1, 2]
    assert audio.shape[1] - 1 - reach[0] == 2 * sum(dilations)


def test_stacks_restart_the_dilations():
    fn, args = wavenet(batch=1, length=256, stacks=2, layers=6, channels=4).forward()
    jaxpr = jax.make_jaxpr(fn)(*args)
    dilations = [
        eqn.params["rhs_dilation"]
        for eqn in jaxpr.eqns
        if eqn.primitive.name == "conv_general_dilated" and len(eqn.params["rhs_dilation"]) == 1
    ]
    assert dilations == [(1,), (2,), (4,)] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "millions", "gigaflop"), [("S", 8.7, 26.2), ("M", 27.4, 71.7), ("L", 121.5, 280.6)]
)
def test_the_conformers_have_the_published_parameters_and_products(size, millions, gigaflop):
    workload = conformer(batch=1, length=3000, text_length=100, **SIZES[size])
    assert round(workload.num_parameters() / 1e6, 1) == millions
    fn, args = workload.forward()
    graph = trace(fn, *args).graph
    products = [KINDS.index(kind) for kind in ("dot_general", "conv_general_dilated")]
    flop = graph.flops[np.isin(graph.kind, products)].sum()
    # The published number is reached by distances of one sign only, of which there are 750.
    config = workload.module
    other_sign = 2 * 749 * config.hidden * (config.hidden + 750) * config.layers
    assert (flop - other_sign) / 1e9 == pytest.approx(gigaflop, rel=0.01)


def swish(x):
    return x * expit(x)


@pytest.mark.slow
def test_a_conformer_block_is_its_definition():
    length, hidden, heads, kernel = 5, 6, 2, 4
    distances = np.asarray(sinusoids(length - 1, 1 - length, hidden))
    module = Block(heads, kernel)
    variables, (x, _), _ = random_module(module, (2, length, hidden), distances.shape)
    params, statistics = variables["params"], variables["batch_stats"]

    def norm(x, weights):
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        return centred / deviation * weights["scale"] + weights["bias"]

    def dense(x, weights):
        return x @ weights["kernel"] + weights["bias"]

    def feed_forward(x, weights):
        wide = swish(dense(norm(x, weights["LayerNorm_0"]), weights["Dense_0"]))
        return dense(wide, weights["Dense_1"]) / 2

    def encoding(distance):
        angles = distance * 10_000.0 ** (-np.arange(0, hidden, 2) / hidden)
        return np.concatenate([np.sin(angles), np.cos(angles)])

    def attention(x, weights):
        normed, out = norm(x, weights["LayerNorm_0"]), np.zeros_like(x) + weights["out"]["bias"]
        for text, query, head in np.ndindex(2, length, heads):

            def project(name, vectors, head=head):
                bias = weights[name].get("bias", np.zeros((heads, 1)))
                return vectors @ weights[name]["kernel"][:, head] + bias[head]

            asked = project("query", normed[text, query])
            far = np.stack([encoding(query - key) for key in range(length)])
            by_content = project("key", normed[text]) @ (asked + weights["content_bias"][head])
            by_distance = project("distance", far) @ (asked + weights["distance_bias"][head])
            chances = softmax((by_content + by_distance) / math.sqrt(hidden / heads), axis=-1)
            values = project("value", normed[text])
            out[text, query] += chances @ values @ weights["out"]["kernel"][head]
        return out

    def convolution(x, weights):
        both = dense(norm(x, weights["LayerNorm_0"]), weights["Dense_0"])
        gated = both[..., :hidden] / (1 + np.exp(-both[..., hidden:]))
        padded = np.pad(gated, [(0, 0), (1, 2), (0, 0)])  # one tap before the present, two after
        taps = weights["Conv_0"]["kernel"][:, 0]
        y = sum(taps[k] * padded[:, k : k + length] for k in range(kernel))
        y = y + weights["Conv_0"]["bias"]
        seen = statistics["Convolution_0"]["BatchNorm_0"]
        scale = weights["BatchNorm_0"]["scale"] / np.sqrt(seen["var"] + 1e-5)
        y = (y - seen["mean"]) * scale + weights["BatchNorm_0"]["bias"]
        return dense(swish(y), weights["Dense_1"])

    y = x + feed_forward(x, params["FeedForward_0"])
    y = y + attention(y, params["Attention_0"])
    y = y + convolution(y, params["Convolution_0"])
    y = norm(y + feed_forward(y, params["FeedForward_1"]), params["LayerNorm_0"])
    np.testing.assert_allclose(module.apply(variables, x, distances), y, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_conformer_gives_its_blocks_the_distances_of_both_signs():
    apply, variables, (frames,) = compiled("conformer")
    params, statistics = variables["params"], variables["batch_stats"]
    x = Subsampling(8).apply({"params": params["Subsampling_0"]}, frames)
    angles = np.arange(5, -6, -1)[:, None] * 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    distances = jnp.asarray(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), jnp.float32)
    for k in ("Block_0", "Block_1"):
        weights = {"params": params[k], "batch_stats": statistics[k]}
        x = Block(heads=2, kernel=4).apply(weights, x, distances)
    expected = x @ params["pieces"]["kernel"] + params["pieces"]["bias"]
    np.testing.assert_allclose(apply(variables, frames), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_loss_of_a_conformer_sums_all_that_collapses_to_the_text():
    apply, variables, inputs = compiled("conformer")
    chances = softmax(np.asarray(apply(variables, *inputs)), axis=-1)
    *_, loss, texts = stepped("conformer")
    expected = []
    for frames, text in zip(chances, texts.tolist(), strict=True):
        likely = sum(
            math.prod(frames[range(len(path)), path])
            for path in product(range(4), repeat=len(frames))
            if [piece for piece, _ in groupby(path) if piece] == text
        )
        expected.append(-math.log(likely))
    np.testing.assert_allclose(loss, np.mean(expected), rtol=1e-5)
