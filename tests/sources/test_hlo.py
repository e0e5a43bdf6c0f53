import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gopt.graph.graph import check, is_input
from gopt.graph.kinds import KINDS
from gopt.sources import hlo

pytestmark = pytest.mark.optimized

F32 = jnp.float32


def shape(*dims, dtype=F32):
    return jax.ShapeDtypeStruct(dims, dtype)


def kinds(graph):
    return [KINDS[k] for k in graph.kind]


def count(graph, kind):
    return kinds(graph).count(kind)


def graphs(fn, *args, **settings):
    """The graphs before and after optimisation, both checked."""
    lowered = jax.jit(fn, **settings).lower(*args)
    pair = hlo.lowered_graph(lowered), hlo.compiled_graph(lowered.compile())
    for graph in pair:
        check(graph)
    return pair


def mlp(params, x):
    w1, b1, w2 = params
    return jnp.tanh(x @ w1 + b1) @ w2


def mlp_step(params, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((mlp(p, x) - y) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


MLP = ((shape(8, 16), shape(16), shape(16, 4)), shape(32, 8), shape(32, 4))


def cnn_step(params, x, y):
    def objective(params):
        k1, k2, w = params
        layout = ("NHWC", "HWIO", "NHWC")
        h = lax.conv_general_dilated(x, k1, (2, 2), "SAME", dimension_numbers=layout)
        h = jax.nn.relu(h)
        h = lax.conv_general_dilated(h, k2, (1, 1), "VALID", dimension_numbers=layout)
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        logits = jax.nn.log_softmax(h.reshape(h.shape[0], -1) @ w)
        return -jnp.mean(jnp.sum(logits * jax.nn.one_hot(y, 10), -1))

    loss, grads = jax.value_and_grad(objective)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


CNN = (
    (shape(3, 3, 3, 8), shape(3, 3, 8, 16), shape(144, 10)),
    shape(4, 16, 16, 3),
    shape(4, dtype=jnp.int32),
)


def sum_of_sizes(tree):
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


@pytest.mark.parametrize(("step", "args"), [(mlp_step, MLP), (cnn_step, CNN)])
def test_train_step(step, args):
    lowered = jax.jit(step, donate_argnums=0).lower(*args)
    compiled = lowered.compile()
    before, after = hlo.lowered_graph(lowered), hlo.compiled_graph(compiled)
    for graph, program in ((before, lowered), (after, compiled)):
        check(graph)
        made_by_input = np.asarray(is_input(graph))[graph.producer]
        assert is_input(graph).sum() == len(jax.tree.leaves(args))
        assert graph.size[made_by_input].sum() == sum_of_sizes(args)
        # What is donated may be overwritten; the batch may not.
        assert graph.size[made_by_input & graph.pinned].sum() == sum_of_sizes(args[1:])
        outputs = graph.pinned & ~made_by_input
        assert graph.size[outputs].sum() == sum_of_sizes(jax.eval_shape(step, *args))
        # XLA counts transcendental functions apart; gopt counts each as one flop.
        costs = program.cost_analysis()
        assert graph.flops.sum() == costs["flops"] + costs["transcendentals"]
        # Before optimisation, XLA counts every broadcast and reshape as if it were stored.
        stored = graph.bytes.sum() / costs["bytes accessed"]
        assert 0.97 < stored < 1.05 if graph is after else 0.8 < stored < 1
    assert "fusion" not in kinds(before)
    assert count(after, "fusion") > 3
    assert int(after.num_ops) < int(before.num_ops)


def test_kinds_and_flops_of_an_mlp():
    before, _ = graphs(mlp, *MLP[:2])
    names = kinds(before)
    assert names.count("dot_general") == 2
    assert names.count("tanh") == 1
    assert not {"unknown", "reshape", "tuple", "call"} & set(names)
    flops = [before.flops[names.index(k)] for k in ("dot_general", "tanh", "add")]
    assert flops == [2 * 32 * 8 * 16, 32 * 16, 32 * 16]
    dot = names.index("dot_general")
    assert before.bytes[dot] == 4 * (32 * 8 + 8 * 16 + 32 * 16)


@pytest.mark.parametrize(
    ("stride", "padding", "lhs_dilation", "rhs_dilation", "groups"),
    [
        ((1, 1), "VALID", (1, 1), (1, 1), 1),
        ((2, 3), "SAME", (1, 1), (1, 1), 2),
        ((1, 2), ((3, 0), (-1, 2)), (3, 2), (2, 1), 4),
    ],
)
def test_convolution_flops_are_those_of_xla(stride, padding, lhs_dilation, rhs_dilation, groups):
    def conv(x, k):
        return lax.conv_general_dilated(
            x,
            k,
            stride,
            padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            feature_group_count=groups,
            dimension_numbers=("NCHW", "HWIO", "NHWC"),
        )

    lowered = jax.jit(conv).lower(shape(2, 8, 9, 7), shape(3, 2, 8 // groups, 12))
    graph = hlo.lowered_graph(lowered)
    assert graph.flops.sum() == lowered.cost_analysis()["flops"]


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (lambda x: x.max(0), "reduce_max"),
        (lambda x: x.argmax(0), "reduce"),
        (lambda x: jnp.any(x > 0, 1), "reduce_or"),
        (lambda x: lax.cumsum(x, 1), "reduce_window_sum"),
        (lambda x: x.at[jnp.array([1, 3])].add(1.0), "scatter_add"),
        (lambda x: x[jnp.array([1, 3])], "gather"),
        (lambda x: lax.sort(x, dimension=1), "sort"),
        (lambda x: jnp.where(x > 0, x, -x), "select_n"),
        (lambda x: x.astype(jnp.bfloat16), "convert_element_type"),
    ],
)
def test_kinds(fn, kind):
    before, after = graphs(fn, shape(6, 10))
    assert kind in kinds(before)
    assert "unknown" not in kinds(before) + kinds(after)


def scan(weights, x, ys):
    def body(carry, y):
        return jnp.tanh(carry @ weights) + y, carry.sum()

    return lax.scan(body, x, ys)


@pytest.mark.parametrize("length", [7, 50])
def test_scan_costs_all_its_iterations(length):
    before, after = graphs(scan, shape(16, 16), shape(4, 16), shape(length, 4, 16))
    body = 2 * 4 * 16 * 16 + 3 * 4 * 16  # dot; tanh, add, sum
    for graph in (before, after):
        assert count(graph, "while") == 1
        loop = kinds(graph).index("while")
        assert length * body <= graph.flops[loop] < length * (body + 8)
        # Inputs of the scan are read a slice at a time, and no tensor is made of them again.
        per_step = graph.bytes[loop] / length
        assert 4 * 16 * 16 < per_step < 8000
        made = graph.size[graph.producer == loop]
        assert sorted(made) == sorted([4, 4 * 4 * 16, 4 * length])
        assert 0 < graph.workspace[loop] < 2000
        inputs = np.asarray(is_input(graph))[graph.producer]
        read = set(graph.tensor[graph.consumer == loop])
        assert set(np.flatnonzero(inputs & (graph.size == 4 * 16 * 16))) & read


def test_workspace_of_a_loop_is_the_peak_of_its_body():
    def fn(wide, narrow, x):
        return lax.scan(lambda x, _: (jnp.exp(x @ wide) @ narrow, None), x, length=3)[0]

    before, after = graphs(fn, shape(8, 1000), shape(1000, 8), shape(4, 8))
    hidden = 4 * 4 * 1000
    assert 2 * hidden <= before.workspace[kinds(before).index("while")] < 2 * hidden + 200
    assert hidden <= after.workspace[kinds(after).index("while")]


def test_while_without_a_known_trip_count_counts_once():
    def collatz(n, x):
        def body(state):
            n, x = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), jnp.tanh(x)

        return lax.while_loop(lambda state: state[0] > 1, body, (n, x))

    before, _ = graphs(collatz, shape(dtype=jnp.int32), shape(1000))
    assert 1000 <= before.flops[kinds(before).index("while")] < 1100


def test_conditional_costs_its_most_expensive_branch():
    def branch(i, x):
        return lax.switch(i, [lambda x: x, lambda x: x @ x, lambda x: jnp.exp(x)], x)

    for graph in graphs(branch, shape(dtype=jnp.int32), shape(32, 32)):
        cond = kinds(graph).index("cond")
        assert graph.flops[cond] == 2 * 32**3


def test_tuple_outputs_and_passed_through_arguments():
    def fn(x, y):
        return (x, (y + x, [y + x, y * 2])), x.reshape(2, 3)

    before, after = graphs(fn, shape(6), shape(6))
    for graph in (before, after):
        read = np.isin(np.arange(int(graph.num_tensors)), graph.tensor)
        assert graph.pinned[~read].all()
        assert graph.pinned[np.asarray(is_input(graph))[graph.producer]].all()
    assert count(before, "add") == 2
    assert before.pinned.sum() == 2 + 2 + 1


def test_what_readers_make_on_the_fly_is_no_op_unless_it_is_an_output():
    def fn(x):
        scale = x.sum() * jnp.ones((4, 5)) + jnp.arange(5.0)
        return scale, jnp.zeros((7, 3)), jnp.broadcast_to(x[0], (11,))

    before, after = graphs(fn, shape(6))
    assert sorted(before.size[before.pinned]) == sorted([4 * 6, 4 * 20, 4 * 21, 4 * 11])
    assert count(before, "broadcast_in_dim") == 2
    assert count(before, "iota") == count(before, "constant") == 0
    assert sorted(after.size[after.pinned]) == sorted(before.size[before.pinned])
    scaled = kinds(before).index("add")
    assert (
        before.bytes[scaled] == 4 * 20 + before.size[before.tensor[before.consumer == scaled]].sum()
    )


def test_constants_are_pinned():
    table = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    before, _ = graphs(lambda x: x @ table, shape(2, 3))
    constant = kinds(before).index("constant")
    assert before.size[before.producer == constant].tolist() == [48]
    assert before.pinned[before.producer == constant].all()
    assert before.bytes[constant] == 0


def test_slices_and_updates_move_what_they_touch():
    def fn(x, i):
        row = lax.dynamic_slice(x, (i, 0), (1, 10))
        return lax.dynamic_update_slice(x, row + 1, (i, 0)), x[3:5]

    before, _ = graphs(fn, shape(100, 10), shape(dtype=jnp.int32))
    bytes = {k: b for k, b in zip(kinds(before), before.bytes, strict=True)}
    assert 80 <= bytes["dynamic_slice"] <= 88
    assert 80 <= bytes["dynamic_update_slice"] <= 88
    assert bytes["slice"] == 160


def test_views_are_no_ops():
    before, after = graphs(lambda x: jnp.tanh(x.reshape(3, 4)[None]).reshape(12), shape(2, 6))
    assert kinds(before) == ["input", "tanh"]
    assert kinds(after) == ["input", "fusion"]


def test_donated_arguments_are_not_pinned():
    def fn(x, y):
        return x + 1, y + 1

    args = shape(8), shape(8)
    for donated in ((), (0,), (1,), (0, 1)):
        for graph in graphs(fn, *args, donate_argnums=donated):
            made_by_input = np.asarray(is_input(graph))[graph.producer]
            assert (graph.pinned & made_by_input).sum() == 2 - len(donated)


def test_dtypes_and_sizes():
    def fn(a, b, c, d):
        return a.astype(F32) + b.astype(F32) + c.astype(F32) + d

    types = (jnp.bool_, jnp.bfloat16, jnp.uint8, F32)
    before, _ = graphs(fn, *(shape(10, dtype=dtype) for dtype in types))
    made_by_input = np.asarray(is_input(before))[before.producer]
    assert sorted(before.size[made_by_input]) == [10, 10, 20, 40]
    assert before.rank.tolist() == [1] * int(before.num_tensors)


ASYNC = """
HloModule m, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%wrapped (p: f32[16]) -> f32[16] {
  %p = f32[16]{0:T(8,128)} parameter(0)
  ROOT %tanh = f32[16]{0} tanh(%p), metadata={op_name="a {(\\" b, c"}
}, execution_thread="other"

ENTRY %main (x: f32[8]) -> f32[16] {
  %x = f32[8]{0} parameter(0), sharding={devices=[2]<=[2]}
  %gather = (f32[8]{0}, f32[16]{0}) all-gather-start(%x), dimensions={0}
  %zero = f32[] constant(0), backend_config="{\\"n\\":[1,2]}"
  %gathered = f32[16]{0} all-gather-done((f32[8]{0}, f32[16]{0}) %gather)
  %go = ((f32[16]{0}), /*index=1*/f32[16]{0}, s32[]) async-start(%gathered), calls=%wrapped
  %went = f32[16]{0} async-done(%go)
  ROOT %sum.1 = f32[16]{0} all-reduce(%went), to_apply=%add
}
"""


def test_asynchronous_ops_are_one_op():
    graph = hlo.hlo_graph(ASYNC)
    check(graph)
    assert kinds(graph) == ["input", "all_gather", "tanh", "psum"]
    assert graph.size.tolist() == [32, 64, 64, 64]
    assert graph.flops.tolist() == [0, 0, 16, 16]
    assert graph.pinned.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no ENTRY computation"),
        (ASYNC[: ASYNC.index("%went")], "inside the computation of line 15: it is truncated"),
        (ASYNC[: ASYNC.index("all-gather-start(%x") + 5], "line 17 is no instruction"),
        (ASYNC.replace("tanh(%p)", "tanh(%q)"), "line 12: operand 'q' is not defined above"),
        (ASYNC.replace("calls=%wrapped", "calls=%w"), "line 20: calls 'w' is not defined above"),
        (ASYNC.replace("ROOT %sum.1", "%sum.1"), "line 23: the computation of line 15 has no ROOT"),
        (ASYNC.replace("f32[] add(", "add("), "line 7 is no instruction"),
        (ASYNC.replace("%x = f32[8]", "%x = f32[?,4]"), "line 16 is no instruction"),
        (ASYNC.replace("%x = f32[8]", "%x = f32[?,4]"), "a dimension is '?': expected a whole"),
        (ASYNC.replace("%x = f32[8]", "%x = f32[-8]"), "a dimension is '-8'"),
        (ASYNC.replace("%x = f32[8]", "%x = f32[8,]"), "a dimension is ''"),
        (ASYNC.replace("%x = f32[8]", f"%x = f32[{'9' * 5000}]"), "line 16 is no instruction"),
        (ASYNC.replace("%x = f32[8]", f"%x = f32[{'9' * 18}]"), "expected one that fits"),
        (ASYNC.replace("%x = f32[8]{0}", "%x = b(f32[8])"), "line 16 is no instruction"),
        (ASYNC.replace("%x = f32[8]{0}", "%x = b(f32[8])"), "expected a shape such as f32[2,3]"),
        (ASYNC.replace("%x = f32[8]", "%x = f33[8]"), "f33 is no element type of XLA"),
        (ASYNC.replace("%x = f32[8]{0}", "%x = " + "(" * 9999), "line 16 is no instruction"),
        (ASYNC.replace("parameter(0), shard", "parameter(1), shard"), "line 15: the computation"),
        (ASYNC.replace("parameter(0), shard", "parameter(x), shard"), "line 15: the computation"),
        (ASYNC.replace("%b = f32[] parameter(1)", "%b = f32[] parameter(0)"), "line 4: the comp"),
        (ASYNC.replace("%b = f32[]", "%a = f32[]"), "line 6: instruction 'a' is a second one"),
        (ASYNC.replace("%wrapped (p", "%add (p"), "line 10: computation 'add' is a second one"),
        (ASYNC.replace("%wrapped (p: f32[16]) -> f32[16] {", ""), "line 11: an instruction outs"),
        (ASYNC.replace(", calls=%wrapped", ""), "line 20: async-start 'go' is malformed: ValueE"),
        (ASYNC.replace("all-reduce(%went)", "compare(%went)"), "line 22: compare 'sum.1' is malf"),
        (ASYNC.replace("all-reduce(%went)", "dot(%went)"), "line 22: dot 'sum.1' is malformed"),
        (ASYNC.replace("all-reduce(%went)", "scatter()"), "line 22: scatter 'sum.1' is"),
        (ASYNC.replace("all-reduce(%went)", "conditional(%went)"), "line 22: conditional 'sum.1'"),
        (ASYNC.replace("all-reduce(%went)", "get-tuple-element(%went)"), "line 22: get-tuple-el"),
        (
            ASYNC.replace("m, is", "m, input_output_alias={ {0}: (3, {}, may-alias) }, is"),
            "a donated parameter is missing",
        ),
        (
            ASYNC.replace("m, is", "m, input_output_alias={ {0}: (0, {1}, may-alias) }, is"),
            "line 16: parameter 'x' is malformed: ValueError index path (1,)",
        ),
        (ASYNC.replace("m, is", "m, alias={, is"), "line 2 is no header"),
    ],
)
def test_bad_text(text, message):
    with pytest.raises(ValueError) as error:
        hlo.hlo_graph(text)
    assert message in str(error.value)


def nested(depth, calls):
    """Return a module whose computations call the one before them `calls` times."""
    names = ["c0", *(f"c{k}" for k in range(1, depth))]
    text = "HloModule m\n\n"
    for k, name in enumerate(names):
        entry = "ENTRY " if k == depth - 1 else ""
        text += f"{entry}%{name} (p: f32[8]) -> f32[8] {{\n  %p.0 = f32[8] parameter(0)\n"
        for i in range(calls):
            body = f"call(%p.{i}), to_apply=%c{k - 1}" if k else f"tanh(%p.{i})"
            text += f"  {'ROOT ' * (i == calls - 1)}%p.{i + 1} = f32[8] {body}\n"
        text += "}\n\n"
    return text


def test_calls_that_are_too_deep_or_too_many_are_refused():
    assert int(hlo.hlo_graph(nested(99, 1)).num_ops) == 2
    assert int(hlo.hlo_graph(nested(6, 3)).num_ops) == 1 + 3**6
    with pytest.raises(ValueError, match="calls 101 deep: expected 4194304 at most, and 100 deep"):
        hlo.hlo_graph(nested(300, 1))
    with pytest.raises(ValueError, match="instructions in calls 14 deep"):
        hlo.hlo_graph(nested(30, 3))
