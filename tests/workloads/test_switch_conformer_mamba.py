"""Switch Transformer, Conformer and Mamba are the published models: sizes, blocks, losses."""

import math
from functools import cache
from itertools import groupby, product

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.kinds import KINDS
from gopt.sources.jaxpr import trace
from gopt.workloads.base import Workload
from gopt.workloads.conformer import Block, Subsampling, conformer
from gopt.workloads.mamba import Mixer, mamba, selective_scan
from gopt.workloads.relative_attention import sinusoids
from gopt.workloads.switch import Experts, switch

TINY = {
    "switch": switch(
        batch=2,
        source_length=8,
        target_length=6,
        layers=2,
        hidden=16,
        heads=2,
        width=6,
        inner=24,
        experts=3,
        vocabulary=11,
    ),
    "conformer": conformer(
        batch=2, length=24, text_length=2, layers=2, hidden=8, heads=2, kernel=4, vocabulary=3
    ),
    "mamba": mamba(batch=2, length=6, chunk=3, layers=2, hidden=16, vocabulary=11),
}
OUTPUTS = {"switch": [(2, 6, 11), ()], "conformer": [(2, 6, 4)], "mamba": [(2, 6, 11)]}
SIZES = {"S": {"hidden": 144}, "M": {}, "L": {"layers": 18, "hidden": 512, "heads": 8}}


def random_like(seed, tree):
    """Normal floats, of which variances are positive, and integers from 1 to 3."""
    rng = np.random.default_rng(seed)

    def draw(path, x):
        if jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.asarray(rng.integers(1, 4, x.shape), x.dtype)
        values = 0.5 * rng.normal(size=x.shape)
        return jnp.asarray(1 + np.abs(values) if "'var'" in str(path) else values, x.dtype)

    return jax.tree_util.tree_map_with_path(draw, tree)


@cache
def compiled(name):
    """The forward pass of a tiny workload, with one set of random weights and inputs."""
    fn, (variables, *inputs) = TINY[name].forward()
    return jax.jit(fn), random_like(0, variables), random_like(1, tuple(inputs))


@cache
def stepped(name):
    """What a step of a tiny workload returns, and the targets that it was given."""
    _, variables, inputs = compiled(name)
    step, (_, momentum, _, targets) = TINY[name].train_step()
    momentum = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), momentum)
    targets = random_like(2, targets)
    return jax.jit(step)(variables, momentum, inputs, targets), targets


def random_module(module, *shapes):
    """Random weights and float inputs of these shapes for a module, and its output."""
    inputs = random_like(0, tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))
    variables = random_like(1, jax.eval_shape(module.init, jax.random.key(0), *inputs))
    output = module.apply(variables, *inputs)
    return jax.tree.map(np.asarray, (variables, inputs, output))


def softmax(x):
    exps = np.exp(x - x.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


def swish(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("workload", "published"),
    [
        (switch(), 619_339_008),
        (mamba(), 129_135_360),
        (mamba(layers=48, hidden=1024), 371_516_416),
        (conformer(**SIZES["S"]), 8_731_857),
        (conformer(**SIZES["M"]), 27_364_737),
        (conformer(**SIZES["L"]), 121_510_529),
    ],
    ids=lambda value: value.name if isinstance(value, Workload) else None,
)
def test_parameters_agree_with_the_published_number(workload, published):
    assert workload.num_parameters() == published


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
    assert np.ptp(outputs[0]) > 1e-3


@pytest.mark.parametrize("name", TINY)
def test_a_train_step_has_a_gradient_for_every_parameter(name):
    (after, momentum, loss), _ = stepped(name)
    assert np.isfinite(loss)
    chex.assert_tree_all_finite((after, momentum))
    still = [
        jax.tree_util.keystr(path)
        for path, gradient in jax.tree_util.tree_leaves_with_path(momentum)
        if np.abs(gradient).max() < 1e-7
    ]
    # Softmax ignores what it is shifted by, so that a bias of the keys has no gradient.
    assert all("'key']['bias']" in path for path in still), still


@pytest.mark.parametrize(
    ("name", "argument", "causal"),
    [("switch", 1, True), ("switch", 0, False), ("mamba", 0, True), ("conformer", 0, False)],
)
def test_a_later_input_changes_no_earlier_output(name, argument, causal):
    apply, variables, inputs = compiled(name)
    position = inputs[argument].shape[1] // 2
    changed = list(inputs)
    changed[argument] = inputs[argument].at[:, position].add(3)
    before = jax.tree.leaves(apply(variables, *inputs))[0]
    after = jax.tree.leaves(apply(variables, *changed))[0]
    moved = np.abs(after - before).max(axis=(0, 2)) > 1e-6
    assert moved[position * before.shape[1] // inputs[argument].shape[1]]
    assert moved[0] != causal


def test_tokens_go_to_their_expert_first_come_first_served():
    count, capacity = 3, 2
    module = Experts(experts=count, inner=7, capacity=capacity)
    variables, (x,), (made, imbalance) = random_module(module, (2, 8, 5))
    params = variables["params"]
    chances = softmax(x @ params["router"]["kernel"])
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


def test_the_loss_of_a_switch_transformer_counts_the_imbalance():
    apply, variables, inputs = compiled("switch")
    logits, imbalance = apply(variables, *inputs)
    (_, _, loss), targets = stepped("switch")
    chances = softmax(np.asarray(logits))
    right = np.take_along_axis(chances, np.asarray(targets)[..., None], axis=-1)
    assert imbalance > 2  # at least 1 in each of two sparse blocks
    np.testing.assert_allclose(loss, -np.log(right).mean() + 0.01 * imbalance, rtol=1e-5)


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
            chances = softmax((by_content + by_distance) / math.sqrt(hidden / heads))
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


def test_the_loss_of_a_conformer_sums_all_that_collapses_to_the_text():
    apply, variables, inputs = compiled("conformer")
    chances = softmax(np.asarray(apply(variables, *inputs)))
    (_, _, loss), texts = stepped("conformer")
    expected = []
    for frames, text in zip(chances, texts.tolist(), strict=True):
        likely = sum(
            math.prod(frames[range(len(path)), path])
            for path in product(range(4), repeat=len(frames))
            if [piece for piece, _ in groupby(path) if piece] == text
        )
        expected.append(-math.log(likely))
    np.testing.assert_allclose(loss, np.mean(expected), rtol=1e-5)


def state_space(x, step, rates, enter, leave):
    """The recurrence of one text, one token after another."""
    state, outputs = np.zeros(rates.shape), []
    for token in range(len(x)):
        state = np.exp(step[token][:, None] * rates) * state
        state = state + (step[token] * x[token])[:, None] * enter[token]
        outputs.append(state @ leave[token])
    return np.stack(outputs)


def test_a_mamba_mixer_is_its_definition():
    module = Mixer(inner=10, chunk=2)
    variables, (x,), y = random_module(module, (2, 6, 20))
    params = variables["params"]
    both = x @ params["expand"]["kernel"]
    wide, gate = both[..., :10], both[..., 10:]
    taps = params["Conv_0"]["kernel"][:, 0]
    padded = np.pad(wide, [(0, 0), (3, 0), (0, 0)])
    wide = swish(sum(taps[k] * padded[:, k : k + 6] for k in range(4)) + params["Conv_0"]["bias"])
    selection = wide @ params["select"]["kernel"]
    steps, enter, leave = np.split(selection, (2, 18), axis=-1)
    steps = np.log1p(np.exp(steps @ params["step"]["kernel"] + params["step"]["bias"]))
    rates = -np.exp(params["log_rates"])
    read = np.stack(
        [
            state_space(*text[:2], rates, *text[2:])
            for text in zip(wide, steps, enter, leave, strict=True)
        ]
    )
    expected = ((read + params["skip"] * wide) * swish(gate)) @ params["out"]["kernel"]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_mamba_adds_up_the_mixers_of_normed_sequences():
    apply, variables, (token_ids,) = compiled("mamba")
    params = jax.tree.map(np.asarray, variables["params"])

    def norm(x, k):
        mean = (x**2).mean(axis=-1, keepdims=True)
        return x / np.sqrt(mean + 1e-5) * params[f"RMSNorm_{k}"]["scale"]

    words = params["words"]["embedding"]
    x = words[np.asarray(token_ids)]
    for k in range(2):
        x = x + Mixer(inner=32, chunk=6).apply({"params": params[f"Mixer_{k}"]}, norm(x, k))
    expected = norm(x, 2) @ words.T
    np.testing.assert_allclose(apply(variables, token_ids), expected, rtol=1e-4, atol=1e-4)


def test_chunks_change_neither_outputs_nor_gradients():
    shapes = [(2, 6, 3), (2, 6, 3), (3, 4), (2, 6, 4), (2, 6, 4)]
    args = random_like(0, tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))

    def run(*args, chunk):
        outputs = selective_scan(*args, chunk=chunk)
        return jnp.square(outputs).sum(), outputs

    grad = jax.value_and_grad(run, argnums=tuple(range(5)), has_aux=True)
    whole = grad(*args, chunk=6)
    for text in range(2):
        x, step, rates, enter, leave = map(np.asarray, args)
        expected = state_space(x[text], step[text], rates, enter[text], leave[text])
        np.testing.assert_allclose(whole[0][1][text], expected, rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_close(grad(*args, chunk=2), whole, rtol=1e-3, atol=1e-5)


def test_a_step_of_mamba_keeps_only_the_states_between_chunks():
    layers, chunks = 3, 4
    workload = mamba(batch=1, length=32, chunk=8, layers=layers, hidden=16, vocabulary=11)
    traces = [trace(fn, *args) for fn, args in (workload.forward(), workload.train_step())]
    scans = [(traced.graph.kind == KINDS.index("scan")).sum() for traced in traces]
    assert scans == [layers, 2 * layers]
    graph = traces[1].graph
    made = KINDS.index("scan") == graph.kind[graph.producer]
    assert graph.size[made].max() == 4 * chunks * 32 * 16  # float32, channels, states


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: switch(layers=1), "layers"),
        (lambda: switch(experts=0), "experts"),
        (lambda: switch(target_length=0), "target_length"),
        (lambda: switch(capacity_factor=0), "capacity_factor"),
        (lambda: conformer(heads=7), "heads"),
        (lambda: conformer(hidden=7, heads=7), "hidden"),
        (lambda: conformer(length=1602), "length"),
        (lambda: conformer(length=16, text_length=5), "text_length"),
        (lambda: conformer(kernel=0), "kernel"),
        (lambda: mamba(length=100), "length"),
        (lambda: mamba(chunk=0), "chunk"),
        (lambda: mamba(layers=0), "layers"),
    ],
)
def test_bad_sizes_raise(build, field):
    with pytest.raises(ValueError, match=f"^{field}: expected"):
        build()
