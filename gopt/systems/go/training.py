"""PPO for the policy of GO."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from gopt.learning import losses
from gopt.systems.go.actions import log_prob
from gopt.systems.go.decisions import Simulator, State
from gopt.systems.go.features import Groups
from gopt.systems.go.inputs import Inputs
from gopt.systems.go.policy import embed, init_params, moves
from gopt.systems.go.search import Taken, rollout
from gopt.systems.go.settings import Settings

Tree = Any


class TrainState(NamedTuple):
    """What training carries from step to step."""

    params: Tree
    optimizer: Tree


def reward(ratio: jax.Array) -> jax.Array:
    """Returns -√(cost relative to the cost before), `[...]`, -1 at least, for ratios `[...]`.

    How much worse a decision is does not matter to a search that keeps the best, nor that a cost is
    no number. If it did count, a policy would learn to change what does not matter.
    """
    return -jnp.sqrt(jnp.where(ratio < 1, ratio, 1))


def loss(
    params: Tree, inputs: Inputs, taken: Taken, *, settings: Settings
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the loss of the iterations of one graph, and what to watch.

    PPO; the baseline of a sample is the mean reward of the others of its iteration, task and level,
    and advantages are divided by their root mean square over the graph.

    Args:
      params: of the policy.
      inputs: the graph.
      taken: `[T, ...]`, of T iterations.
      settings: of the policy.
    """
    embedding = embed(params, inputs, settings=settings)
    value = reward(taken.ratio)
    spread = value - losses.leave_one_out(value)
    advantage = spread / (jnp.sqrt(jnp.mean(spread**2)) + settings.quiet)

    def one(row: tuple[tuple[Groups, ...], tuple[jax.Array, ...]]) -> tuple[jax.Array, jax.Array]:
        groups, actions = row
        said = moves(params, embedding, groups, settings=settings)
        log_probs = [log_prob(s.logits, a) for s, a in zip(said, actions, strict=True)]
        return jnp.stack(log_probs), jnp.stack([s.entropy for s in said])

    log_probs, entropy = lax.map(one, (taken.groups, taken.action))
    surrogate = losses.ppo(log_probs, taken.log_prob, advantage, clip=settings.clip)
    value = surrogate - settings.entropy * entropy.mean()
    return value, {"entropy": entropy.mean(), "better": (taken.ratio < 1).mean()}


def optimizer(settings: Settings) -> optax.GradientTransformation:
    """Returns the optimizer of the policy."""
    return optax.chain(optax.clip_by_global_norm(settings.norm), optax.adam(settings.learning_rate))


def init(key: jax.Array, inputs: Inputs, *, settings: Settings) -> TrainState:
    """Returns the state before the first step; `inputs` only give shapes."""
    params = init_params(key, inputs, settings=settings)
    return TrainState(params, optimizer(settings).init(params))


def improve(
    state: TrainState, inputs: Inputs, taken: Taken, *, settings: Settings
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Returns the state after `Settings.epochs` of PPO on a batch of graphs, and what to watch.

    Args:
      state: before.
      inputs: the graphs, `[G, ...]`.
      taken: what was drawn with the parameters of this state, `[G, T, ...]`.
      settings: of the policy.
    """

    def epoch(state: TrainState, _: None) -> tuple[TrainState, dict[str, jax.Array]]:
        def one(row: tuple[Inputs, Taken]) -> tuple[Tree, dict[str, jax.Array]]:
            return jax.grad(loss, has_aux=True)(state.params, *row, settings=settings)

        # One graph after another: they need not be in memory together.
        gradient, watched = jax.tree.map(lambda x: x.mean(0), lax.map(one, (inputs, taken)))
        updates, moments = optimizer(settings).update(gradient, state.optimizer, state.params)
        return TrainState(optax.apply_updates(state.params, updates), moments), watched

    state, watched = lax.scan(epoch, state, None, settings.epochs)
    return state, jax.tree.map(lambda x: x[0], watched)


def tune(
    key: jax.Array,
    state: TrainState,
    inputs: Inputs,
    start: State,
    simulator: Simulator,
    *,
    steps: int,
    settings: Settings,
) -> tuple[TrainState, State, jax.Array]:
    """Returns a policy trained while it searches one graph, the best decision, and costs.

    From parameters of other graphs this is fine-tuning, from random ones the paper's GO-one. In
    each step there are `Settings.iterations`, then the policy is improved; the next step begins
    with the best decision of all.

    Args:
      key: random key.
      state: of training, before.
      inputs: the graph.
      start: the decision to begin with, as of `begin`.
      simulator: as of `simulator_of`.
      steps: of training, `K`.
      settings: of the policy.

    Returns:
      The state after training, the best decision, and the lowest cost after each iteration,
      float32 `[K · iterations]`.
    """

    def step(carry: tuple[TrainState, State], key: jax.Array) -> tuple[Any, jax.Array]:
        trained, best = carry
        best, taken, history = rollout(
            key,
            trained.params,
            inputs,
            best,
            simulator,
            iterations=settings.iterations,
            settings=settings,
        )
        batch = jax.tree.map(lambda x: x[None], (inputs, taken))
        trained, _ = improve(trained, *batch, settings=settings)
        return (trained, best), history

    (state, best), history = lax.scan(step, (state, start), jax.random.split(key, steps))
    return state, best, history.reshape(-1)
