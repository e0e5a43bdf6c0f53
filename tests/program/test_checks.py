"""Functions that cannot be compiled or run by themselves on one device are refused by name."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType

import gopt
from gopt.program.checks import check_one_device
from gopt.program.program import trace_program

pytestmark = pytest.mark.small

X = jnp.linspace(-1.0, 1.0, 16).reshape(4, 4)
QUICK = {
    gopt.schedule: {"evaluations": 2, "search": "heft"},
    gopt.fuse: {"evaluations": 1, "repeats": 1},
    gopt.rewrite: {"repeats": 1},
}


@pytest.mark.parametrize("verb", QUICK)
@pytest.mark.parametrize(
    "outer", [jax.jit, jax.vmap, lambda f: jax.grad(lambda x: jnp.sum(f(x))), jax.checkpoint]
)
def test_verbs_refuse_calls_inside_other_functions(verb, outer):
    call = r"expected a call outside of jax\.jit, jax\.grad and jax\.vmap"
    with pytest.raises(ValueError, match=r"args\[0\]\['x'\] is a tracer: " + call):
        outer(lambda x: verb(lambda each: jnp.sin(each["x"]), {"x": x}, **QUICK[verb]))(X)
    with pytest.raises(ValueError, match="captured array 0 is a tracer: " + call):
        outer(lambda x: verb(lambda y: jnp.sin(y @ y) + x, X, **QUICK[verb]))(X)


@pytest.mark.parametrize("verb", QUICK)
def test_verbs_refuse_calls_without_tracers_inside_jit(verb):
    with pytest.raises(ValueError, match=r"the call is traced: expected a call outside"):
        jax.jit(lambda x: verb(jnp.sin, X, **QUICK[verb]))(X)


def test_deleted_arrays_are_named():
    deleted = X + 0
    deleted.delete()
    for verb in (gopt.fuse, gopt.rewrite):  # these run the function
        with pytest.raises(ValueError, match=r"args\[0\]\[1\] was deleted, perhaps donated before"):
            verb(lambda xs: xs[0] @ xs[1], [X, deleted], **QUICK[verb])
    for verb, options in QUICK.items():
        with pytest.raises(ValueError, match="captured array 0 was deleted"):
            verb(lambda x: x @ deleted, X, **options)
    assert gopt.schedule(jnp.sin, deleted, **QUICK[gopt.schedule]).before.memory


def test_one_device_may_be_asked_for():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Auto,))
    here = jax.NamedSharding(mesh, jax.P("i"))

    def fn(x):
        x = jax.shard_map(jnp.sin, mesh=mesh, in_specs=here.spec, out_specs=here.spec)(x)
        x = lax.with_sharding_constraint(jax.device_put(x, here), here)
        return lax.scan(lambda c, _: (jnp.where(c > 0, c, 0.0), None), x, length=2)[0]

    check_one_device((jnp.arange(8.0),), trace_program(fn, jnp.arange(8.0)))


def test_a_mesh_that_is_set_is_several_devices():
    program = trace_program(jnp.sin, jnp.arange(8.0))
    mesh = jax.make_mesh((2,), ("i",))
    with jax.set_mesh(mesh), pytest.raises(ValueError, match="a mesh of 2 devices is set"):
        check_one_device((), program)
