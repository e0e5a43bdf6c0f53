"""Regression of advantages on records of several graphs."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float32, Int32, PRNGKeyArray, Shaped

from gopt.learning import train
from gopt.learning.graphs import GraphsTuple
from gopt.learning.train import TrainState
from gopt.systems.local_advantage.data import Records
from gopt.systems.local_advantage.network import predictor
from gopt.systems.local_advantage.settings import Settings, check_two_values

Tree = Any


class Samples(NamedTuple):
    """Training samples of one graph: `S` configurations of `N` ops, with padding.

    Attributes:
      graphs: the graph with features, see `inputs`.
      decisions: int32 `[S, N]`.
      target: float32 `[S, N]`, see `targets`.
      weight: float32 `[S, N]`, relative probability of drawing a sample; the sum of a graph is S.
    """

    graphs: GraphsTuple
    decisions: Any
    target: Any
    weight: Any


def scale_of(advantage: np.ndarray) -> float:
    """Return σ of a graph: the median |advantage| of the nonzero ones, in ticks."""
    size = np.abs(advantage[advantage != 0])
    return float(np.median(size)) if size.size else 1.0


def targets(advantage: Shaped[np.ndarray, "S N"], *, settings: Settings) -> np.ndarray:
    """Return the learned targets of advantages, float32 of the same shape.

    Args:
      advantage: `[S, N]`, advantages of one graph, in ticks, with padding.
      settings: settings of the training.
    """
    size = np.abs(np.asarray(advantage, np.float64)) / scale_of(advantage)
    size = np.log1p(size) if settings.target == "log" else size
    return np.asarray(np.sign(advantage) * size if settings.is_signed else size, np.float32)


def sample_weights(
    advantage: Shaped[np.ndarray, "S N"],
    configurable: Bool[np.ndarray, " N"],
    *,
    settings: Settings,
) -> Float32[np.ndarray, "S N"]:
    """Return the relative probabilities of drawing samples, float32 `[S, N]`, with sum S.

    A batch of the paper takes nine tenths of its samples from each graph's tenth with the largest
    advantages. A loss with these weights is the mean loss of such batches, without their noise.

    Args:
      advantage: `[S, N]`, advantages of one graph, in ticks, with padding.
      configurable: bool `[N]`, ops that have a decision, with padding.
      settings: settings of the training.
    """
    size = np.abs(np.asarray(advantage, np.float64))
    has = np.broadcast_to(configurable, size.shape)
    top = has & (size >= np.quantile(size[has], 0.9))
    weight = settings.largest * top / top.sum() + (1 - settings.largest) * has / has.sum()
    return np.asarray(weight * len(advantage), np.float32)


def samples(
    graphs: GraphsTuple,
    configurable: Bool[np.ndarray, " N"],
    records: Records,
    *,
    settings: Settings,
) -> Samples:
    """Return the samples of one graph.

    Args:
      graphs: the graph with features, see `inputs`.
      configurable: bool `[N]`, ops that have a decision, with padding.
      records: records of the graph, see `gopt.systems.local_advantage.data.sample`.
      settings: settings of the training.

    Raises:
      ValueError: decisions do not have two values.
    """
    check_two_values(settings)
    return Samples(
        graphs,
        records.fuse.astype(np.int32),
        targets(records.advantage, settings=settings),
        sample_weights(records.advantage, configurable, settings=settings),
    )


def predict(
    params: Tree, graphs: GraphsTuple, decisions: Int32[jax.Array, "S N"], *, settings: Settings
) -> Float32[jax.Array, "S N"]:
    """Return predicted targets of one graph in several configurations, float32 `[S, N]`.

    `N` includes padding, for which predictions have no meaning.

    Args:
      params: parameters of the network.
      graphs: the graph with features, see `inputs`.
      decisions: int32 `[S, N]`.
      settings: settings of the network.

    Raises:
      ValueError: decisions do not have two values.
    """
    return jax.vmap(predictor(params, graphs, settings=settings))(decisions)


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
    state: TrainState, key: PRNGKeyArray, batch: Samples, *, settings: Settings
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Return the state after a step on some configurations of one graph, and metrics.

    Args:
      state: state before the step.
      key: random key.
      batch: all samples of one graph; `Settings.configurations` of them are drawn.
      settings: settings of the training.
    """
    count = min(settings.configurations, len(batch.target))
    chosen = jax.random.choice(key, len(batch.target), (count,), replace=False)
    drawn = batch._replace(
        decisions=batch.decisions[chosen], target=batch.target[chosen], weight=batch.weight[chosen]
    )
    gradient, metrics = jax.grad(loss, has_aux=True)(state.params, drawn, settings=settings)
    return state.apply_gradients(grads=gradient), metrics
