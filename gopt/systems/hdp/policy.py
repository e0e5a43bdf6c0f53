"""The two networks of HDP: a grouper of ops, and a placer of groups.

p(g, d | G) = Π_i p(g_i | G) · Π_k p(d_k | d_1 … d_(k-1), g, G): each op goes to a group,
independently of the others; then groups go to devices one after another.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float32, Int32, PRNGKeyArray

from gopt.cost.schedule import dispatch
from gopt.graph.kinds import KINDS
from gopt.learning import losses
from gopt.systems.hdp.inputs import Inputs, group_embedding, members
from gopt.systems.hdp.settings import Settings

Tree = Any
SURE = 1e9  # large enough to decide when added to a logit: logits of devices are bounded


class Action(NamedTuple):
    """Groupings of ops, and placements of each. `M` groupings, `P` placements, `K` groups.

    Attributes:
      group: int32 `[M, N]`, group of each op; arbitrary for ops that are not placed.
      device: int32 `[M, P, K]`, device of each group.
    """

    group: Any
    device: Any


class Noise(NamedTuple):
    """Noise that is added to logits, in units of their root mean square.

    Attributes:
      group: float32 `[N, K]`.
      device: float32 `[M, P, K, D]`.
    """

    group: Any
    device: Any


class Policy(nn.Module):
    """Both networks; call them through `sample` and `log_prob`."""

    settings: Settings
    devices: int

    def setup(self) -> None:
        """Make the parameters, random as published."""
        s, start = self.settings, nn.initializers.glorot_uniform()
        groups, half = s.groups_on(self.devices), s.width // 2
        self.of_kind, self.of_features = nn.Embed(len(KINDS), s.hidden), nn.Dense(s.hidden)
        self.to_group = nn.Dense(groups, use_bias=False)
        cell = partial(nn.OptimizedLSTMCell, kernel_init=start, recurrent_kernel_init=start)
        self.forwards = nn.RNN(cell(half), return_carry=True)
        self.backwards = nn.RNN(cell(half), return_carry=True, reverse=True, keep_order=True)
        self.decoder = cell(s.width)
        self.recall = nn.Dense(s.width, use_bias=False)
        self.ask = self.param("ask", start, (s.width, s.width), jnp.float32)
        self.score = self.param("score", start, (s.width, 1), jnp.float32)
        self.to_device = self.param("to_device", start, (2 * s.width, self.devices), jnp.float32)

    def group_logits(self, inputs: Inputs) -> jax.Array:
        """Return the logits of each op's group, float32 `[N, K]`."""
        hidden = self.of_kind(inputs.kind) + self.of_features(inputs.features)
        return self.settings.spread * self.to_group(hidden)

    def place(
        self, groups: jax.Array, push: jax.Array, noise: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return devices of groups, int32 `[P, K]`, and their log-probabilities `[P]`.

        Each group goes to the device with the largest logit after `push` is added. Gumbel noise
        draws a device; `SURE` forces one.

        Args:
          groups: features of the groups, `[K, F]`.
          push: float32 `[P, K, D]`.
          noise: noise of each logit, float32 `[P, K, D]`.
        """
        s = self.settings
        there, ahead = self.forwards(groups)
        back, behind = self.backwards(groups)
        memory = self.recall(jnp.concatenate([ahead, behind], -1))  # [K, W]
        state = tuple(
            jnp.tile(jnp.concatenate(both), (len(push), 1))
            for both in zip(there, back, strict=True)
        )

        def step(
            self: Policy, carry: Any, row: tuple[jax.Array, jax.Array]
        ) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            (state, before), (push, noise) = carry, row
            before = jax.nn.one_hot(before, self.devices + 1, dtype=jnp.float32)  # the last: none
            state, hidden = self.decoder(state, before)
            asked = (hidden @ self.ask)[:, None] + memory[None]
            attention = jax.nn.softmax((jnp.tanh(asked) @ self.score)[..., 0])
            known = jnp.concatenate([hidden, attention @ memory], -1)
            logits = s.bound * jnp.tanh(known @ self.to_device / s.temperature)
            logits = _noisy(logits, noise)
            device = jnp.argmax(logits + push, -1).astype(jnp.int32)
            return (state, device), (device, losses.categorical_log_prob(logits, device))

        none = jnp.full(len(push), self.devices, jnp.int32)
        rows = jnp.swapaxes(push, 0, 1), jnp.swapaxes(noise, 0, 1)
        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        _, found = scan(self, (state, none), rows)
        return found[0].T, found[1].sum(0)

    def __call__(
        self, inputs: Inputs, group: jax.Array, push: jax.Array, noise: Noise
    ) -> tuple[jax.Array, jax.Array]:
        """Return devices, int32 `[M, P, K]`, and the log-probabilities of all, `[M, P]`.

        Args:
          inputs: the graph.
          group: int32 `[M, N]`, group of each op.
          push: as in `place`, float32 `[M, P, K, D]`.
          noise: noise of the logits.
        """
        logits = _noisy(self.group_logits(inputs), noise.group)
        each = jax.vmap(losses.categorical_log_prob, (None, 0))(logits, group)
        of_group = jnp.sum(jnp.where(jnp.asarray(inputs.is_placed)[None], each, 0), -1)
        devices, of_device = [], []
        for row, *told in zip(group, push, noise.device, strict=True):
            size = logits.shape[1]
            embedding = group_embedding(inputs, members(inputs, row, size), size)
            device, log_prob = self.place(embedding, *told)
            devices.append(device)
            of_device.append(log_prob)
        return jnp.stack(devices), of_group[:, None] + jnp.stack(of_device)


def sample(
    key: PRNGKeyArray, params: Tree, inputs: Inputs, *, settings: Settings
) -> tuple[Action, jax.Array]:
    """Return random actions of a step, and their log-probabilities, float32 `[M, P]`.

    The log-probabilities are conditional on the drawn noise, if any (`Settings.noise`).

    Args:
      key: random key.
      params: parameters of the policy.
      inputs: the graph.
      settings: settings of the policy.
    """
    policy, s = _policy(inputs, settings), settings
    to_group, to_place = jax.random.split(key)
    logits = group_logits(params, inputs, settings=s)
    noise = _noise(jax.random.fold_in(key, 0), logits, policy.devices, s)
    logits = _noisy(logits, noise.group)
    drawn = jax.random.categorical(to_group, logits, shape=(s.groupings, len(logits)))
    group = drawn.astype(jnp.int32)
    push = jax.random.gumbel(to_place, noise.device.shape, jnp.float32)
    device, log_prob = cast(Any, policy.apply(params, inputs, group, push, noise))
    return Action(group, device), log_prob


def act(key: PRNGKeyArray, params: Tree, inputs: Inputs, *, settings: Settings) -> Action:
    """Return drawn groupings and placements; see `placements` for the devices of ops.

    Args:
      key: random key.
      params: parameters of the policy.
      inputs: the graph on a machine.
      settings: settings of the policy.
    """
    return sample(key, params, inputs, settings=settings)[0]


def log_prob(params: Tree, inputs: Inputs, actions: Action, *, settings: Settings) -> jax.Array:
    """Return the log-probability with which `sample` draws actions without noise, `[M, P]`."""
    policy = _policy(inputs, settings)
    push = SURE * jax.nn.one_hot(actions.device, policy.devices, dtype=jnp.float32)
    ops, groups = len(inputs.kind), actions.device.shape[-1]
    none = Noise(jnp.zeros((ops, groups), jnp.float32), jnp.zeros_like(push))
    return cast(Any, policy.apply(params, inputs, actions.group, push, none))[1]


def group_logits(params: Tree, inputs: Inputs, *, settings: Settings) -> Float32[jax.Array, "N K"]:
    """Return the logits of each op's group, float32 `[N, K]`."""
    policy = _policy(inputs, settings)
    return cast(jax.Array, policy.apply(params, inputs, method=Policy.group_logits))


def placements(inputs: Inputs, actions: Action) -> Int32[jax.Array, "M*P N"]:
    """Return devices of ops, int32 `[M · P, N]`, see
    `gopt.cost.schedule.dispatch.legalize_placement`.
    """

    def place(group: jax.Array, device: jax.Array) -> jax.Array:
        group = jnp.minimum(members(inputs, group, device.size), device.size - 1)
        return dispatch.legalize_placement(inputs.problem, device[group])

    placed = jax.vmap(jax.vmap(place, (None, 0)))(actions.group, actions.device)
    return placed.reshape(-1, placed.shape[-1])


@partial(jax.jit, static_argnames="settings")  # one program, not one for each of its ops
def init(key: jax.Array, inputs: Inputs, *, settings: Settings) -> Tree:
    """Return random parameters. The inputs only give shapes."""
    policy = _policy(inputs, settings)
    ops, groups = len(inputs.kind), settings.groups_on(policy.devices)
    push = jnp.zeros((1, 1, groups, policy.devices), jnp.float32)
    none = Noise(jnp.zeros((ops, groups), jnp.float32), push)
    return policy.init(key, inputs, jnp.zeros((1, ops), jnp.int32), push, none)


def _noise(key: jax.Array, logits: jax.Array, devices: int, settings: Settings) -> Noise:
    """Return the noise of a step; all groupings share the noise of groups."""
    s = settings
    shapes = logits.shape, (s.groupings, s.placements, logits.shape[1], devices)
    if not s.noise:
        return Noise(*(jnp.zeros(shape, jnp.float32) for shape in shapes))
    rows = zip(jax.random.split(key), shapes, strict=True)
    return Noise(*(s.noise * jax.random.normal(*row, jnp.float32) for row in rows))


def _noisy(logits: jax.Array, noise: jax.Array) -> jax.Array:
    """Return logits with noise, `[..., V]`, in units of the root mean square of all logits."""
    return logits + jnp.sqrt(jnp.mean(logits**2) + 1e-12) * noise


def _policy(inputs: Inputs, settings: Settings) -> Policy:
    return Policy(settings, inputs.problem.num_devices)
