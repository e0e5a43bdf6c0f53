"""Units are a hint, and cost nothing where JAX has none to give."""

import jax
import jax.numpy as jnp

from gopt.xla import calls


def test_a_unit_is_called_and_not_inlined():
    text = jax.jit(calls.uninlined(lambda x: x + 1)).lower(jnp.zeros(3)).compile().as_text()
    assert 'inlineable="false"' in text


def test_a_unit_is_the_function_where_jax_cannot_make_one(monkeypatch):
    monkeypatch.setattr(calls, "xla_metadata_call", None)
    assert calls.uninlined(len) is len
