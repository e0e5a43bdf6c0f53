"""Cost of single XLA instructions: opcodes, asynchronous pairs, and library calls."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from gopt.graph.graph import check
from gopt.graph.kinds import KINDS
from gopt.graph.tracing import trace
from gopt.sources import hlo
from gopt.xla import hlo_cost, hlo_shapes, hlo_text

# All opcodes of XLA, from xla/hlo/ir/hlo_opcode.h (commit 0725a3a9), with the older "bit-reverse".
# The halves of asynchronous pairs are left out, except "async-start".
OPCODES = (
    *("abs", "acos", "acosh", "add", "add-dependency", "after-all", "all-gather"),
    *("all-reduce", "all-to-all", "and", "asin", "asinh", "async-start", "atan", "atan2"),
    *("atanh", "batch-norm-grad", "batch-norm-inference", "batch-norm-training"),
    *("bit-reverse", "bitcast", "bitcast-convert", "broadcast", "call", "cbrt", "ceil"),
    *("cholesky", "clamp", "collective-broadcast", "collective-permute", "collective-reduce"),
    *("compare", "complex", "concatenate", "conditional", "constant", "convert"),
    *("convolution", "copy", "cosh", "cosine", "count-leading-zeros", "custom-call", "divide"),
    *("domain", "dot", "dynamic-reshape", "dynamic-slice", "dynamic-update-slice", "erf"),
    *("exponential", "exponential-minus-one", "fft", "floor", "fusion", "gather"),
    *("get-dimension-size", "get-tuple-element", "imag", "infeed", "iota", "is-finite", "log"),
    *("log-plus-one", "logistic", "map", "maximum", "minimum", "mulhi", "multiply", "negate"),
    *("not", "opt-barrier", "or", "outfeed", "pad", "parameter", "partition-id", "popcnt"),
    *("power", "ragged-all-to-all", "ragged-dot", "real", "recv", "reduce"),
    *("reduce-precision", "reduce-scatter", "reduce-window", "remainder", "replica-id"),
    *("reshape", "reverse", "rng", "rng-bit-generator", "rng-get-and-update-state"),
    *("round-nearest-afz", "round-nearest-even", "rsqrt", "scaled-dot", "scan", "scatter"),
    *("select", "select-and-scatter", "send", "set-dimension-size", "shift-left"),
    *("shift-right-arithmetic", "shift-right-logical", "shuffle", "sign", "sine", "sinh"),
    *("slice", "sort", "sqrt", "stochastic-convert", "subtract", "tan", "tanh", "topk"),
    *("transpose", "triangular-solve", "tuple", "while", "xor"),
)


def test_every_opcode_has_a_cost_or_is_listed_as_unknown():
    assert not hlo_cost.COUNTED & hlo_cost.UNKNOWN
    assert set(OPCODES) == hlo_cost.COUNTED | hlo_cost.UNKNOWN


def module(*lines, entry="f32[8]"):
    """Text of a module: instructions after a parameter `x`, the last one as the result."""
    *body, root = lines
    text = "\n".join(f"  {line}" for line in body)
    return f"""HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}}
square {{
  p = f32[8,8] parameter(0)
  ROOT product = f32[8,8] dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
ENTRY main {{
  x = {entry} parameter(0)
{text}
  ROOT {root}
}}
"""


def graph_of(*lines, entry="f32[8]"):
    graph = hlo.hlo_graph(module(*lines, entry=entry))
    check(graph)
    return graph


@pytest.mark.parametrize(
    ("instruction", "entry", "flop"),
    [
        ("c64[3,64] fft(x), fft_type=FFT, fft_length={64}", "c64[3,64]", 5 * 192 * 6),
        ("c64[3,8,64] fft(x), fft_type=IFFT, fft_length={8,64}", "c64[3,8,64]", 5 * 1536 * 9),
        ("c64[3,33] fft(x), fft_type=RFFT, fft_length={64}", "f32[3,64]", 2.5 * 192 * 6),
        ("f32[3,64] fft(x), fft_type=IRFFT, fft_length={64}", "c64[3,33]", 2.5 * 192 * 6),
        ("f32[5,30,30] cholesky(x), lower=true", "f32[5,30,30]", 5 * 9000),
        ("f32[30,30] triangular-solve(x, x), left_side=true", "f32[30,30]", 27000),
        ("f32[8,8] dot(x, x)", "f32[8]", 128),
        ("f32[8] dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0}", "f32[8]", 16),
        ("f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "f32[8]", 16),
        ("f32[64,100] sort(x), dimensions={1}, to_apply=add", "f32[64,100]", 6400 * 7),
        ("(f32[8,2], s32[8,2]) topk(x), k=2, largest=true", "f32[8,40]", 320),
        ("(f32[8,9], s32[8,9]) topk(x), k=9, largest=true", "f32[8,40]", 320 * 4),
        ("f32[8] reduce-precision(x), exponent_bits=5, mantissa_bits=2", "f32[8]", 8),
        ("f32[8] atan(x)", "f32[8]", 8),
        ("f32[2] reduce-scatter(x), dimensions={0}, to_apply=add", "f32[8]", 2),
        ('f32[8] custom-call(x), custom_call_target="a_library"', "f32[8]", 0),
    ],
)
def test_flop(instruction, entry, flop):
    assert graph_of(f"y = {instruction}", entry=entry).flops.sum() == flop


def test_scaled_dot():
    graph = graph_of(
        "scale = f8e8m0fnu[1,128,8] parameter(1)",
        "y = f32[1,128,128] scaled-dot(x, x, scale, scale), lhs_batch_dims={0}, "
        "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}",
        entry="f8e4m3fn[1,128,256]",
    )
    assert graph.flops.sum() == 2 * 128 * 128 * 256


@pytest.mark.parametrize(
    ("y", "result", "axis", "groups"),
    [
        ("[3,4,5]", "[10,5]", 1, ", rhs_group_dims={0}"),  # each row is in one group
        ("[10,5]", "[3,4,5]", 0, ""),  # each row is contracted in one group
    ],
)
def test_ragged_products_count_each_row_in_its_group(y, result, axis, groups):
    graph = graph_of(
        "sizes = s32[3] parameter(1)",
        f"y = f32{y} parameter(2)",
        f"z = f32{result} ragged-dot(x, y, sizes), lhs_contracting_dims={{{axis}}}, "
        f"rhs_contracting_dims={{{axis}}}, lhs_ragged_dims={{0}}{groups}",
        entry="f32[10,4]",
    )
    assert graph.flops.sum() == 2 * 10 * 4 * 5


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize(
    ("start", "entry", "kind", "flop", "size"),
    [
        (
            "((f32[8]), f32[2]) reduce-scatter-start(x), dimensions={0}, to_apply=add",
            *("f32[8]", "reduce_scatter", 2, 8),
        ),
        ("(f32[8], f32[16]) all-gather-start(x), dimensions={0}", "f32[8]", "all_gather", 0, 64),
        ("f32[8] all-reduce-start(x), to_apply=add", "f32[8]", "psum", 8, 32),
        ("(f32[8], f32[8], u32[]) collective-permute-start(x)", "f32[8]", "ppermute", 0, 32),
        ("(f32[8], f32[8], u32[]) copy-start(x)", "f32[8]", "copy", 0, 32),
        ("((f32[8]), f32[8], u32[]) all-to-all-start(x)", "f32[8]", "all_to_all", 0, 32),
        (
            "((f32[8,8]), f32[8,8], u32[]) call-start(x), to_apply=square",
            *("f32[8,8]", "dot_general", 1024, 256),
        ),
        (
            "((f32[8,8]), f32[8,8], u32[]) async-start(x), calls=square",
            *("f32[8,8]", "dot_general", 1024, 256),
        ),
        (
            "((f32[8,8]), f32[8,8], u32[]) fusion-start(x), kind=kLoop, calls=square",
            *("f32[8,8]", "fusion", 1024, 256),
        ),
        (
            '((f32[8,8]), f32[8,8], u32[]) custom-call-start(x), custom_call_target="TopK"',
            *("f32[8,8]", "custom_call", 64 * 3, 256),
        ),
        ("((f32[8]), f32[2], u32[]) slice-start(x), slice={[0:2]}", "f32[8]", "slice", 0, 8),
    ],
)
def test_an_asynchronous_start_costs_what_it_starts(start, entry, kind, flop, size, update):
    shape, _, rest = start.rpartition("-start")[0].rpartition(" ")
    result = {64: "f32[16]", 32: "f32[8]", 8: "f32[2]", 256: "f32[8,8]"}[size]
    waiting = [f"u = {shape} {rest}-update(s)"] if update else []
    graph = graph_of(
        f"s = {start}", *waiting, f"d = {result} {rest}-done({'u' if update else 's'})", entry=entry
    )
    assert [KINDS[k] for k in graph.kind] == ["input", kind]
    assert graph.flops.tolist() == [0, flop]
    assert graph.size[1:].tolist() == [size]
    moved = 2 * size if kind == "slice" else graph.size.sum()
    assert graph.bytes[1] == moved


def test_an_asynchronous_start_alone_has_the_flop_of_its_result():
    text = module(
        "s = ((f32[8]), f32[2]) reduce-scatter-start(x), dimensions={0}, to_apply=add",
        "d = f32[2] reduce-scatter-done(s)",
    )
    parsed = hlo_text.parse(text)
    start = parsed.entry.instructions["s"]
    assert hlo_cost.flops(parsed, parsed.entry, start) == 2


def test_optimization_barriers_are_views():
    def fn(x):
        return lax.optimization_barrier((x + 1, x * 2))

    graph = hlo.lowered_graph(jax.jit(fn).lower(jax.ShapeDtypeStruct((8,), "f4")))
    assert [KINDS[k] for k in graph.kind] == ["input", "add", "mul"]


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("s4", 4), ("u4", 4), ("s2", 2), ("u2", 2), ("f4e2m1fn", 4), ("f8e4m3fn", 8), ("pred", 8)],
)
def test_small_elements_are_packed(dtype, bits):
    for size in (0, 1, 3, 65536):
        array = hlo_shapes.Array(dtype, (size,))
        assert hlo_cost.array_bytes(array) == -(-size * bits // 8)


def test_packed_arguments_have_the_bytes_of_a_trace():
    x = jax.ShapeDtypeStruct((256, 256), jnp.int4)

    def fn(x):
        return x + x

    lowered = jax.jit(fn).lower(x)
    for graph in (
        trace(fn, x).graph,
        hlo.lowered_graph(lowered),
        hlo.compiled_graph(lowered.compile()),
    ):
        assert graph.size.tolist() == [32768, 32768]
        assert graph.bytes.tolist() == [0, 65536]


GEMM = (
    '(f32[{m},{n}], s8[1024]) custom-call(x, y), custom_call_target="__cublas$gemm", '
    'backend_config={{"gemm_backend_config":{{"alpha_real":1,"dot_dimension_numbers":'
    '{{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],'
    '"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}}}}'
)


def test_products_of_libraries_count_by_their_contraction():
    graph = graph_of(
        "y = f32[32,8] parameter(1)", "z = " + GEMM.format(m=16, n=8), entry="f32[16,32]"
    )
    assert graph.flops.sum() == 2 * 16 * 8 * 32


A = jax.ShapeDtypeStruct((12, 12), "f4")
TALL, WIDE = jax.ShapeDtypeStruct((12, 5), "f4"), jax.ShapeDtypeStruct((5, 12), "f4")
BATCH = jax.ShapeDtypeStruct((3, 12, 5), "f4")
LINEAR_ALGEBRA = {
    **{
        f"{name} {shape.shape}": (fn, (shape,))
        for (name, fn), shape in itertools.product(
            {
                "qr": jnp.linalg.qr,
                "full qr": lambda a: jnp.linalg.qr(a, mode="complete"),
                "svd": jnp.linalg.svd,
                "thin svd": lambda a: jnp.linalg.svd(a, full_matrices=False),
                "svdvals": jnp.linalg.svdvals,
                "lu": lax.linalg.lu,
            }.items(),
            (A, TALL, WIDE, BATCH),
        )
    },
    "cholesky": (jnp.linalg.cholesky, (A,)),
    "eigh": (jnp.linalg.eigh, (A,)),
    "eig": (jnp.linalg.eig, (A,)),
    "eigvals": (jnp.linalg.eigvals, (A,)),
    "schur": (jax.scipy.linalg.schur, (A,)),
    "hessenberg": (lax.linalg.hessenberg, (A,)),
    "tridiagonal": (lax.linalg.tridiagonal, (A,)),
    "triangular": (lax.linalg.triangular_solve, (A, WIDE)),
    "complex eigh": (jnp.linalg.eigh, (jax.ShapeDtypeStruct((12, 12), "c8"),)),
    "tridiagonal_solve": (
        lax.linalg.tridiagonal_solve,
        (*[jax.ShapeDtypeStruct((12,), "f4")] * 3, TALL),
    ),
}


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_calls_of_lapack_count_like_the_primitives(name):
    fn, args = LINEAR_ALGEBRA[name]
    graph = hlo.lowered_graph(jax.jit(fn).lower(*args))
    calls = sum(
        f for k, f in zip(graph.kind, graph.flops, strict=True) if KINDS[k] == "custom_call"
    )
    traced = trace(fn, *args)
    kinds = {"qr", "svd", "lu", "cholesky", "eigh", "eig", "schur", "hessenberg", "tridiagonal"}
    kinds |= {"triangular_solve", "tridiagonal_solve"}
    expected = sum(
        flop
        for op, flop in zip(traced.names, traced.graph.flops, strict=True)
        if op.rpartition("/")[2] in kinds
    )
    assert calls == pytest.approx(expected, rel=2e-3) and calls > 0
