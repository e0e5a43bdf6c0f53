"""What the model says that a program needs is what XLA plans for it, cause by cause."""

import jax
import jax.numpy as jnp
import pytest

from gopt.cost.schedule.xla_memory import beside
from gopt.measure.timing import memory
from gopt.program.program import trace_program
from gopt.xla import group, groups
from gopt.xla.ordered import jit_ordered
from gopt.xla.workspace import workspaces

pytestmark = pytest.mark.optimized

VIEWS = ("broadcast_in_dim", "reshape", "slice", "squeeze", "transpose")


def needs(fn, *args, donate_argnums=()):
    """Returns predicted and planned bytes beside arguments; all but views is a kernel."""
    program = trace_program(fn, *args, donate_argnums=donate_argnums)
    written = [k for k, e in enumerate(program.equations) if e.primitive.name not in VIEWS]
    program = group(program, groups(program, written))
    compiled = jit_ordered(program).lower(*program.arguments()).compile()
    return beside(program, workspaces(program, compiled)), memory(compiled).without_arguments


def shape(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def flattened(x, v, w):
    """Multiplies what XLA takes for 512 rows, and shows in `[8, 64, 256]` to `tanh`."""
    return jnp.tanh(x @ v) @ w


def transposed(x):
    """Multiplies heads that are copied to the front, after which nobody needs the first copy."""
    heads = [jnp.sin(x[i]) for i in range(3)]
    scores = jnp.einsum("qhd,khd->hqk", heads[0], heads[1])
    return jnp.einsum("hqk,khd->hqd", scores, heads[2]).sum()


def repeated(x):
    """Multiplies by repeated numbers before and after much else is held."""

    def mixed(x):
        return x @ jnp.full((256, 256), 0.5)

    wide = jnp.concatenate([jnp.sin(mixed(x))] * 16)
    return mixed(jnp.cos(wide).reshape(16, 16, 256).sum(axis=0))


def replaced(m, x):
    """Replaces `m` by what is added to what it has been scaled to long before."""
    scaled = 0.9 * m
    return scaled + jnp.tanh(jnp.tanh(x @ x) @ x), x @ x[0]


def looped(x, w):
    """Runs a body with much to hold at once; both its operands are needed later."""

    def body(c, row):
        products = [jnp.sin(c * k) @ w for k in range(1, 6)]
        return jnp.tanh(sum(p @ p for p in products)), products[0] * row

    c, rows = jax.lax.scan(body, x, jnp.sin(jnp.arange(4.0)))
    return c + w, rows


def stacked(x, w):
    """Stacks fifty states, each made from the one before."""
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c), x, None, length=50)


def written_into(x, w):
    """Writes rows into a large array, again and again."""
    rows = jnp.stack([w[0], w[1]])
    return jax.lax.fori_loop(0, 5, lambda k, c: c.at[k].set(rows[k % 2] * k), x)


def ended_by_a_product(x, w):
    """Ends a loop by a condition that reads large values."""
    return jax.lax.while_loop(lambda c: (c @ w).sum() < 1, lambda c: jnp.tanh(c), x)


def looped_over_its_own(x, w):
    """Makes what stays the same in the inner loop within the outer one."""

    def outer(k, c):
        m, n = jnp.sin(c) @ w, jnp.cos(c) @ w
        return jax.lax.fori_loop(0, 3, lambda _, d: jnp.tanh(d @ m @ n), c)

    return jax.lax.fori_loop(0, 3, outer, x)


def looped_twice(x, w):
    """Runs a loop inside a loop."""

    def inner(_, c):
        return jnp.tanh((jnp.sin(c) @ w) @ (jnp.cos(c) @ w))

    return jax.lax.fori_loop(0, 3, lambda _, c: jax.lax.fori_loop(0, 5, inner, c) + w, x)


def branched(x, w):
    """Needs much on one of two ways."""

    def dear(x):
        products = [jnp.sin(x * k) @ w for k in range(1, 6)]
        return sum(p @ p for p in products)

    return jax.lax.cond(x[0, 0] > 0, dear, jnp.tanh, x @ w) @ w


SQUARE = shape(128, 128)
CASES = {
    "flattened": ((flattened, shape(8, 64, 64), shape(64, 256), shape(256, 64)), ()),
    "transposed": ((transposed, shape(3, 64, 8, 32)), ()),
    "repeated": ((repeated, shape(16, 256)), ()),
    "replaced": ((replaced, SQUARE, SQUARE), 0),
    "looped": ((looped, SQUARE, SQUARE), ()),
    "stacked": ((stacked, SQUARE, SQUARE), ()),
    "written into": ((written_into, SQUARE, SQUARE), ()),
    "ended by a product": ((ended_by_a_product, SQUARE, SQUARE), ()),
    "looped over its own": ((looped_over_its_own, SQUARE, SQUARE), ()),
    "looped twice": ((looped_twice, SQUARE, SQUARE), ()),
    "branched": ((branched, SQUARE, SQUARE), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_xla_plans_what_the_model_says(name):
    args, donated = CASES[name]
    predicted, planned = needs(*args, donate_argnums=donated)
    assert predicted == pytest.approx(planned, rel=0.01)


def test_what_is_only_shown_is_not_written_over():
    program = trace_program(lambda x: jnp.sin((x + 1.0)[0]).sum(), SQUARE)
    program = group(program, [(k,) for k in range(len(program.equations))])
    assert beside(program, {}) > 0
