"""The policy of REGAL: a network over the graph proposes distributions of the genes of each op."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from gopt.learning.graphs import OP_FEATURES, GraphsTuple
from gopt.learning.layers.graph import op_mask
from gopt.learning.layers.message_passing import MessagePassing
from gopt.learning.layers.recurrent import Feedback, Recurrent
from gopt.systems.regal.actions import Action, quantise
from gopt.systems.regal.exploration import draw_noise
from gopt.systems.regal.inputs import Inputs
from gopt.systems.regal.settings import PLACES, STANDARD, Settings

Tree = Any

VERSION = 8  # version of the meaning of parameters; files of another version are refused


_NETWORKS: dict[str, Callable[[Settings], nn.Module]] = {
    "message_passing": lambda s: MessagePassing(s.width, s.rounds),
    "recurrent": lambda s: Recurrent(s.width),
}
_HEADS: dict[str, Callable[[Settings], Callable[[jax.Array], jax.Array]]] = {
    "independent": lambda _: lambda places: places,
    "autoregressive": lambda s: Feedback(s.width),
}


class Policy(nn.Module):
    """Network that proposes places of ops.

    An untrained policy proposes the guide's schedule (see `gopt.systems.regal.guide`). Exchanging
    the devices changes no cost. So a policy that separates no ops is at a saddle point of the
    reward, and policy gradients leave it very slowly.
    """

    settings: Settings

    def setup(self) -> None:
        """Make the layers."""
        s = self.settings
        self.network = _NETWORKS[s.network](s)
        # Adam moves every weight by about the same step. The factor 0.1 in `__call__` keeps their
        # joint effect small.
        self.learned = nn.Dense(len(PLACES), kernel_init=nn.initializers.normal(0.1))
        self.kernel = self.param("kernel", lambda _: _kernel(s))
        self.bias = self.param("bias", lambda _: _bias(s))
        self.head = _HEADS[s.head](s)

    def __call__(self, graphs: GraphsTuple) -> jax.Array:
        """Return places float32 `[N, L]`, in the order of `PLACES`.

        Deviations, priority and elite bias are mostly in 0..1: from the first level to the last.
        """
        mask = op_mask(graphs)[:, None].astype(jnp.float32)
        ops = self.network(graphs)
        whole = jnp.sum(ops * mask, 0) / jnp.maximum(mask.sum(), 1)
        ops = jnp.concatenate([ops, jnp.broadcast_to(whole, ops.shape)], -1)
        features = cast(jax.Array, graphs.nodes["features"])
        return self.head(0.1 * self.learned(ops) + features @ self.kernel + self.bias[None])


@partial(jax.jit, static_argnames="settings")  # one program, not one for each of its ops
def init(key: jax.Array, inputs: Inputs, *, settings: Settings) -> Tree:
    """Return parameters of an untrained policy. The inputs only give shapes."""
    return Policy(settings).init(key, inputs.graphs)


def apply(params: Tree, graphs: GraphsTuple, *, settings: Settings) -> Float32[jax.Array, "N L"]:
    """Return the places of the ops of one graph, float32 `[N, L]`."""
    return cast(jax.Array, Policy(settings).apply(params, graphs))


def sample(
    key: jax.Array, params: Tree, graphs: GraphsTuple, *, samples: int, settings: Settings
) -> Float32[jax.Array, "S N L"]:
    """Return places sampled around the policy's places for one graph, float32 `[S, N, L]`."""
    places = apply(params, graphs, settings=settings)
    return places[None] + draw_noise(key, graphs, samples=samples, settings=settings)


def act(key: jax.Array | None, params: Tree, inputs: Inputs, *, settings: Settings) -> Action:
    """Return the action for one graph.

    Args:
      key: random key of the exploration; None for the action without exploration.
      params: parameters of the policy.
      inputs: the graph on a machine.
      settings: settings of the policy.
    """
    graphs, devices = inputs.graphs, len(inputs.directions)
    places = apply(params, graphs, settings=settings)
    if key is not None:
        places = places + draw_noise(key, graphs, samples=1, settings=settings)[0]
    return quantise(places, graphs, devices=devices, settings=settings)


def _kernel(settings: Settings) -> jax.Array:
    """Return the initial weights of features for places, `[F, L]`."""
    kernel = np.zeros((len(OP_FEATURES), len(PLACES)), np.float32)
    for axis in ("x", "y"):
        kernel[OP_FEATURES.index(f"side_{axis}"), PLACES.index(axis)] = settings.lean
    kernel[OP_FEATURES.index("turn"), PLACES.index("priority")] = settings.follow
    return jnp.asarray(kernel)


def _bias(settings: Settings) -> jax.Array:
    """Return the initial places of an op without features, `[L]`."""
    first = dict.fromkeys(PLACES, 0.0) | {"elite_bias": STANDARD["elite_bias"]}
    first["device_deviation"] = settings.device_deviation
    first["priority_deviation"] = settings.priority_deviation
    return jnp.float32(list(first.values()))
