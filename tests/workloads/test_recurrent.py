"""The recurrent workloads are the published models: cells, states, and ops for each step."""

from collections import Counter
from itertools import pairwise

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from gopt.graph.kinds import KINDS
from gopt.graph.tracing import trace
from gopt.workloads.recommendation.deeprank import deeprank
from gopt.workloads.sequential.gnmt import GNMT, gnmt
from gopt.workloads.sequential.mamba import Mixer, mamba, selective_scan
from gopt.workloads.sequential.recurrent import GRUCell, LSTMCell, zero_carry
from gopt.workloads.sequential.rnnlm import rnnlm
from tests.workloads.tiny import compiled, random_like, random_module


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


def test_the_gru_cell_is_its_definition():
    variables, (state, x), (after, output) = random_module(GRUCell(4), (2, 4), (2, 3))
    gates, candidate = (variables["params"][f"Dense_{k}"] for k in range(2))
    for row in range(2):
        both = np.concatenate([x[row], state[row]])
        reset, keep = np.split(expit(both @ gates["kernel"] + gates["bias"]), 2)
        both = np.concatenate([x[row], reset * state[row]])
        new = np.tanh(both @ candidate["kernel"] + candidate["bias"])
        expected = keep * state[row] + (1 - keep) * new
        np.testing.assert_allclose(after[row], expected, rtol=1e-4)
    np.testing.assert_array_equal(after, output)


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
    ("at", "functions", "products"),
    [
        (lambda n: rnnlm(batch=2, length=n, layers=3, hidden=8, vocabulary=11), 2 * 3, 3),
        (
            lambda n: gnmt(
                batch=2, source_length=n, target_length=2, layers=4, hidden=8, vocabulary=11
            ),
            2 * 5,
            5,
        ),
        (
            lambda n: gnmt(
                batch=2, source_length=2, target_length=n, layers=4, hidden=8, vocabulary=11
            ),
            2 * 4,
            4,
        ),
        (
            lambda n: deeprank(
                batch=2, terms=3, contexts=n, window=3, width=4, hidden=8, vocabulary=11
            ),
            2,
            2 * 2,
        ),
    ],
    ids=["rnnlm", "gnmt-encoder", "gnmt-decoder", "deeprank"],
)
def test_each_time_step_has_its_own_ops(at, functions, products):
    counts = [primitives(*at(n).forward()) for n in (3, 4, 5)]
    assert "scan" not in counts[0] and "while" not in counts[0]
    steps = [after - before for before, after in pairwise(counts)]
    assert steps[0] == steps[1]
    assert steps[0]["tanh"] >= functions
    assert steps[0]["dot_general"] >= products


def swish(x):
    return x * expit(x)


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


@pytest.mark.slow
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


@pytest.mark.slow
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
