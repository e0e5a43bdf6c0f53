"""Functions that `test_worker` runs in other processes. They import little."""

from pathlib import Path


def add(a, b):
    print("printed")
    return a + b


def fail():
    raise KeyError("no such thing")


def read():
    return input()


def unpicklable():
    return lambda: None


def busy(begun):
    Path(begun).touch()
    while True:
        pass


def busy_in_xla(begun):
    import jax
    import jax.numpy as jnp

    program = jax.jit(lambda x: jax.lax.while_loop(lambda x: x < 2, lambda x: x * 0.5, x))
    compiled = program.lower(jnp.float32(1)).compile()
    Path(begun).touch()
    compiled(jnp.float32(1)).block_until_ready()
