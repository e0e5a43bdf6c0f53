"""Equations with bodies cost what their bodies cost."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import PartitionSpec

from gopt.graph.tracing import trace

X = jax.ShapeDtypeStruct((8, 8), jnp.float32)
PRODUCT = 2 * 8**3


def flop_of(fn, *args):
    return trace(fn, *args).graph.flops.sum()


def twice(x):
    return x @ x @ x


def test_composite():
    graph = trace(lax.composite(twice, "library.twice"), X).graph
    assert graph.flops.sum() == 2 * PRODUCT
    assert graph.bytes.sum() == 4 * 64 * 5  # the second product reads x again
    assert graph.workspace.max() == 4 * 64  # the first product


def test_linear_call():
    def fn(x):
        return jax.custom_derivatives.linear_call(lambda _, x: x @ x, lambda _, x: x, (), x)

    assert flop_of(fn, X) == PRODUCT


def test_custom_linear_solve_counts_the_solver():
    def fn(a, b):
        return lax.custom_linear_solve(lambda x: a @ x, b, lambda _, b: a @ (a @ b), symmetric=True)

    assert flop_of(fn, X, jax.ShapeDtypeStruct((8,), jnp.float32)) == 2 * 2 * 64


def test_custom_partitioning():
    partitioned = custom_partitioning(twice)
    partitioned.def_partition(lambda *_: None, sharding_rule="i j -> i j")
    assert flop_of(lambda x: partitioned(x), X) == 2 * PRODUCT


def test_optimised_rematerialisation():
    @jax.custom_vjp
    def f(x):
        return twice(x)

    f.defvjp(lambda x: (twice(x), x), lambda x, g: (g,), optimize_remat=True)
    assert flop_of(lambda x: jax.vjp(f, x)[0], X) == 2 * PRODUCT


def test_pallas_kernels_run_once_for_each_step_of_the_grid():
    def kernel(a, b, out):
        @pl.when(pl.program_id(0) == 0)
        def _():
            out[...] = a[...] @ b[...]

    def fn(a, b):
        return pl.pallas_call(
            kernel,
            grid=(2, 3),
            in_specs=[
                pl.BlockSpec((8, 16), lambda i, j: (i, 0)),
                pl.BlockSpec((16, 8), lambda i, j: (0, j)),
            ],
            out_specs=pl.BlockSpec((8, 8), lambda i, j: (i, j)),
            out_shape=jax.ShapeDtypeStruct((16, 24), jnp.float32),
        )(a, b)

    shapes = jax.ShapeDtypeStruct((16, 16), jnp.float32), jax.ShapeDtypeStruct((16, 24), "f4")
    graph = trace(fn, *shapes).graph
    product = 2 * 16 * 16 * 24
    assert product <= graph.flops.sum() <= product + 20  # the index and its comparison
    assert graph.bytes.sum() == 4 * (16 * 16 + 16 * 24 + 16 * 24)


@pytest.mark.parametrize("devices", [1, 4])
def test_shard_map_counts_all_devices(devices):
    mesh = jax.sharding.AbstractMesh((devices,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def fn(x):
        def body(x):
            product, _ = lax.scan(lambda y, _: (x.T @ x, None), x.T @ x, length=2)
            return lax.psum(product, "x")

        spec = PartitionSpec("x")
        return jax.shard_map(
            body, mesh=mesh, in_specs=spec, out_specs=PartitionSpec(), check_vma=False
        )(x)

    graph = trace(fn, X).graph
    assert graph.flops.sum() == 3 * PRODUCT + devices * 64  # shards of the products, and sums


def test_calls_of_any_name_are_inlined():
    eval_jaxpr = getattr(jax._src.core, "eval_jaxpr_p", None)
    if eval_jaxpr is None:
        pytest.skip("a primitive of JAX 0.12")
    body = jax.make_jaxpr(twice)(X)
    graph = trace(lambda x: eval_jaxpr.bind(x, call_jaxpr=body), X).graph
    assert graph.num_ops == 1 + 2
    assert graph.flops.sum() == 2 * PRODUCT
