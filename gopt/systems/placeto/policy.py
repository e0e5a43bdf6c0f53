"""The network of Placeto: where the group that is visited goes, seeing where all others are.

p(d | G) = Π_k p(d_k | d_1 … d_(k-1), G): groups are visited once each, in turn.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.cost.schedule import dispatch
from gopt.learning import losses
from gopt.systems.placeto.inputs import Inputs
from gopt.systems.placeto.settings import Settings

Tree = Any


class PolicyOutput(NamedTuple):
    """The policy at a visit, or at many, `[...]`."""

    log_prob: jax.Array  # float32 [...], of the device that was chosen
    entropy: jax.Array  # float32 [...]


class MLP(nn.Module):
    """Layers with ReLU between them, and, if so wanted, after the last."""

    widths: tuple[int, ...]
    ends: bool = False  # with ReLU

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns float32 `[..., widths[-1]]` for `[..., F]`."""
        for k, width in enumerate(self.widths):
            x = nn.Dense(width, kernel_init=nn.initializers.glorot_uniform())(x)
            x = nn.relu(x) if self.ends or k + 1 < len(self.widths) else x
        return x


class Aggregator(nn.Module):
    """What rows of a matrix say of those that they sum over: g(Σ f(x)), both with ReLU."""

    width: int

    def setup(self) -> None:
        """Makes the parts."""
        self.before, self.after = (MLP((self.width, self.width), ends=True) for _ in range(2))

    def __call__(self, x: jax.Array, matrix: jax.Array) -> jax.Array:
        """Returns float32 `[R, width]` for nodes `[K, F]` and a matrix `[R, K]`."""
        return self.after(matrix @ self.before(x))


class Policy(nn.Module):
    """The network; call it through `sample` and `visits`."""

    settings: Settings
    devices: int

    @nn.compact
    def __call__(self, inputs: Inputs, device: jax.Array, visited: jax.Array) -> jax.Array:
        """Returns how well a group goes to each device, float32 `[D]`.

        Groups hear of all that they read, and of all that read them, over some rounds. Then what
        is above the visited group, below, and beside it is summed up, as means: our choice.

        Args:
          inputs: the graph.
          device: of each group now, int32 `[K]`.
          visited: which group it is, int32 `[]`.
        """
        place = jnp.arange(len(device))
        columns = (
            *(inputs.about, (place < visited)[:, None], (place == visited)[:, None]),
            jax.nn.one_hot(device, self.devices),
        )
        x = jnp.concatenate(columns, 1).astype(jnp.float32)
        width = x.shape[1]
        own = MLP((width, width, width))(x)
        heard = []
        for matrix in (inputs.reads, inputs.reads.T):
            aggregator, now = Aggregator(width), own
            for _ in range(self.settings.rounds):
                now = own + matrix.any(1)[:, None] * aggregator(now, matrix)
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
    key: jax.Array,
    params: Tree,
    inputs: Inputs,
    device: jax.Array,
    visited: jax.Array,
    *,
    settings: Settings,
) -> jax.Array:
    """Returns devices of groups after a visit, int32 `[K]`.

    Args:
      key: random key.
      params: of the policy.
      inputs: the graph.
      device: before, int32 `[K]`.
      visited: which group is visited, int32 `[]`.
      settings: of the policy.
    """
    drawn = jax.random.categorical(key, _logits(params, inputs, device, visited, settings))
    return device.at[visited].set(drawn.astype(jnp.int32))


def visits(
    params: Tree, inputs: Inputs, first: jax.Array, last: jax.Array, *, settings: Settings
) -> PolicyOutput:
    """Return the policy at each visit of an episode, `[K]`.

    Args:
      params: of the policy.
      inputs: the graph.
      first: devices of groups before the first visit, int32 `[K]`.
      last: those after the last one, int32 `[K]`.
      settings: of the policy.
    """

    def visit(visited: jax.Array) -> PolicyOutput:
        now = jnp.where(jnp.arange(len(first)) < visited, last, first)
        logits = _logits(params, inputs, now, visited, settings)
        chosen = losses.categorical_log_prob(logits, last[visited])
        return PolicyOutput(chosen, losses.categorical_entropy(logits))

    return jax.vmap(visit)(jnp.arange(len(first)))


def act(key: jax.Array, params: Tree, inputs: Inputs, *, settings: Settings) -> jax.Array:
    """Return devices of groups after an episode, int32 `[K]`; see `placement` for those of ops.

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


def placement(inputs: Inputs, device: jax.Array) -> jax.Array:
    """Returns where ops run, int32 `[N]`, for devices of groups `[K]`."""
    return dispatch.settled(inputs.problem, device[inputs.group])


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
