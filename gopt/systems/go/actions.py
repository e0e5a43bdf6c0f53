"""Actions on groups of ops: sampling, log-probabilities, and their effect on a decision."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float32, Int32, PRNGKeyArray

from gopt.learning import losses
from gopt.learning.layers.graph import op_mask
from gopt.systems.go.decisions import FUSIONS, SHIFTS, OpDecisions
from gopt.systems.go.inputs import Inputs

KEEP = 0  # action that keeps the value of a group; v + 1 gives it value v
NEVER = -1e30  # score of invalid moves; finite, so that gradients are finite


class Task(NamedTuple):
    """The decision of one task. `N` ops, `V` values.

    Attributes:
      value: int32 `[N]`, current value of each op.
      may: bool `[N, V]`, values that each op may get; all false for ops outside the task.
      is_about: bool `[N]`, ops that the task decides.
    """

    value: Any
    may: Any
    is_about: Any


def ops_of(name: str, inputs: Inputs) -> Bool[jax.Array, " N"]:
    """Return the ops that a task decides, bool `[N]`."""
    every = {
        "placement": op_mask(inputs.graphs),
        "scheduling": inputs.runs,
        "fusion": inputs.fusible,
    }
    return jnp.asarray(every[name])


def task_of(name: str, inputs: Inputs, decision: OpDecisions) -> Task:
    """Return the decision of one task, by its name."""
    value, is_about = getattr(decision, name), ops_of(name, inputs)
    if name == "placement":
        return Task(value, inputs.allowed, is_about)
    values = {"scheduling": len(SHIFTS), "fusion": FUSIONS}[name]
    return Task(value, jnp.broadcast_to(is_about[:, None], (len(value), values)), is_about)


def sample(
    key: PRNGKeyArray, logits: Float32[jax.Array, "K 1+V"], samples: int
) -> Int32[jax.Array, "S K"]:
    """Return actions of all groups, int32 `[S, K]`; each sample moves at least one group.

    If a draw moves none, one move is drawn by the probabilities of moves.

    Args:
      key: random key.
      logits: float32 `[K, 1 + V]`.
      samples: number of samples, `S`.
    """
    to_draw, to_move = jax.random.split(key)
    drawn = jax.random.categorical(to_draw, logits, shape=(samples, len(logits)))
    scores = logits[:, 1:]
    one = jax.random.categorical(to_move, scores.ravel(), shape=(samples,))
    group, value = one // scores.shape[1], one % scores.shape[1]
    groups = jnp.arange(len(logits), dtype=group.dtype)[None]
    moved = jnp.where(groups == group[:, None], value[:, None] + 1, KEEP)
    can = (scores > NEVER).any()
    action = jnp.where(can & (drawn == KEEP).all(1, keepdims=True), moved, drawn)
    return action.astype(jnp.int32)


def log_prob(logits: Float32[jax.Array, "K 1+V"], action: Int32[jax.Array, "S K"]) -> jax.Array:
    """Return the log-probability with which `sample` draws actions of all groups, `[S]`.

    An action that moves exactly one group is drawn directly, or because the first draw moved none.

    Args:
      logits: float32 `[K, 1 + V]`.
      action: int32 `[S, K]`.
    """
    drawn = jax.vmap(losses.categorical_log_prob, (None, 0))(logits, action).sum(1)
    none = losses.categorical_log_prob(logits, jnp.zeros(len(logits), jnp.int32)).sum()
    chosen = jnp.take_along_axis(logits[None], action[..., None], -1)[..., 0]
    score = jnp.sum(jnp.where(action == KEEP, 0, chosen), 1)
    made_up = none + score - jax.nn.logsumexp(logits[:, 1:])
    return jnp.where(
        (action != KEEP).sum(1, dtype=jnp.int32) == 1, jnp.logaddexp(drawn, made_up), drawn
    )


def apply_action(
    inputs: Inputs, decision: OpDecisions, action: Int32[jax.Array, "S K"], *, name: str, level: int
) -> OpDecisions:
    """Return decisions after actions on the groups of a level, `[S, N]`; padding stays.

    Args:
      inputs: the graph.
      decision: decision before, `[N]`.
      action: int32 `[S, K]`.
      name: name of the task.
      level: index in `Settings.levels`.
    """
    task = task_of(name, inputs, decision)
    group = jnp.minimum(inputs.group[level], action.shape[1])
    of_op = jnp.pad(action, ((0, 0), (0, 1)))[:, group]
    stays = (of_op == KEEP) | ~task.is_about[None]
    value = jnp.where(stays, task.value[None], of_op - 1)
    same = jax.tree.map(lambda x: jnp.broadcast_to(x, value.shape), decision)
    return same._replace(**{name: value})
