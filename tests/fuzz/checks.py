"""Check that a function has the values, types and structure of a random program."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gopt.measure.equality import largest_difference, tolerance
from gopt.program.equations import all_equations
from tests.fuzz.programs import RandomProgram

_WITHOUT_RULES = ("custom_jvp_call", "custom_vjp_call", "stop_gradient", "pure_callback")


class Reference:
    """A random program as JAX runs it.

    Attributes:
      program: the program.
      jitted: `fn`, jitted.
      values: its results.
      donated: of each leaf of the arguments, whether it is donated.
      deleted: of each leaf of the arguments, whether a call deletes it.
    """

    def __init__(self, program: RandomProgram):
        self.program = program
        is_jitted = hasattr(program.fn, "lower")
        self.jitted = program.fn if is_jitted else jax.jit(program.fn, **program.options)
        args = program.fresh()
        self.values = jax.block_until_ready(self.jitted(*args))
        self.deleted = _deleted(args)
        self.donated = [
            k in program.donate_argnums for k, arg in enumerate(args) for _ in jax.tree.leaves(arg)
        ]
        self._equations = list(all_equations(jax.make_jaxpr(program.fn)(*program.args).jaxpr.eqns))

    def check(self, what: str, function: Callable[..., Any], *, is_staged: bool = False) -> None:
        """Check a function by its results, and by the arguments that it deletes.

        Stages may delete a donated argument that XLA cannot reuse, and keep one that it can.
        """
        args = self.program.fresh()
        results = function(*args)
        self.check_values(what, results)
        deleted = _deleted(args)
        if not is_staged:
            pairs = zip(jax.tree.leaves(results), jax.tree.leaves(self.values), strict=True)
            for k, (ours, theirs) in enumerate(pairs):
                places = [(x.sharding, x.committed) for x in (ours, theirs)]
                assert places[0] == places[1], f"{what}: result {k} is on {places}"
        if is_staged:
            excess = [k for k in range(len(deleted)) if deleted[k] and not self.donated[k]]
            assert not excess, f"{what}: deletes leaves {excess}, which are not donated"
        else:
            expected = self.deleted
            assert deleted == expected, f"{what}: deleted {deleted}, expected {expected}"

    def check_values(self, what: str, found: Any) -> None:
        """Check results: structure, types and values."""
        structures = jax.tree.structure(found), jax.tree.structure(self.values)
        assert structures[0] == structures[1], f"{what}: structure {structures}"
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(self.values), strict=True)
        for k, (ours, theirs) in enumerate(pairs):
            assert isinstance(ours, jax.Array), f"{what}: result {k} is a {type(ours)}"
            types = [(x.shape, x.dtype, x.weak_type) for x in map(jax.typeof, (ours, theirs))]
            assert types[0] == types[1], f"{what}: result {k} is {types[0]}, expected {types[1]}"
            self._check_leaf(f"{what}: result {k}", k, ours, theirs)

    def check_inside(self, what: str, function: Callable[..., Any]) -> None:
        """Check a function inside `jax.jit`, and its gradient where there is one."""
        self.check_values(
            f"{what}, in jit", jax.jit(lambda *a: function(*a))(*self.program.fresh())
        )
        if any(equation.primitive.name in _WITHOUT_RULES for equation in self._equations):
            return  # documented: rules are dropped
        leaves, tree = jax.tree.flatten(self.program.args)
        floats = [k for k, x in enumerate(leaves) if jnp.result_type(x) == jnp.float32]
        if not floats:
            return

        def gradient(of: Callable[..., Any], *, is_eager: bool = False) -> Any:
            leaves = jax.tree.leaves(self.program.fresh())

            def loss(x: Any) -> Any:
                every = [*leaves[: floats[0]], x, *leaves[floats[0] + 1 :]]
                inside = jax.jit(lambda *args: of(*args))  # does not donate
                results = jax.tree.leaves(inside(*jax.tree.unflatten(tree, every)))
                summed = [jnp.sum(r) for r in results if jnp.result_type(r) == jnp.float32]
                return sum(summed, jnp.float32(0))

            with jax.disable_jit(is_eager):
                return jax.grad(loss)(jnp.asarray(leaves[floats[0]]))

        try:
            expected = gradient(self.program.fn)
        except (ValueError, NotImplementedError, TypeError):
            return  # JAX cannot differentiate it
        difference = largest_difference(gradient(function), expected)
        if np.isfinite(np.asarray(expected)).all() and difference > tolerance(expected):
            spread = largest_difference(gradient(self.program.fn, is_eager=True), expected)
            assert difference <= 8 * spread, f"{what}: gradient differs by {difference}"

    @functools.cached_property
    def _others(self) -> list[list[Any]]:
        """Results of the program as JAX runs it in other ways: these differ by rounding."""
        program = self.program
        plain = jax.jit(
            lambda *args: program.fn(*args), compiler_options={"xla_backend_optimization_level": 0}
        )
        found = [jax.tree.leaves(plain(*program.fresh()))]
        with jax.disable_jit():
            found.append(jax.tree.leaves(program.fn(*program.fresh())))
        rng = np.random.default_rng(0)
        for _ in range(3):
            found.append(jax.tree.leaves(self.jitted(*_perturbed(program.fresh(), rng))))
        return found

    def _check_leaf(self, what: str, k: int, ours: Any, theirs: Any) -> None:
        """Check a value.

        It may differ by rounding, and as much as the program itself does where it is computed op by
        op or from arguments with other last bits: a comparison of two sums may have either value.
        """
        allowed = tolerance(theirs)
        difference = largest_difference(ours, theirs)
        if difference <= allowed:
            return
        spread = max(largest_difference(other[k], theirs) for other in self._others)
        assert difference <= 8 * spread, (
            f"{what} differs by {difference}, allowed {allowed}, spread {spread}:\n"
            f"{ours}\nexpected\n{theirs}"
        )


def _deleted(args: Any) -> list[bool]:
    return [isinstance(x, jax.Array) and x.is_deleted() for x in jax.tree.leaves(args)]


def _perturbed(args: Any, rng: np.random.Generator) -> Any:
    """Return arguments in which floats have other last bits."""

    def change(x: Any) -> Any:
        if not isinstance(x, jax.Array | np.ndarray) or not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        step = 4 * float(jnp.finfo(x.dtype).eps) * rng.choice([-1, 1], x.shape)
        return jnp.asarray(np.asarray(x) * (1 + step), x.dtype)

    return jax.tree.map(change, args)
