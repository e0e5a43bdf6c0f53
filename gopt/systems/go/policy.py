"""The policy of GO: which groups of ops change their device next, by a network over the graph.

p(y^t | G) = Π_g p(y_g^t | h_G, y^(t-1)): given the devices before, each group of a level keeps
its own or goes to another as a whole, independently of the other groups.
"""

from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from gopt.nets.attention import SegmentAttention, Superposition
from gopt.nets.graphs import op_mask
from gopt.nets.sage import MaxSAGE
from gopt.systems.go.inputs import BINS, Inputs
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
        self.sage = MaxSAGE(s.width, s.rounds)
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

    def moves(
        self, ops: jax.Array, inputs: Inputs, device: jax.Array, level: int, devices: int
    ) -> Moves:
        """Returns what may be done about the groups of a level.

        Args:
          ops: embeddings, `[N, width]`.
          inputs: the graph.
          device: where ops run, int32 `[N]`.
          level: one of `Settings.levels`, by index.
          devices: how many there are.
        """
        size = min(self.settings.levels[level], len(ops))
        group, is_real = inputs.group[level], jnp.arange(size) < inputs.count[level]
        members = jax.ops.segment_sum(jnp.ones(len(group)), group, size)
        pooled = jax.ops.segment_sum(ops, group, size) / jnp.maximum(members, 1)[:, None]
        state = _state(inputs, group, device, size, devices)  # [K, D, F]
        here = jnp.argmax(state[..., 0], -1)
        told = self.pooled[level](pooled)[:, None] + self.there(state)
        told = told + self.here(jnp.take_along_axis(state, here[:, None, None], 1))
        score = self.score(nn.gelu(self.hidden(nn.gelu(told))))[..., 0]  # [K, D]
        there = jax.ops.segment_sum(jax.nn.one_hot(device, devices), group, size)
        is_move = is_real[:, None] & (there < members[:, None])
        score = jnp.where(is_move, score, NEVER)
        whole = jnp.sum(ops * op_mask(inputs.graphs)[:, None], 0) / inputs.graphs.n_node[0]
        changes = self.budget(whole)[level] + jnp.log(self.settings.changes)
        every = jnp.where(is_move.any(), jax.nn.logsumexp(score), 0)
        logits = jnp.concatenate([jnp.full((size, 1), every - changes), score], 1)
        log_chance = jnp.where(is_move, score - every, 0)
        entropy = -jnp.sum(jnp.where(is_move, jnp.exp(log_chance) * log_chance, 0))
        return Moves(logits, entropy / jnp.log(jnp.maximum(is_move.sum(), 2)))


def _state(
    inputs: Inputs, group: jax.Array, device: jax.Array, size: int, devices: int
) -> jax.Array:
    """Returns what each group has to do with each device, float32 `[K, D, F]`.

    The first is the share of the group that is there.
    """
    on = jax.nn.one_hot(device, devices)  # [N, D]
    time = inputs.share[:, None] * on
    of_group = jax.ops.segment_sum(inputs.share + 1e-9, group, size)[:, None]
    of_group = jnp.maximum(of_group, 1e-9)  # rows that are no group
    here = jax.ops.segment_sum((inputs.share + 1e-9)[:, None] * on, group, size) / of_group
    senders, receivers = inputs.graphs.senders, inputs.graphs.receivers
    out, into = group[senders], group[receivers]
    sent = jnp.where(out == into, 0, inputs.sent)[:, None]
    reads = jax.ops.segment_sum(sent * on[senders], into, size)
    gives = jax.ops.segment_sum(sent * on[receivers], out, size)
    load = time.sum(0)
    busy = jax.ops.segment_sum(time, inputs.moment, BINS)
    busy = busy / jnp.maximum(busy.sum(1, keepdims=True), 1e-9)
    meets = jax.ops.segment_sum((inputs.share + 1e-9)[:, None] * busy[inputs.moment], group, size)
    held = jnp.sum(inputs.bytes[:, None] * on, 0)
    place = jnp.linspace(0, 1, devices)

    def share(part: jax.Array) -> jax.Array:
        return part / jnp.maximum(part.sum(1, keepdims=True), 1e-9)

    def each(of_device: jax.Array) -> jax.Array:
        return jnp.broadcast_to(of_device, (size, devices))

    columns = [
        *(here, share(reads), share(gives)),
        *(jnp.log1p(1e4 * part) / 9 for part in (reads, gives)),
        *(each(load * devices), load * devices + of_group * devices, meets / of_group * devices),
        *(each(jnp.log1p(held)), each(place)),
        jnp.log1p(1e4 * of_group + 0 * here) / 9,
    ]
    return jnp.stack(columns, -1)


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
    devices: int,
    settings: Settings,
) -> Moves:
    """Returns what may be done about the groups of a level, see `Policy.moves`."""
    found = Policy(settings).apply(params, ops, inputs, device, level, devices, method=Policy.moves)
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
    return jnp.where(can & (drawn == KEEP).all(1, keepdims=True), moved, drawn)


def log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the log-probability of actions `[S, K]` of all groups, `[S]`."""
    log_probs = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.take_along_axis(log_probs[None], action[..., None], -1)[..., 0], 1)


def act(device: jax.Array, action: jax.Array, group: jax.Array) -> jax.Array:
    """Returns where ops run after actions `[S, K]`, int32 `[S, N]`; padding stays."""
    of_op = jnp.pad(action, ((0, 0), (0, 1)))[:, jnp.minimum(group, action.shape[1])]
    return jnp.where(of_op == KEEP, device, of_op - 1)


def init_params(key: jax.Array, inputs: Inputs, *, settings: Settings) -> Tree:
    """Returns random parameters; the inputs only give shapes."""

    def run(policy: Policy) -> None:
        ops = policy.embed(inputs)
        for level in range(len(settings.levels)):
            policy.moves(ops, inputs, jnp.zeros(len(ops), jnp.int32), level, 2)

    return Policy(settings).init(key, method=run)
