"""The network of Placeto: it places the visited group, and reads the devices of all groups.

p(d | G) = Π_k p(d_k | d_1 … d_(k-1), G): groups are visited once each, in their order.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Int32, PRNGKeyArray

from gopt.cost.schedule import dispatch
from gopt.learning import losses
from gopt.systems.placeto.inputs import Inputs
from gopt.systems.placeto.settings import Settings

Tree = Any


class PolicyOutput(NamedTuple):
    """Output of the policy at one visit, or at many, `[...]`.

    Attributes:
      log_prob: float32 `[...]`, log-probability of the chosen device.
      entropy: float32 `[...]`, entropy of the distribution over devices.
    """

    log_prob: jax.Array
    entropy: jax.Array


class MLP(nn.Module):
    """Dense layers with ReLU between them, and optionally after the last.

    Attributes:
      widths: size of each layer.
      ends: whether a ReLU follows the last layer.
    """

    widths: tuple[int, ...]
    ends: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return float32 `[..., widths[-1]]` for `[..., F]`."""
        for k, width in enumerate(self.widths):
            x = nn.Dense(width, kernel_init=nn.initializers.glorot_uniform())(x)
            x = nn.relu(x) if self.ends or k + 1 < len(self.widths) else x
        return x


class Aggregator(nn.Module):
    """Sum of messages, g(Σ f(x)), over the nodes that each row of a matrix selects.

    Both f and g end with a ReLU.
    """

    width: int

    def setup(self) -> None:
        """Make the layers."""
        self.before, self.after = (MLP((self.width, self.width), ends=True) for _ in range(2))

    def __call__(self, x: jax.Array, matrix: jax.Array) -> jax.Array:
        """Return float32 `[R, width]` for nodes `[K, F]` and a matrix `[R, K]`."""
        return self.after(matrix @ self.before(x))


class Policy(nn.Module):
    """The network; call it through `sample` and `visits`."""

    settings: Settings
    devices: int

    @nn.compact
    def __call__(self, inputs: Inputs, device: jax.Array, visited: jax.Array) -> jax.Array:
        """Return the logits of each device for the visited group, float32 `[D]`.

        Rounds of message passing run along reads and against them. Then the nodes above, below, and
        parallel to the visited group are aggregated, as means: our choice.

        Args:
          inputs: the graph.
          device: int32 `[K]`, current device of each group.
          visited: int32 `[]`, index of the visited group.
        """
        place = jnp.arange(len(device), dtype=jnp.int32)[:, None]
        is_visited = [(place < visited), (place == visited)]
        columns = (
            *(inputs.about, *(each.astype(jnp.float32) for each in is_visited)),
            jax.nn.one_hot(device, self.devices, dtype=jnp.float32),
        )
        x = jnp.concatenate(columns, 1)
        width = x.shape[1]
        own = MLP((width, width, width))(x)
        heard = []
        for matrix in (inputs.reads, inputs.reads.T):
            aggregator, now = Aggregator(width), own
            has = matrix.any(1)[:, None].astype(jnp.float32)
            for _ in range(self.settings.rounds):
                now = own + has * aggregator(now, matrix)
            heard.append(now)
        nodes = jnp.concatenate(heard, 1)
        around = [nodes[visited]]
        for matrix in (inputs.above, inputs.above.T, inputs.beside):
            row = jnp.take(matrix, visited, 0)[None]
            mean = row / jnp.maximum(row.sum(), 1)
            around.append(Aggregator(2 * width)(nodes, mean)[0])
        both = jnp.concatenate(around)
        return MLP((2 * both.size, both.size, self.devices))(both)


def sample(
    key: PRNGKeyArray,
    params: Tree,
    inputs: Inputs,
    device: Int32[jax.Array, " K"],
    visited: Int32[jax.Array, ""],
    *,
    settings: Settings,
) -> Int32[jax.Array, " K"]:
    """Return devices of groups after a visit, int32 `[K]`.

    Args:
      key: random key.
      params: parameters of the policy.
      inputs: the graph.
      device: int32 `[K]`, devices of groups before.
      visited: int32 `[]`, index of the visited group.
      settings: settings of the policy.
    """
    drawn = jax.random.categorical(key, _logits(params, inputs, device, visited, settings))
    return device.at[visited].set(drawn.astype(jnp.int32))


def visits(
    params: Tree,
    inputs: Inputs,
    first: Int32[jax.Array, " K"],
    last: Int32[jax.Array, " K"],
    *,
    settings: Settings,
) -> PolicyOutput:
    """Return the output of the policy at each visit of an episode, `[K]`.

    Args:
      params: parameters of the policy.
      inputs: the graph.
      first: int32 `[K]`, devices of groups before the first visit.
      last: int32 `[K]`, devices of groups after the last visit.
      settings: settings of the policy.
    """
    places = jnp.arange(len(first), dtype=jnp.int32)

    def visit(visited: jax.Array) -> PolicyOutput:
        now = jnp.where(places < visited, last, first)
        logits = _logits(params, inputs, now, visited, settings)
        chosen = losses.categorical_log_prob(logits, last[visited])
        return PolicyOutput(chosen, losses.categorical_entropy(logits))

    return jax.vmap(visit)(places)


def act(
    key: PRNGKeyArray, params: Tree, inputs: Inputs, *, settings: Settings
) -> Int32[jax.Array, " K"]:
    """Return devices of groups after an episode, int32 `[K]`; see `placement` for devices of ops.

    An action is an episode: it begins with all groups on the first device, and visits each once.

    Args:
      key: random key.
      params: parameters of the policy.
      inputs: the graph on a machine.
      settings: settings of the policy.
    """
    groups = len(inputs.about)

    def visit(device: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        visited, key = row
        return sample(key, params, inputs, device, visited, settings=settings), None

    rows = jnp.arange(groups, dtype=jnp.int32), jax.random.split(key, groups)
    return jax.lax.scan(visit, jnp.zeros(groups, jnp.int32), rows)[0]


def placement(inputs: Inputs, device: jax.Array) -> Int32[jax.Array, " N"]:
    """Return devices of ops, int32 `[N]`, for devices of groups `[K]`."""
    return dispatch.legalize_placement(inputs.problem, device[inputs.group])


@partial(jax.jit, static_argnames="settings")  # one program, not one for each of its ops
def init(key: jax.Array, inputs: Inputs, *, settings: Settings) -> Tree:
    """Return random parameters. The inputs only give shapes."""
    device = jnp.zeros(len(inputs.about), jnp.int32)
    return _policy(inputs, settings).init(key, inputs, device, jnp.int32(0))


def _logits(
    params: Tree, inputs: Inputs, device: jax.Array, visited: jax.Array, settings: Settings
) -> jax.Array:
    policy = _policy(inputs, settings)
    return cast(jax.Array, policy.apply(params, inputs, device, visited))


def _policy(inputs: Inputs, settings: Settings) -> Policy:
    return Policy(settings, inputs.problem.num_devices)
