"""Regression of advantages on records of several graphs."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gopt.learning import train
from gopt.learning.graphs import GraphsTuple
from gopt.learning.train import TrainState
from gopt.systems.local_advantage.data import Records
from gopt.systems.local_advantage.network import encode, predicted
from gopt.systems.local_advantage.settings import Settings, check_two_values

Tree = Any


class Samples(NamedTuple):
    """What the network learns of one graph: `S` configurations of `N` ops, with padding."""

    graphs: GraphsTuple
    decisions: Any  # int32 [S, N]
    target: Any  # float32 [S, N]
    weight: Any  # float32 [S, N], how likely a sample is drawn; the sum of a graph is S


def scale_of(advantage: np.ndarray) -> float:
    """Returns σ of a graph: the median |advantage| of those that are not 0, in ticks."""
    size = np.abs(advantage[advantage != 0])
    return float(np.median(size)) if size.size else 1.0


def targets(advantage: np.ndarray, *, settings: Settings) -> np.ndarray:
    """Returns what is learned in the place of advantages, float32 of the same shape.

    Args:
      advantage: of one graph, in ticks, `[S, N]`, with padding.
      settings: of the training.
    """
    size = np.abs(np.asarray(advantage, np.float64)) / scale_of(advantage)
    size = np.log1p(size) if settings.target == "log" else size
    return np.asarray(np.sign(advantage) * size if settings.is_signed else size, np.float32)


def sample_weights(
    advantage: np.ndarray, configurable: np.ndarray, *, settings: Settings
) -> np.ndarray:
    """Returns how likely samples are drawn, float32 `[S, N]`, with sum S.

    A batch of the paper has nine tenths of its samples from each graph's tenth with the largest
    advantages. A loss with these weights is what the loss of such batches is on average, without
    their noise.

    Args:
      advantage: of one graph, in ticks, `[S, N]`, with padding.
      configurable: which ops have a decision, bool `[N]`, with padding.
      settings: of the training.
    """
    size = np.abs(np.asarray(advantage, np.float64))
    has = np.broadcast_to(configurable, size.shape)
    top = has & (size >= np.quantile(size[has], 0.9))
    weight = settings.largest * top / top.sum() + (1 - settings.largest) * has / has.sum()
    return np.asarray(weight * len(advantage), np.float32)


def samples(
    graphs: GraphsTuple, configurable: np.ndarray, records: Records, *, settings: Settings
) -> Samples:
    """Returns the samples of one graph.

    Args:
      graphs: see `inputs`.
      configurable: which ops have a decision, bool `[N]`, with padding.
      records: see `gopt.systems.local_advantage.data.sample`.
      settings: of the training.

    Raises:
      ValueError: decisions have not two values.
    """
    check_two_values(settings)
    return Samples(
        graphs,
        records.fuse.astype(np.int32),
        targets(records.advantage, settings=settings),
        sample_weights(records.advantage, configurable, settings=settings),
    )


def predict(
    params: Tree, graphs: GraphsTuple, decisions: jax.Array, *, settings: Settings
) -> jax.Array:
    """Returns predicted targets of one graph in several configurations, float32 `[S, N]`.

    `N` counts ops with padding, whose predictions mean nothing.

    Args:
      params: of the network.
      graphs: see `inputs`.
      decisions: int32 `[S, N]`.
      settings: of the network.

    Raises:
      ValueError: decisions have not two values.
    """
    check_two_values(settings)
    nodes = encode(params, graphs, settings=settings)

    def one(decisions: jax.Array) -> jax.Array:
        return predicted(params, nodes, graphs, decisions, settings=settings)[:, 0]

    return jax.vmap(one)(decisions)


def loss(
    params: Tree, batch: Samples, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the weighted squared error of one graph, and metrics.

    Args:
      params: parameters of the network.
      batch: samples of one graph.
      settings: settings of the network.
    """
    found = predict(params, batch.graphs, batch.decisions, settings=settings)
    value = jnp.sum(batch.weight * (found - batch.target) ** 2) / len(batch.target)
    return value, {"loss": value}


@cache  # the same object for the same settings, see `gopt.learning.train.start`
def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Return the optimizer: Adam with the gradient clipped and a rate that falls to 0."""
    rate = optax.cosine_decay_schedule(settings.learning_rate, settings.steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def start(params: Tree, *, settings: Settings) -> TrainState:
    """Return the state of training before the first step."""
    return train.start(params, optimizer(settings))


def step(
    state: TrainState, key: jax.Array, batch: Samples, *, settings: Settings
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Return the state after a step on some configurations of one graph, and metrics.

    Args:
      state: state before the step.
      key: random key.
      batch: all samples of one graph, of which `Settings.configurations` are drawn.
      settings: settings of the training.
    """
    count = min(settings.configurations, len(batch.target))
    chosen = jax.random.choice(key, len(batch.target), (count,), replace=False)
    drawn = batch._replace(
        decisions=batch.decisions[chosen], target=batch.target[chosen], weight=batch.weight[chosen]
    )
    gradient, metrics = jax.grad(loss, has_aux=True)(state.params, drawn, settings=settings)
    return state.apply_gradients(grads=gradient), metrics
