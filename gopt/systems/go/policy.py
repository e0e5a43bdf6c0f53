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
from gopt.cost.timing import Timing
from gopt.nets.attention import SegmentAttention, Superposition
from gopt.nets.graphs import op_mask
from gopt.nets.sage import GraphSAGE, max_round
from gopt.systems.go.actions import NEVER, Task, task_of
from gopt.systems.go.decisions import Decision
from gopt.systems.go.features import group_state
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.settings import Settings

Tree = Any


class Moves(NamedTuple):
    """What the policy says of the groups of a level."""

    logits: jax.Array  # float32 [K, 1 + V], of each action
    entropy: jax.Array  # float32 [], of which move is made, in shares of the largest possible


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
        self,
        ops: jax.Array,
        inputs: Inputs,
        task: Task,
        device: jax.Array,
        timing: Timing,
        level: int,
    ) -> Moves:
        """Returns what may be done about the groups of a level.

        Args:
          ops: embeddings, as of `attend`.
          inputs: the graph.
          task: what is decided, now.
          device: where ops are placed, int32 `[N]`.
          timing: when they run.
          level: one of `Settings.levels`, by index.
        """
        size = min(self.settings.levels[level], len(ops))
        group, is_real = inputs.group[level], jnp.arange(size) < inputs.count[level]
        mine = task.is_about.astype(jnp.float32)[:, None]
        members = jax.ops.segment_sum(mine, group, size)  # [K, 1]
        pooled = jax.ops.segment_sum(ops * mine, group, size) / jnp.maximum(members, 1)
        on = jax.nn.one_hot(task.value, task.may.shape[1])  # [N, V]
        state = group_state(inputs, group, on, mine, device, timing, size)  # [K, V, F]
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
        timing: Timing,
        task: int,
        level: int,
    ) -> Moves:
        """Returns what may be done about the groups of a level.

        Args:
          ops: embeddings, as of `embed`.
          inputs: the graph.
          decision: what was decided before, `[N]`.
          timing: what came of it.
          task: one of `Settings.tasks`, by index.
          level: one of `Settings.levels`, by index.
        """
        name = self.settings.tasks[task]
        decided = task_of(name, inputs, decision)
        head: Head = self.head[name]
        device = decision.placement
        return cast(Moves, head.moves(ops[task], inputs, decided, device, timing, level))


def _explored(score: jax.Array, is_move: jax.Array, explore: float) -> jax.Array:
    """Returns log-probabilities of moves `[K, V]`, a share of which is drawn uniformly."""
    score = jnp.where(is_move, score, NEVER)
    count = jnp.maximum(is_move.sum(), 1)
    even = jnp.where(is_move, -jnp.log(count), NEVER)
    learned = jnp.where(is_move, score - jax.nn.logsumexp(score), NEVER)
    mixed = jnp.logaddexp(math.log1p(-explore) + learned, math.log(explore) + even)
    return jnp.where(is_move, mixed, NEVER)


def embed(params: Tree, inputs: Inputs, *, settings: Settings) -> tuple[jax.Array, ...]:
    """Returns embeddings of ops for each task, float32 `[N, width]`."""
    ops = Policy(settings).apply(params, inputs, method=Policy.embed)
    return cast(tuple[jax.Array, ...], ops)


def moves(
    params: Tree,
    ops: tuple[jax.Array, ...],
    inputs: Inputs,
    decision: Decision,
    timing: Timing,
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
      timing: what came of it.
      task: one of `Settings.tasks`, by index.
      level: one of `Settings.levels`, by index.
      settings: of the policy.
    """
    args = ops, inputs, decision, timing, task, level
    return cast(Moves, Policy(settings).apply(params, *args, method=Policy.moves))


def init_params(key: jax.Array, inputs: Inputs, *, settings: Settings) -> Tree:
    """Returns random parameters; the inputs only give shapes."""

    def run(policy: Policy) -> None:
        ops = policy.embed(inputs)
        zeros = jnp.zeros(len(ops[0]), jnp.int32)
        decision = Decision(zeros, zeros, zeros)
        timing = Timing(zeros, zeros, zeros, zeros, zeros, makespan=jnp.int32(1))
        for task, level in settings.moves:
            policy.moves(ops, inputs, decision, timing, task, level)

    return Policy(settings).init(key, method=run)
