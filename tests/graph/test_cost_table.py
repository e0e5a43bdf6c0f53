"""Every primitive that JAX can emit has a known cost, or is listed as unknown."""

import subprocess
import sys
from collections import Counter

import jax
import pytest
from jax import lax

from gopt.graph import bodies, linear_algebra_costs, op_costs, product_costs
from gopt.graph.op_costs import FREE, PER_ELEMENT, RULES, UNKNOWN
from gopt.program.primitives import ELEMENT_WISE

# Prints the primitives that JAX lowers, or exports for others to interpret. A process of its own,
# because this one may have imported libraries with primitives of their own.
LIST = """
import jax.experimental.pallas, jax.experimental.xla_metadata
import jax.extend.core.primitives as exported
from jax._src.interpreters import mlir
from jax._src.lax import linalg

def names(module):
    return {x.name for key, x in vars(module).items() if key.endswith("_p") and hasattr(x, "name")}

lowered = [mlir._lowerings, *mlir._platform_specific_lowerings.values()]
print(*sorted({p.name for table in lowered for p in table} | names(exported)))
print(*sorted(names(linalg)))
"""


@pytest.fixture(scope="module")
def primitives():
    """Names of all primitives, and of those of linear algebra."""
    run = subprocess.run(
        [sys.executable, "-c", LIST], capture_output=True, text=True, check=True, timeout=120
    )
    everything, linear_algebra = (line.split() for line in run.stdout.splitlines()[-2:])
    return set(everything), set(linear_algebra)


def rule_class(name):
    """The class of a primitive's cost, or None for a primitive that counts by default."""
    classes = {
        "body": bodies.WITH_BODIES,
        "free": FREE,
        "rule": RULES,
        "element": PER_ELEMENT | ELEMENT_WISE,
        "unknown": UNKNOWN,
    }
    return next((label for label, members in classes.items() if name in members), None)


def test_every_primitive_has_a_cost_or_is_listed_as_unknown(primitives):
    everything, _ = primitives
    assert len(everything) > 200
    missing = sorted(name for name in everything if rule_class(name) is None)
    assert not missing, (
        f"JAX {jax.__version__} has primitives without a cost: {', '.join(missing)}. Give each "
        "a rule in gopt.graph.op_costs or gopt.graph.bodies, or list it in op_costs.UNKNOWN"
    )


def test_every_primitive_of_linear_algebra_has_a_formula(primitives):
    _, linear_algebra = primitives
    assert len(linear_algebra) > 10
    free = {"lu_pivots_to_permutation"}  # a permutation of integers
    missing = sorted(linear_algebra - free - set(linear_algebra_costs.RULES))
    assert not missing, f"JAX {jax.__version__} has linear algebra without a formula: {missing}"


def test_every_product_has_a_formula(primitives):
    everything, _ = primitives
    words = ("dot", "matmul", "conv_", "einsum", "gemm")
    products = {name for name in everything if any(word in name for word in words)}
    assert {"dot_general", "ragged_dot_general", "conv_general_dilated"} <= products
    assert products <= set(product_costs.RULES)


def test_no_primitive_is_in_two_classes():
    classes = (FREE, RULES, PER_ELEMENT, UNKNOWN, bodies.WITH_BODIES)
    twice = [name for name, count in Counter(n for c in classes for n in c).items() if count > 1]
    assert not twice
    # Element-wise by their role in fusion, with another count than one per element.
    elsewhere = {name for name in ELEMENT_WISE if any(name in members for members in classes)}
    assert elsewhere == {"copy", "integer_pow", "name", "polynomial", "stop_gradient"}


def test_unknown_primitives_have_no_rule():
    assert not UNKNOWN & op_costs.COUNTED
    assert rule_class("primitive_of_another_library") is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dot_general", "rule"),
        ("ragged_dot_general", "rule"),
        ("scaled_matmul", "rule"),
        ("svd", "rule"),
        ("fft", "rule"),
        ("sort", "rule"),
        ("reduce_precision", "element"),
        ("cumsum", "element"),
        ("reshape", "free"),
        ("all_gather", "free"),
        ("psum", "element"),
        ("custom_linear_solve", "body"),
        ("cond", "body"),
        ("pallas_call", "body"),
        ("ffi_call", "unknown"),
    ],
)
def test_classes(name, expected):
    assert rule_class(name) == expected


def namespaces():
    import jax.numpy as jnp

    square, vector = jax.ShapeDtypeStruct((8, 8), "f4"), jax.ShapeDtypeStruct((8,), "f4")
    for module in (jnp.linalg, lax.linalg, jax.nn, jnp.fft, jax.scipy.linalg):
        for name in sorted(vars(module)):
            function = getattr(module, name)
            if callable(function) and not name.startswith("_") and name[0].islower():
                yield f"{module.__name__}.{name}", function, square, vector


def test_public_functions_emit_known_primitives_only():
    """Traces each function of linear algebra, FFT and jax.nn that takes one or two arrays."""
    emitted: Counter[str] = Counter()
    traced = 0
    for _, function, square, vector in namespaces():
        for arguments in ((square,), (square, square), (square, vector), (vector,)):
            try:
                jaxpr = jax.make_jaxpr(function)(*arguments)
            except Exception:  # it takes other arguments
                continue
            traced += 1
            emitted.update(e.primitive.name for e in jaxpr.eqns)
            break
    assert traced > 100
    unknown = sorted(name for name in emitted if rule_class(name) in (None, "unknown"))
    assert not unknown
