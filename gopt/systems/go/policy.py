"""The policy of GO: which groups of ops are decided anew, by a network over the graph.

p(y^t | G) = Π_g p(y_g^t | h_G, y^(t-1)): given what was decided before, each group of a level keeps
it or gets another value as a whole, independently of the other groups but that one changes at
least. A value is a device, a shift of priority, or a level of fusion.
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
from gopt.systems.go.decisions import FUSIONS, SHIFTS, Decision
from gopt.systems.go.inputs import BINS, Inputs, log_share
from gopt.systems.go.settings import Settings

Tree = Any
KEEP = 0  # an action: the value of a group stays; v + 1 gives it value v
NEVER = -1e30  # score of what is no move: finite, so that gradients are


class Moves(NamedTuple):
    """What the policy says of the groups of a level."""

    logits: jax.Array  # float32 [K, 1 + V], of each action
    entropy: jax.Array  # float32 [], of which move is made, in shares of the largest possible


class Task(NamedTuple):
    """What a task decides. `V` values."""

    value: Any  # int32 [N], of each op now
    may: Any  # bool [N, V], which values each op may get; of ops that the task is not about, none
    is_about: Any  # bool [N]


def task_of(name: str, inputs: Inputs, decision: Decision) -> Task:
    """Returns what the task of a name decides."""
    value = getattr(decision, name)
    if name == "placement":
        return Task(value, inputs.allowed, op_mask(inputs.graphs))
    is_about, values = {
        "scheduling": (inputs.runs, len(SHIFTS)),
        "fusion": (inputs.fusible, FUSIONS),
    }[name]
    return Task(value, jnp.broadcast_to(is_about[:, None], (len(value), values)), is_about)


class Head(nn.Module):
    """What the network says for one task."""

    settings: Settings

    def setup(self) -> None:
        """Makes the parts."""
        s = self.settings
        self.attention = (Superposition(), SegmentAttention(s.heads, s.segment))
        self.pooled = [nn.Dense(s.width) for _ in s.levels]
        self.there, self.here = nn.Dense(s.width), nn.Dense(s.width, use_bias=False)
        self.hidden, self.score = nn.Dense(s.width), nn.Dense(1, kernel_init=nn.initializers.zeros)
        self.budget = nn.Dense(len(s.levels), kernel_init=nn.initializers.zeros)

    def attend(self, ops: jax.Array, mask: jax.Array) -> jax.Array:
        """Returns embeddings of ops for the task, float32 `[N, width]`."""
        scale, attention = self.attention
        return cast(jax.Array, attention(scale(ops, mask), mask))

    def moves(
        self, ops: jax.Array, inputs: Inputs, task: Task, device: jax.Array, level: int
    ) -> Moves:
        """Returns what may be done about the groups of a level.

        Args:
          ops: embeddings, as of `attend`.
          inputs: the graph.
          task: what is decided, now.
          device: where ops run, int32 `[N]`.
          level: one of `Settings.levels`, by index.
        """
        size = min(self.settings.levels[level], len(ops))
        group, is_real = inputs.group[level], jnp.arange(size) < inputs.count[level]
        mine = task.is_about.astype(jnp.float32)[:, None]
        members = jax.ops.segment_sum(mine, group, size)  # [K, 1]
        pooled = jax.ops.segment_sum(ops * mine, group, size) / jnp.maximum(members, 1)
        on = jax.nn.one_hot(task.value, task.may.shape[1])  # [N, V]
        state = _state(inputs, group, on, mine, device, size)  # [K, V, F]
        here = jnp.argmax(state[..., 0], -1)
        told = self.pooled[level](pooled)[:, None] + self.there(state)
        told = told + self.here(jnp.take_along_axis(state, here[:, None, None], 1))
        score = self.score(nn.gelu(self.hidden(nn.gelu(told))))[..., 0]  # [K, V]
        forbidden = jax.ops.segment_sum(mine * ~task.may, group, size)
        elsewhere = members - jax.ops.segment_sum(mine * on, group, size)
        is_move = is_real[:, None] & (elsewhere > 0) & (forbidden == 0)
        score = _explored(score, is_move, self.settings.explore)
        whole = jnp.sum(ops * op_mask(inputs.graphs)[:, None], 0) / inputs.graphs.n_node[0]
        changes = self.budget(whole)[level] + jnp.log(self.settings.changes)
        logits = jnp.concatenate([jnp.full((size, 1), -changes), score], 1)
        entropy = losses.categorical_entropy(score.ravel())
        largest = jnp.log(jnp.maximum(is_move.sum(), 2))
        return Moves(logits, jnp.where(is_move.any(), entropy / largest, 0))


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
        self.head = {task: Head(s) for task in s.tasks}

    def embed(self, inputs: Inputs) -> tuple[jax.Array, ...]:
        """Returns embeddings of ops for each task, float32 `[N, width]`."""
        mask = op_mask(inputs.graphs)
        ops = self.sage(inputs.graphs) + self.timed(inputs.times)
        for scale, attend in self.shared:
            ops = attend(scale(ops, mask), mask)
        return tuple(self.head[task].attend(ops, mask) for task in self.settings.tasks)

    def moves(
        self,
        ops: tuple[jax.Array, ...],
        inputs: Inputs,
        decision: Decision,
        task: int,
        level: int,
    ) -> Moves:
        """Returns what may be done about the groups of a level.

        Args:
          ops: embeddings, as of `embed`.
          inputs: the graph.
          decision: what was decided before, `[N]`.
          task: one of `Settings.tasks`, by index.
          level: one of `Settings.levels`, by index.
        """
        name = self.settings.tasks[task]
        decided = task_of(name, inputs, decision)
        head: Head = self.head[name]
        return cast(Moves, head.moves(ops[task], inputs, decided, decision.placement, level))


def _explored(score: jax.Array, is_move: jax.Array, explore: float) -> jax.Array:
    """Returns log-probabilities of moves `[K, V]`, a share of which is drawn uniformly."""
    score = jnp.where(is_move, score, NEVER)
    count = jnp.maximum(is_move.sum(), 1)
    even = jnp.where(is_move, -jnp.log(count), NEVER)
    learned = jnp.where(is_move, score - jax.nn.logsumexp(score), NEVER)
    mixed = jnp.logaddexp(math.log1p(-explore) + learned, math.log(explore) + even)
    return jnp.where(is_move, mixed, NEVER)


def _state(
    inputs: Inputs,
    group: jax.Array,
    on: jax.Array,
    mine: jax.Array,
    device: jax.Array,
    size: int,
) -> jax.Array:
    """Returns what each group has to do with each value, float32 `[K, V, F]`.

    The share of the group's time that has it; of what the group reads, and of what others read of
    it, how much is made or read by ops that have it, in shares of all that is sent and in time; how
    much time has it in all, with the group as well, and while the group could run; how many bytes;
    its place among the values; the time of the group; how busy the devices of the group are while
    it could run; and how much of what it sends goes to other devices. Where values are no devices,
    the load and the bytes of a value tell only how common it is.

    Args:
      inputs: the graph.
      group: of each op, int32 `[N]`.
      on: which value an op has, float32 `[N, V]`.
      mine: which ops the task is about, float32 `[N, 1]`.
      device: where ops run, int32 `[N]`.
      size: how many groups there may be, `K`.
    """
    values = on.shape[1]
    weight = inputs.share[:, None] + 1e-9  # a group of no time has a value, too

    def of_group(x: jax.Array) -> jax.Array:
        """Returns means over the time of the ops of each group."""
        time = jnp.maximum(jax.ops.segment_sum(weight * mine, group, size), 1e-9)
        return jax.ops.segment_sum(weight * mine * x, group, size) / time

    share = jax.ops.segment_sum(inputs.share[:, None] * mine, group, size)
    here = of_group(on)
    maker, reader = inputs.maker, inputs.reader
    out, into = group[maker], group[reader]
    sent = jnp.where(out == into, 0, inputs.sent)[:, None]
    reads = jax.ops.segment_sum(sent * on[maker], into, size)
    gives = jax.ops.segment_sum(sent * on[reader], out, size)
    time = inputs.share[:, None] * on
    load = values * time.sum(0)
    meets = of_group(_busy(inputs, on)[inputs.moment])
    there = jax.nn.one_hot(device, inputs.allowed.shape[1])
    crowd = of_group(jnp.sum(_busy(inputs, there)[inputs.moment] * there, 1, keepdims=True))
    away = jnp.where(device[maker] == device[reader], 0, inputs.sent)[:, None]
    held = jnp.sum(inputs.bytes[:, None] * on, 0)
    columns = (
        *(here, _shares(reads), _shares(gives), log_share(reads), log_share(gives)),
        *(load, load + values * share * (1 - here), values * meets, jnp.log1p(held)),
        *(jnp.linspace(0, 1, values, dtype=jnp.float32), log_share(share)),
        *(crowd, log_share(jax.ops.segment_sum(away, out, size))),
    )
    return jnp.stack([jnp.broadcast_to(column, here.shape) for column in columns], -1)


def _busy(inputs: Inputs, on: jax.Array) -> jax.Array:
    """Returns how time is shared out between values `[N, V]` at each moment, `[BINS, V]`."""
    return _shares(jax.ops.segment_sum(inputs.share[:, None] * on, inputs.moment, BINS))


def _shares(part: jax.Array) -> jax.Array:
    """Returns the parts of each row as shares of their sum, or zeros, `[..., V]`."""
    return part / jnp.maximum(part.sum(-1, keepdims=True), 1e-9)


def embed(params: Tree, inputs: Inputs, *, settings: Settings) -> tuple[jax.Array, ...]:
    """Returns embeddings of ops for each task, float32 `[N, width]`."""
    ops = Policy(settings).apply(params, inputs, method=Policy.embed)
    return cast(tuple[jax.Array, ...], ops)


def moves(
    params: Tree,
    ops: tuple[jax.Array, ...],
    inputs: Inputs,
    decision: Decision,
    *,
    task: int,
    level: int,
    settings: Settings,
) -> Moves:
    """Returns what may be done about the groups of a level.

    Args:
      params: of the policy.
      ops: embeddings, as of `embed`, float32 `[N, width]` for each task.
      inputs: the graph.
      decision: what was decided before, `[N]`. Each task sees its own part, and the placement.
      task: one of `Settings.tasks`, by index.
      level: one of `Settings.levels`, by index.
      settings: of the policy.
    """
    args = ops, inputs, decision, task, level
    return cast(Moves, Policy(settings).apply(params, *args, method=Policy.moves))


def sample(key: jax.Array, logits: jax.Array, samples: int) -> jax.Array:
    """Returns actions of all groups, int32 `[S, K]`; each sample moves one group at least.

    If a draw moves none, a move is drawn by the probabilities of moves.

    Args:
      key: random key.
      logits: `[K, 1 + V]`.
      samples: how many are drawn.
    """
    to_draw, to_move = jax.random.split(key)
    drawn = jax.random.categorical(to_draw, logits, shape=(samples, len(logits)))
    scores = logits[:, 1:]
    one = jax.random.categorical(to_move, scores.ravel(), shape=(samples,))
    group, value = one // scores.shape[1], one % scores.shape[1]
    moved = jnp.where(jnp.arange(len(logits)) == group[:, None], value[:, None] + 1, KEEP)
    can = (scores > NEVER).any()
    action = jnp.where(can & (drawn == KEEP).all(1, keepdims=True), moved, drawn)
    return action.astype(jnp.int32)


def log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the log-probability with which `sample` draws actions of all groups, `[S]`.

    An action that moves one group is drawn as it is, or because none was to move.

    Args:
      logits: `[K, 1 + V]`.
      action: `[S, K]`.
    """
    drawn = losses.categorical_log_prob(logits[None], action).sum(1)
    none = losses.categorical_log_prob(logits, jnp.zeros(len(logits), jnp.int32)).sum()
    chosen = jnp.take_along_axis(logits[None], action[..., None], -1)[..., 0]
    score = jnp.sum(jnp.where(action == KEEP, 0, chosen), 1)
    made_up = none + score - jax.nn.logsumexp(logits[:, 1:])
    return jnp.where((action != KEEP).sum(1) == 1, jnp.logaddexp(drawn, made_up), drawn)


def act(
    inputs: Inputs, decision: Decision, action: jax.Array, *, name: str, level: int
) -> Decision:
    """Returns decisions after actions `[S, K]` on the groups of a level, `[S, N]`; padding stays.

    Args:
      inputs: the graph.
      decision: before, `[N]`.
      action: int32 `[S, K]`.
      name: of the task.
      level: one of `Settings.levels`, by index.
    """
    task = task_of(name, inputs, decision)
    group = jnp.minimum(inputs.group[level], action.shape[1])
    of_op = jnp.pad(action, ((0, 0), (0, 1)))[:, group]
    value = jnp.where((of_op == KEEP) | ~task.is_about, task.value, of_op - 1)
    same = jax.tree.map(lambda x: jnp.broadcast_to(x, value.shape), decision)
    return same._replace(**{name: value})


def init_params(key: jax.Array, inputs: Inputs, *, settings: Settings) -> Tree:
    """Returns random parameters; the inputs only give shapes."""

    def run(policy: Policy) -> None:
        ops = policy.embed(inputs)
        zeros = jnp.zeros(len(ops[0]), jnp.int32)
        for task, level in settings.moves:
            policy.moves(ops, inputs, Decision(zeros, zeros, zeros), task, level)

    return Policy(settings).init(key, method=run)
