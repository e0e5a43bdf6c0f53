"""The policy of REGAL: where the genes of each op should lie, by a network over the graph."""

from dataclasses import dataclass
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from gopt.nets.graphs import OP_FEATURES, GraphsTuple, op_mask
from gopt.nets.message_passing import MLP, MessagePassing

Tree = Any


@dataclass(frozen=True)
class Settings:
    """Sizes of the policy, where it starts, and how it is trained.

    Attributes:
      devices: number of devices; a policy is for one number of them.
      bins: levels of the means, and of the deviations, of the Betas.
      width: size of embeddings.
      rounds: rounds of message passing.
      lean: how far the means of devices part at first, along the spectral features.
      device_deviation: place of the first deviations of devices among the levels, in 0..1.
      priority_deviation: that of priorities.
      exploration: root mean square of the noise on the levels while training, in 0..1.
      learning_rate: of Adam, at first.
      steps: gradient steps of training, over which the learning rate falls to zero evenly.
    """

    devices: int = 2
    bins: int = 16
    width: int = 64
    rounds: int = 4
    lean: float = 0.3
    device_deviation: float = 0.9
    priority_deviation: float = 0.65
    exploration: float = 0.05
    learning_rate: float = 2e-4
    steps: int = 400

    def __post_init__(self) -> None:
        for name in ("devices", "bins", "width", "rounds", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 at least")
        if self.exploration <= 0:
            raise ValueError(f"exploration is {self.exploration}: expected more than 0")


class Policy(nn.Module):
    """Places of the levels among all levels, and the baseline.

    Before it is trained, a policy proposes what a person would: ops in the order of the program,
    and devices that part the graph along its spectral features. To exchange the devices changes
    no cost, so that a policy that parts nothing is at a saddle point of the reward, which policy
    gradients take very long to leave.
    """

    settings: Settings

    @nn.compact
    def __call__(self, graphs: GraphsTuple) -> tuple[jax.Array, jax.Array]:
        """Returns places float32 `[N, D + 1, 2]`, in 0..1 mostly, and the expected reward `[]`.

        The last gene is the priority. The first of the two is the mean, the second the deviation.
        """
        s = self.settings
        features = cast(jax.Array, graphs.nodes["features"])
        mask = op_mask(graphs)[:, None]
        count = jnp.maximum(mask.sum(), 1)
        ops = MessagePassing(s.width, s.rounds)(graphs)
        whole = jnp.sum(ops * mask, 0) / count
        ops = jnp.concatenate([ops, jnp.broadcast_to(whole, ops.shape)], -1)
        genes = s.devices + 1
        # A factor of 0.1 makes one step of Adam, which moves every weight as far, small enough.
        learned = 0.1 * nn.Dense(2 * genes, kernel_init=nn.initializers.normal(0.1))(ops)
        kernel = self.param("kernel", lambda _: _kernel(s))
        bias = self.param("bias", lambda _: _bias(s))
        places = learned.reshape(-1, genes, 2) + jnp.tensordot(features, kernel, 1) + bias
        # The baseline reads what does not change in training. Rewards lie close to -1, that of
        # standard BRKGA.
        mean = jnp.sum(features * mask, 0) / count
        return places, 0.1 * MLP(s.width, 1)(mean)[0] - 1.0


def apply(params: Tree, graphs: GraphsTuple, *, settings: Settings) -> tuple[jax.Array, jax.Array]:
    """Returns what `Policy` says of one graph."""
    return cast(tuple[jax.Array, jax.Array], Policy(settings).apply(params, graphs))


def sample(
    key: jax.Array, params: Tree, graphs: GraphsTuple, *, samples: int, settings: Settings
) -> jax.Array:
    """Returns places sampled around those of the policy for one graph, float32 `[S, N, D + 1, 2]`.

    The noise is shared by ops with like features (see `noise_basis`). Noise that is drawn for
    each op on its own averages out over a graph of a thousand ops, and teaches nothing.
    """
    places, _ = apply(params, graphs, settings=settings)
    basis = settings.exploration * noise_basis(graphs)
    noise = jax.random.normal(key, (samples, basis.shape[1], *places.shape[1:]))
    return places + jnp.einsum("nf,sfgk->sngk", basis, noise)


def log_prob(
    places: jax.Array, taken: jax.Array, graphs: GraphsTuple, *, settings: Settings
) -> jax.Array:
    """Returns the log-density of places taken `[S, N, D + 1, 2]`, but for a constant, `[S]`.

    Of the normal distribution that `sample` draws from, in the directions that it varies.
    """
    basis = noise_basis(graphs)
    # The columns of the basis are orthogonal and equally long, or zero.
    length = jnp.max(jnp.sum(basis**2, 0))
    drawn = jnp.einsum("nf,sngk->sfgk", basis, taken - places) / (length * settings.exploration)
    return -0.5 * jnp.sum(drawn**2, (1, 2, 3))


def noise_basis(graphs: GraphsTuple) -> jax.Array:
    """Returns orthogonal columns that span the features over the ops, float32 `[N, F + 1]`.

    The sum of squares of a row is 1 on average over the ops; rows of padding are zero. Columns
    for which the features of this graph have no direction left are zero.

    Source: exploration with features of the state is that of Rückstieß et al., "State-dependent
    exploration for policy gradient methods", ECML 2008.
    """
    mask = op_mask(graphs)[:, None]
    features = cast(jax.Array, graphs.nodes["features"])
    columns = jnp.concatenate([jnp.ones_like(features[:, :1]), features], 1) * mask
    size = jnp.sqrt(jnp.sum(columns**2, 0))
    columns = columns / jnp.maximum(size, 1e-6)
    values, vectors = jnp.linalg.eigh(columns.T @ columns)
    kept = values > 1e-3
    scale = jnp.where(kept, 1 / jnp.sqrt(jnp.maximum(values, 1e-6)), 0)
    return columns @ vectors * scale * jnp.sqrt(mask.sum() / kept.sum())


def quantise(places: jax.Array, graphs: GraphsTuple, *, settings: Settings) -> jax.Array:
    """Returns the action of places `[..., N, D + 1, 2]`: levels, int32 of the same shape.

    Devices are alike, and none is preferred by a graph as a whole: what counts of their means
    is how ops differ, weighted by the logarithm of the bytes that they make, and how devices do.
    """
    features = cast(jax.Array, graphs.nodes["features"])
    weight = (features[:, OP_FEATURES.index("made")] * op_mask(graphs))[:, None]
    means = places[..., :-1, 0]
    means = means - jnp.sum(means * weight, -2, keepdims=True) / jnp.maximum(weight.sum(), 1e-6)
    means = means - jnp.mean(means, -1, keepdims=True) + 0.5
    places = places.at[..., :-1, 0].set(means)
    levels = jnp.floor(places * settings.bins).astype(jnp.int32)
    return jnp.clip(levels, 0, settings.bins - 1)


def action(params: Tree, graphs: GraphsTuple, *, settings: Settings) -> jax.Array:
    """Returns the action of one graph without exploration, int32 `[N, D + 1, 2]`."""
    return quantise(apply(params, graphs, settings=settings)[0], graphs, settings=settings)


def _kernel(settings: Settings) -> jax.Array:
    """Returns the first weights of features for places, `[F, D + 1, 2]`."""
    kernel = np.zeros((len(OP_FEATURES), settings.devices + 1, 2), np.float32)
    # Devices lean in even directions of the plane of the first two spectral features.
    angle = 2 * np.pi * np.arange(settings.devices) / settings.devices
    first = OP_FEATURES.index("spectral_0")
    kernel[first, :-1, 0] = settings.lean * np.cos(angle)
    kernel[first + 1, :-1, 0] = settings.lean * np.sin(angle)
    kernel[OP_FEATURES.index("index"), -1, 0] = 1
    return jnp.asarray(kernel)


def _bias(settings: Settings) -> jax.Array:
    """Returns the first places of an op without features, `[D + 1, 2]`."""
    bias = np.zeros((settings.devices + 1, 2), np.float32)
    bias[:, 1] = settings.device_deviation
    bias[-1, 1] = settings.priority_deviation
    return jnp.asarray(bias)
