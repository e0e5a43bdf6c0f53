"""The policy of GO: which groups of ops change their device next, by a network over the graph.

p(y^t | G) = Π_g p(y_g^t | h_G, y^(t-1)): given the devices before, each group of a level keeps
its own or goes to another as a whole, independently of the other groups but that one moves at
least.
"""

import math
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt import losses
from gopt.nets.attention import SegmentAttention, Superposition
from gopt.nets.graphs import op_mask
from gopt.nets.sage import GraphSAGE, max_round
from gopt.systems.go.inputs import BINS, Inputs, log_share
from gopt.systems.go.settings import Settings

Tree = Any
KEEP = 0  # an action: the devices of a group stay; k + 1 sends it to device k
NEVER = -1e30  # score of what is no move: finite, so that gradients are


class Moves(NamedTuple):
    """What the policy says of the groups of a level."""

    logits: jax.Array  # float32 [K, 1 + D], of each action
    entropy: jax.Array  # float32 [], of which move is made, in shares of the largest possible


class Policy(nn.Module):
    """Embeddings of ops, and moves of groups; call its methods through `embed` and `moves`."""

    settings: Settings

    def setup(self) -> None:
        """Makes the parts."""
        s = self.settings
        self.sage = GraphSAGE(s.width, s.rounds, max_round)
        self.timed = nn.Dense(s.width)
        self.shared = [
            (Superposition(), SegmentAttention(s.heads, s.segment)) for _ in range(s.layers)
        ]
        self.task = (Superposition(), SegmentAttention(s.heads, s.segment))
        self.pooled = [nn.Dense(s.width) for _ in s.levels]
        self.there, self.here = nn.Dense(s.width), nn.Dense(s.width, use_bias=False)
        self.hidden, self.score = nn.Dense(s.width), nn.Dense(1, kernel_init=nn.initializers.zeros)
        self.budget = nn.Dense(len(s.levels), kernel_init=nn.initializers.zeros)

    def embed(self, inputs: Inputs) -> jax.Array:
        """Returns embeddings of ops, float32 `[N, width]`."""
        mask = op_mask(inputs.graphs)
        ops = self.sage(inputs.graphs) + self.timed(inputs.times)
        for scale, attend in (*self.shared, self.task):
            ops = attend(scale(ops, mask), mask)
        return ops

    def moves(self, ops: jax.Array, inputs: Inputs, device: jax.Array, level: int) -> Moves:
        """Returns what may be done about the groups of a level.

        Args:
          ops: embeddings, `[N, width]`.
          inputs: the graph.
          device: where ops run, int32 `[N]`.
          level: one of `Settings.levels`, by index.
        """
        size = min(self.settings.levels[level], len(ops))
        group, is_real = inputs.group[level], jnp.arange(size) < inputs.count[level]
        members = jax.ops.segment_sum(jnp.ones(len(group)), group, size)
        pooled = jax.ops.segment_sum(ops, group, size) / jnp.maximum(members, 1)[:, None]
        on = jax.nn.one_hot(device, inputs.allowed.shape[1])  # [N, D]
        state = _state(inputs, group, on, size)  # [K, D, F]
        here = jnp.argmax(state[..., 0], -1)
        told = self.pooled[level](pooled)[:, None] + self.there(state)
        told = told + self.here(jnp.take_along_axis(state, here[:, None, None], 1))
        score = self.score(nn.gelu(self.hidden(nn.gelu(told))))[..., 0]  # [K, D]
        forbidden = jax.ops.segment_sum((~inputs.allowed).astype(jnp.float32), group, size)
        elsewhere = members[:, None] - jax.ops.segment_sum(on, group, size)
        is_move = is_real[:, None] & (elsewhere > 0) & (forbidden == 0)
        score = _explored(score, is_move, self.settings.explore)
        whole = jnp.sum(ops * op_mask(inputs.graphs)[:, None], 0) / inputs.graphs.n_node[0]
        changes = self.budget(whole)[level] + jnp.log(self.settings.changes)
        logits = jnp.concatenate([jnp.full((size, 1), -changes), score], 1)
        entropy = losses.categorical_entropy(score.ravel())
        largest = jnp.log(jnp.maximum(is_move.sum(), 2))
        return Moves(logits, jnp.where(is_move.any(), entropy / largest, 0))


def _explored(score: jax.Array, is_move: jax.Array, explore: float) -> jax.Array:
    """Returns log-probabilities of moves `[K, D]`, a share of which is drawn uniformly."""
    score = jnp.where(is_move, score, NEVER)
    count = jnp.maximum(is_move.sum(), 1)
    even = jnp.where(is_move, -jnp.log(count), NEVER)
    learned = jnp.where(is_move, score - jax.nn.logsumexp(score), NEVER)
    mixed = jnp.logaddexp(math.log1p(-explore) + learned, math.log(explore) + even)
    return jnp.where(is_move, mixed, NEVER)


def _state(inputs: Inputs, group: jax.Array, on: jax.Array, size: int) -> jax.Array:
    """Returns what each group has to do with each device, float32 `[K, D, F]`.

    The share of the group's time that is there; of what it reads, and of what others read of it,
    how much is there, in shares of all that is sent and in time; how busy the device is, with the
    group as well, and in the time in which the group could run; how full; its place among the
    devices; and the time of the group.

    Args:
      inputs: the graph.
      group: of each op, int32 `[N]`.
      on: which device an op runs on, float32 `[N, D]`.
      size: how many groups there may be, `K`.
    """
    devices = on.shape[1]
    weight = inputs.share[:, None] + 1e-9  # a group of no time is somewhere, too
    of_group = jnp.maximum(jax.ops.segment_sum(weight, group, size), 1e-9)  # [K, 1]
    here = jax.ops.segment_sum(weight * on, group, size) / of_group
    senders, receivers = inputs.graphs.senders, inputs.graphs.receivers
    out, into = group[senders], group[receivers]
    sent = jnp.where(out == into, 0, inputs.sent)[:, None]
    reads = jax.ops.segment_sum(sent * on[senders], into, size)
    gives = jax.ops.segment_sum(sent * on[receivers], out, size)
    time = inputs.share[:, None] * on
    load = devices * time.sum(0)
    busy = _shares(jax.ops.segment_sum(time, inputs.moment, BINS))
    meets = jax.ops.segment_sum(weight * busy[inputs.moment], group, size) / of_group
    held = jnp.sum(inputs.bytes[:, None] * on, 0)
    columns = (
        *(here, _shares(reads), _shares(gives), log_share(reads), log_share(gives)),
        *(load, load + devices * of_group * (1 - here), devices * meets, jnp.log1p(held)),
        *(jnp.linspace(0, 1, devices, dtype=jnp.float32), log_share(of_group)),
    )
    return jnp.stack([jnp.broadcast_to(column, here.shape) for column in columns], -1)


def _shares(part: jax.Array) -> jax.Array:
    """Returns the parts of each row as shares of their sum, or zeros, `[..., D]`."""
    return part / jnp.maximum(part.sum(-1, keepdims=True), 1e-9)


def embed(params: Tree, inputs: Inputs, *, settings: Settings) -> jax.Array:
    """Returns embeddings of ops, float32 `[N, width]`."""
    return cast(jax.Array, Policy(settings).apply(params, inputs, method=Policy.embed))


def moves(
    params: Tree,
    ops: jax.Array,
    inputs: Inputs,
    device: jax.Array,
    *,
    level: int,
    settings: Settings,
) -> Moves:
    """Returns what may be done about the groups of a level, see `Policy.moves`."""
    found = Policy(settings).apply(params, ops, inputs, device, level, method=Policy.moves)
    return cast(Moves, found)


def sample(key: jax.Array, logits: jax.Array, samples: int) -> jax.Array:
    """Returns actions of all groups, int32 `[S, K]`; each sample moves one group at least.

    If a draw moves none, a move is drawn by the probabilities of moves.

    Args:
      key: random key.
      logits: `[K, 1 + D]`.
      samples: how many are drawn.
    """
    to_draw, to_move = jax.random.split(key)
    drawn = jax.random.categorical(to_draw, logits, shape=(samples, len(logits)))
    scores = logits[:, 1:]
    one = jax.random.categorical(to_move, scores.ravel(), shape=(samples,))
    group, device = one // scores.shape[1], one % scores.shape[1]
    moved = jnp.where(jnp.arange(len(logits)) == group[:, None], device[:, None] + 1, KEEP)
    can = (scores > NEVER).any()
    action = jnp.where(can & (drawn == KEEP).all(1, keepdims=True), moved, drawn)
    return action.astype(jnp.int32)


def log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the log-probability with which `sample` draws actions of all groups, `[S]`.

    An action that moves one group is drawn as it is, or because none was to move.

    Args:
      logits: `[K, 1 + D]`.
      action: `[S, K]`.
    """
    drawn = losses.categorical_log_prob(logits[None], action).sum(1)
    none = losses.categorical_log_prob(logits, jnp.zeros(len(logits), jnp.int32)).sum()
    chosen = jnp.take_along_axis(logits[None], action[..., None], -1)[..., 0]
    score = jnp.sum(jnp.where(action == KEEP, 0, chosen), 1)
    made_up = none + score - jax.nn.logsumexp(logits[:, 1:])
    return jnp.where((action != KEEP).sum(1) == 1, jnp.logaddexp(drawn, made_up), drawn)


def act(device: jax.Array, action: jax.Array, group: jax.Array) -> jax.Array:
    """Returns where ops run after actions `[S, K]`, int32 `[S, N]`; padding stays."""
    of_op = jnp.pad(action, ((0, 0), (0, 1)))[:, jnp.minimum(group, action.shape[1])]
    return jnp.where(of_op == KEEP, device, of_op - 1)


def init_params(key: jax.Array, inputs: Inputs, *, settings: Settings) -> Tree:
    """Returns random parameters; the inputs only give shapes."""

    def run(policy: Policy) -> None:
        ops = policy.embed(inputs)
        for level in range(len(settings.levels)):
            policy.moves(ops, inputs, jnp.zeros(len(ops), jnp.int32), level)

    return Policy(settings).init(key, method=run)
