"""Actions on groups of ops: how they are drawn, how likely that is, and what they change."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.learning import losses
from gopt.learning.layers.graph import op_mask
from gopt.systems.go.decisions import FUSIONS, SHIFTS, Decision
from gopt.systems.go.inputs import Inputs

KEEP = 0  # an action: the value of a group stays; v + 1 gives it value v
NEVER = -1e30  # score of what is no move: finite, so that gradients are


class Task(NamedTuple):
    """What a task decides. `V` values."""

    value: Any  # int32 [N], of each op now
    may: Any  # bool [N, V], which values each op may get; of ops that the task is not about, none
    is_about: Any  # bool [N]


def ops_of(name: str, inputs: Inputs) -> jax.Array:
    """Returns which ops the task of a name is about, bool `[N]`."""
    every = {
        "placement": op_mask(inputs.graphs),
        "scheduling": inputs.runs,
        "fusion": inputs.fusible,
    }
    return jnp.asarray(every[name])


def task_of(name: str, inputs: Inputs, decision: Decision) -> Task:
    """Returns what the task of a name decides."""
    value, is_about = getattr(decision, name), ops_of(name, inputs)
    if name == "placement":
        return Task(value, inputs.allowed, is_about)
    values = {"scheduling": len(SHIFTS), "fusion": FUSIONS}[name]
    return Task(value, jnp.broadcast_to(is_about[:, None], (len(value), values)), is_about)


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


def apply_action(
    inputs: Inputs, decision: Decision, action: jax.Array, *, name: str, level: int
) -> Decision:
    """Return decisions after actions `[S, K]` on the groups of a level, `[S, N]`; padding stays.

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
