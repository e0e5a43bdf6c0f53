"""The policy of GO: a network over the graph chooses groups of ops and changes their decisions.

p(y^t | G) = Π_g p(y_g^t | h_G, y^(t-1)): given the previous decision, each group of a level keeps
its value or gets another one as a whole. Groups are independent, except that at least one changes.
A value is a device, a shift of priority, or a level of fusion.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from gopt.cost.schedule.op_times import OpTimes
from gopt.learning import losses
from gopt.learning.layers.attention import SegmentAttention, Superposition
from gopt.learning.layers.graph import op_mask
from gopt.learning.layers.sage import GraphSAGE, max_round
from gopt.systems.go.actions import NEVER, log_prob, ops_of, sample
from gopt.systems.go.decisions import OpDecisions
from gopt.systems.go.features import Groups, observe
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.settings import Settings

Tree = Any


class Embedding(NamedTuple):
    """Embedding of a graph, independent of decisions, for each of `Settings.moves`.

    Attributes:
      groups: tuple of float32 `[K, width]`, embeddings of the groups of the level for the task.
      changes: tuple of float32 `[]`, logarithm of the groups' total odds of being moved.
    """

    groups: tuple[Any, ...]
    changes: tuple[Any, ...]


class Moves(NamedTuple):
    """Distribution over actions of the groups of a level.

    Attributes:
      logits: float32 `[K, 1 + V]`, logits of each action.
      entropy: float32 `[]`, entropy of the choice of a move, as a share of the largest possible.
    """

    logits: jax.Array
    entropy: jax.Array


class Action(NamedTuple):
    """Moves that were drawn. `M` kinds of moves, `S` samples of each, `K` groups.

    Attributes:
      groups: features of the groups of each kind of moves.
      action: tuple of int32 `[S, K]`, one for each kind: 0 keeps the value of a group, v + 1 gives
        it value v.
      log_prob: float32 `[M, S]`.
    """

    groups: tuple[Groups, ...]
    action: tuple[Any, ...]
    log_prob: Any


class Head(nn.Module):
    """The part of the network for one task."""

    settings: Settings

    def setup(self) -> None:
        """Make the layers."""
        s = self.settings
        self.own = _attention(s, s.task_layers)
        self.pooled = [nn.Dense(s.width) for _ in s.levels]
        self.there, self.here = nn.Dense(s.width), nn.Dense(s.width, use_bias=False)
        self.hidden = nn.Dense(s.width // 2)
        self.score = nn.Dense(1, kernel_init=nn.initializers.zeros)
        self.budget = nn.Dense(len(s.levels), kernel_init=nn.initializers.zeros)

    def embed(self, ops: jax.Array, inputs: Inputs, is_about: jax.Array) -> Embedding:
        """Return the embedding of the levels of a graph.

        Args:
          ops: embeddings of ops, `[N, width]`.
          inputs: the graph.
          is_about: bool `[N]`, ops that the task decides.
        """
        mask = op_mask(inputs.graphs)
        for scale, attend in self.own:
            ops = attend(scale(ops, mask), mask)
        mine = is_about.astype(jnp.float32)[:, None]
        to_sum, groups = jnp.concatenate([ops * mine, mine], 1), []
        for level, (most, dense) in enumerate(zip(self.settings.levels, self.pooled, strict=True)):
            size = min(most, len(ops))
            total = jax.ops.segment_sum(to_sum, inputs.group[level], size)
            groups.append(dense(total[:, :-1] / jnp.maximum(total[:, -1:], 1)))
        real = mask.astype(jnp.float32)[:, None]
        whole = jnp.sum(ops * real, 0) / inputs.graphs.n_node[0].astype(jnp.float32)
        changes = self.budget(whole) + jnp.log(self.settings.changes)
        return Embedding(tuple(groups), tuple(changes))

    def moves(self, embedding: jax.Array, changes: jax.Array, groups: Groups) -> Moves:
        """Return the distribution over actions of the groups of a level.

        Args:
          embedding: embeddings of the groups, `[K, width]`.
          changes: logarithm of the groups' total odds of being moved, `[]`.
          groups: features of the groups.
        """
        state, is_move = groups
        here = jnp.argmax(state[..., 0], -1)
        told = embedding[:, None] + self.there(state)
        told = told + self.here(jnp.take_along_axis(state, here[:, None, None], 1))
        score = self.score(nn.gelu(self.hidden(nn.gelu(told))))[..., 0]  # [K, V]
        score = _explored(score, is_move, self.settings.explore)
        stay = jnp.broadcast_to(-changes, (len(score), 1))
        entropy = losses.categorical_entropy(score.ravel())
        largest = jnp.log(jnp.maximum(is_move.sum(dtype=jnp.float32), 2))
        entropy = jnp.where(is_move.any(), entropy / largest, 0)
        return Moves(jnp.concatenate([stay, score], 1), entropy)


class Policy(nn.Module):
    """The network; call its methods through `embed` and `moves`."""

    settings: Settings

    def setup(self) -> None:
        """Make the layers."""
        s = self.settings
        self.sage = GraphSAGE(s.width, s.rounds, max_round)
        self.timed = nn.Dense(s.width)
        self.shared = _attention(s, s.layers)
        self.head = {task: Head(s) for task in s.tasks}

    def embed(self, inputs: Inputs) -> Embedding:
        """Return the embedding of a graph."""
        mask = op_mask(inputs.graphs)
        ops = self.sage(inputs.graphs) + self.timed(inputs.times)
        for scale, attend in self.shared:
            ops = attend(scale(ops, mask), mask)
        found: list[Embedding] = [
            self.head[task].embed(ops, inputs, ops_of(task, inputs)) for task in self.settings.tasks
        ]
        return Embedding(*(sum(parts, ()) for parts in zip(*found, strict=True)))

    def moves(self, embedding: Embedding, groups: tuple[Groups, ...]) -> tuple[Moves, ...]:
        """Return the distributions over actions of the groups of each level, for each task."""
        tasks = [self.settings.tasks[task] for task, _ in self.settings.moves]
        rows = zip(tasks, *embedding, groups, strict=True)
        return tuple(self.head[task].moves(*row) for task, *row in rows)


def _attention(settings: Settings, layers: int) -> list[tuple[Any, nn.Module]]:
    """Return attention layers, each with the layer that scales its inputs."""
    s = settings
    scale: Callable[[], Any] = Superposition if s.superposition else lambda: _as_it_is
    return [(scale(), SegmentAttention(s.heads, s.segment)) for _ in range(layers)]


def _as_it_is(ops: jax.Array, mask: jax.Array) -> jax.Array:
    return ops


def _explored(score: jax.Array, is_move: jax.Array, explore: float) -> jax.Array:
    """Return log-probabilities of moves `[K, V]`, a share of which is drawn uniformly."""
    score = jnp.where(is_move, score, NEVER)
    count = jnp.maximum(is_move.sum(dtype=jnp.float32), 1)
    even = jnp.where(is_move, -jnp.log(count), NEVER)
    learned = jnp.where(is_move, score - jax.nn.logsumexp(score), NEVER)
    mixed = jnp.logaddexp(math.log1p(-explore) + learned, math.log(explore) + even)
    return jnp.where(is_move, mixed, NEVER)


def embed(params: Tree, inputs: Inputs, *, settings: Settings) -> Embedding:
    """Return the embedding of a graph."""
    return cast(Embedding, Policy(settings).apply(params, inputs, method=Policy.embed))


def moves(
    params: Tree, embedding: Embedding, groups: tuple[Groups, ...], *, settings: Settings
) -> tuple[Moves, ...]:
    """Return the distributions over actions of the groups, for each of `Settings.moves`.

    Args:
      params: parameters of the policy.
      embedding: embedding of the graph, see `embed`.
      groups: features of the groups by the previous decision, see `observe`.
      settings: settings of the policy.
    """
    said = Policy(settings).apply(params, embedding, groups, method=Policy.moves)
    return cast(tuple[Moves, ...], said)


@partial(jax.jit, static_argnames="settings")  # one program, not one for each of its ops
def init(key: jax.Array, inputs: Inputs, *, settings: Settings) -> Tree:
    """Return random parameters. The inputs only give shapes."""

    def run(policy: Policy) -> None:
        zeros = jnp.zeros(len(inputs.share), jnp.int32)
        transfer_arrival = jnp.zeros((1, inputs.allowed.shape[1]), jnp.int32)
        empty = dict.fromkeys(OpTimes._fields, zeros)
        timing = OpTimes(**empty | {"transfer_arrival": transfer_arrival, "makespan": jnp.int32(1)})
        groups = observe(inputs, OpDecisions(zeros, zeros, zeros), timing, settings=settings)
        policy.moves(policy.embed(inputs), groups)

    return Policy(settings).init(key, method=run)


def act(
    key: PRNGKeyArray,
    params: Tree,
    inputs: Inputs,
    *,
    settings: Settings,
    decision: OpDecisions,
    timing: OpTimes,
    embedding: Embedding | None = None,
) -> Action:
    """Return moves drawn around a decision, `Settings.samples` of each kind.

    The policy improves decisions: it reads the graph, the best decision so far, and when ops run.
    `apply_action` gives the decisions that the moves lead to.

    Args:
      key: random key.
      params: parameters of the policy.
      inputs: the graph on a machine.
      settings: settings of the policy.
      decision: decision to change, `[N]`.
      timing: times when ops run by that decision, see `simulator_of`.
      embedding: embedding of the graph, if it is known, see `embed`.
    """
    if embedding is None:
        embedding = embed(params, inputs, settings=settings)
    groups = observe(inputs, decision, timing, settings=settings)
    found = moves(params, embedding, groups, settings=settings)
    actions, log_probs = [], []
    for (logits, _), to_sample in zip(found, jax.random.split(key, len(found)), strict=True):
        action = sample(to_sample, logits, settings.samples)
        actions.append(action)
        log_probs.append(log_prob(logits, action))
    return Action(groups, tuple(actions), jnp.stack(log_probs))
