"""The policy of REGAL: where the genes of each op should lie, by a network over the graph."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from gopt.nets.graphs import OP_FEATURES, GraphsTuple, op_mask
from gopt.nets.message_passing import MLP, MessagePassing
from gopt.nets.recurrent import Feedback, Recurrent

Tree = Any

# What the policy says of an op, by the part of the search that it leads. Placement: where it lies
# in a plane in which devices are directions, and how wide the Betas of its devices are. Scheduling:
# mean and deviation of the Beta of its priority. Then the chance that a gene comes from the elite
# parent, and how far the Betas of the transfers of what it makes are from that of the priority of
# the first reader.
PARTS = {
    "placement": ("x", "y", "device_deviation"),
    "scheduling": ("priority", "priority_deviation"),
    "elite_bias": ("elite_bias",),
    "transfers": ("transfer", "transfer_deviation"),
}
PLACES = tuple(place for places in PARTS.values() for place in places)

NETWORKS: dict[str, Callable[["Settings"], nn.Module]] = {
    "message_passing": lambda s: MessagePassing(s.width, s.rounds),
    "recurrent": lambda s: Recurrent(s.width),  # graph as sequence, GAS
}
HEADS: dict[str, Callable[["Settings"], Any]] = {
    "independent": lambda s: Independent(),
    "autoregressive": lambda s: Feedback(s.width, len(PLACES)),
}

CENTRED = ("x", "y", "priority")  # only how they differ between the ops of a graph counts

VERSION = 6  # of what the parameters of a policy mean; files of another one are refused


class Action(NamedTuple):
    """What a search does about each op: levels of `Settings.bins`."""

    genes: Any  # int32 [N, D + 1, 2], mean and deviation for each device, then of the priority
    elite_bias: Any  # int32 [N]
    transfer: Any  # int32 [N, 2], added to the levels of the priority of the first reader


@dataclass(frozen=True)
class Settings:
    """Sizes of the policy, how it is searched from, where it starts, and how it is trained.

    Attributes:
      parts: of the search that the policy leads, some of `PARTS`; the rest is, to a level, as in
        standard BRKGA, but that transfers go when their first reader has its turn.
      network: that embeds ops, one of `NETWORKS`.
      head: how the places of ops hang together, one of `HEADS`.
      bins: levels of the means, and of the deviations, of the Betas.
      width: size of embeddings.
      rounds: rounds of message passing.
      trust: share of the first population, and of the mutants, that is drawn from the Betas; the
        rest is uniform, so that an action that is wrong for a graph costs little.
      lean: how far the means of devices part at first, towards the sides of the guide.
      heavy: share of all bytes with which the proposals for an op are narrowed 1/e as much (see
        `loosen_heavy`). In graphs of thirty tensors and less they hardly are.
      device_deviation: place of the first deviations of devices among the levels, in 0..1.
      priority_deviation: that of priorities.
      exploration: root mean square of the noise on the places while training.
      quiet: differences of the rewards of one graph that count for little in training.
      learning_rate: of Adam, at first.
      steps: gradient steps of training, over which the learning rate falls to zero evenly.
    """

    parts: tuple[str, ...] = ("placement", "scheduling")
    network: str = "message_passing"
    head: str = "independent"
    bins: int = 16
    width: int = 64
    rounds: int = 4
    trust: float = 0.8
    lean: float = 0.3
    heavy: float = 0.03
    device_deviation: float = 0.9
    priority_deviation: float = 0.3
    exploration: float = 0.1
    quiet: float = 2e-3
    learning_rate: float = 1e-3
    steps: int = 100

    def __post_init__(self) -> None:
        unknown = sorted(set(self.parts) - set(PARTS))
        if unknown or not self.parts:
            raise ValueError(f"parts is {self.parts}: expected some of {', '.join(PARTS)}")
        for name, known in (("network", NETWORKS), ("head", HEADS)):
            if getattr(self, name) not in known:
                expected = ", ".join(known)
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected one of {expected}")
        for name in ("bins", "width", "rounds", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 at least")
        if not 0 <= self.trust <= 1:
            raise ValueError(f"trust is {self.trust}: expected 0..1")
        for name in ("heavy", "exploration", "quiet"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: expected more than 0")


class Independent(nn.Module):
    """The head of ops that take what they take independently of each other, given the graph."""

    def __call__(self, base: jax.Array, noise: jax.Array) -> jax.Array:
        """Returns what ops take, `[..., N, L]`."""
        return base + noise

    def means(self, base: jax.Array, taken: jax.Array) -> jax.Array:
        """Returns the means around which they took it, `[N, L]`."""
        return base


class Policy(nn.Module):
    """Places of ops, and the baseline.

    Before it is trained, a policy proposes what a person would: what the guide does (see
    `gopt.systems.regal.guide`). To exchange the devices changes no cost, so that a policy that
    parts nothing is at a saddle point of the reward, which policy gradients take very long to
    leave.
    """

    settings: Settings

    def setup(self) -> None:
        """Makes the parts."""
        s = self.settings
        self.network = NETWORKS[s.network](s)
        # Adam moves every weight as far. A factor keeps small what all of them move
        # together.
        self.learned = nn.Dense(len(PLACES), kernel_init=nn.initializers.normal(0.1))
        self.kernel = self.param("kernel", lambda _: _kernel(s))
        self.bias = self.param("bias", lambda _: _bias(s))
        self.head = HEADS[s.head](s)
        self.baseline = MLP(s.width, 1)

    def __call__(self, graphs: GraphsTuple, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns places and the expected reward `[]`.

        Places are float32 `[..., N, L]`, in the order of `PLACES`, with this noise `[..., N, L]`.
        Deviations, priority and elite bias lie in 0..1 mostly: from the first
        level to the last.
        """
        return self.head(self._base(graphs), noise), self._expected(graphs)

    def means(self, graphs: GraphsTuple, taken: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the places around which `[..., N, L]` were taken, and the expected reward."""
        return self.head.means(self._base(graphs), taken), self._expected(graphs)

    def _base(self, graphs: GraphsTuple) -> jax.Array:
        """Returns what the network says of each op alone, `[N, L]`."""
        mask = op_mask(graphs)[:, None]
        ops = self.network(graphs)
        whole = jnp.sum(ops * mask, 0) / jnp.maximum(mask.sum(), 1)
        ops = jnp.concatenate([ops, jnp.broadcast_to(whole, ops.shape)], -1)
        features = cast(jax.Array, graphs.nodes["features"])
        return 0.1 * self.learned(ops) + features @ self.kernel + self.bias

    def _expected(self, graphs: GraphsTuple) -> jax.Array:
        """Returns the reward that is expected, by the features, which do not change in training.

        Rewards lie close to -1, that of standard BRKGA.
        """
        features, mask = cast(jax.Array, graphs.nodes["features"]), op_mask(graphs)[:, None]
        mean = jnp.sum(features * mask, 0) / jnp.maximum(mask.sum(), 1)
        return 0.1 * self.baseline(mean)[0] - 1.0


def init_params(key: jax.Array, graphs: GraphsTuple, *, settings: Settings) -> Tree:
    """Returns parameters of a policy that is not trained; `graphs` is one graph, for its shapes."""
    return Policy(settings).init(key, graphs, _nothing(graphs))


def apply(params: Tree, graphs: GraphsTuple, *, settings: Settings) -> tuple[jax.Array, jax.Array]:
    """Returns the places of a graph without noise, `[N, L]`, and the expected reward, `[]`."""
    said = Policy(settings).apply(params, graphs, _nothing(graphs))
    return cast(tuple[jax.Array, jax.Array], said)


def sample(
    key: jax.Array, params: Tree, graphs: GraphsTuple, *, samples: int, settings: Settings
) -> jax.Array:
    """Returns places sampled around those of the policy for one graph, float32 `[S, N, L]`.

    The noise is shared by ops with like features (see `noise_basis`). Noise that is drawn for
    each op on its own averages out over a graph of a thousand ops, and teaches nothing. Places of
    parts that the policy does not lead have none, and where `quantise` takes away the mean, ops do
    not move together.
    """
    basis = settings.exploration * noise_basis(graphs)
    noise = jax.random.normal(key, (samples, basis.shape[1], len(PLACES)))
    noise = basis @ (noise * _is_explored(basis.shape[1], settings))
    return cast(jax.Array, Policy(settings).apply(params, graphs, noise)[0])


def means(
    params: Tree, graphs: GraphsTuple, taken: jax.Array, *, settings: Settings
) -> tuple[jax.Array, jax.Array]:
    """Returns the places around which `[S, N, L]` were sampled, and the expected reward, `[]`."""
    said = Policy(settings).apply(params, graphs, taken, method="means")
    return cast(tuple[jax.Array, jax.Array], said)


def log_prob(
    places: jax.Array, taken: jax.Array, graphs: GraphsTuple, *, settings: Settings
) -> jax.Array:
    """Returns the log-density of places taken `[S, N, L]`, but for a constant, `[S]`.

    Of the normal distribution that `sample` draws from, in the directions in which it varies. Other
    directions get no gradient, so that training follows a projection of that of the reward.

    Args:
      places: as of `means`.
      taken: places sampled.
      graphs: the graph.
      settings: the settings of the policy.
    """
    basis = noise_basis(graphs)
    # The columns of the basis are orthogonal and equally long, or zero.
    length = jnp.max(jnp.sum(basis**2, 0))
    drawn = basis.T @ (taken - places) / (length * settings.exploration)
    return -0.5 * jnp.sum(drawn**2 * _is_explored(basis.shape[1], settings), (1, 2))


def noise_basis(graphs: GraphsTuple) -> jax.Array:
    """Returns the directions of the noise, orthogonal columns over the ops, float32 `[N, F + 1]`.

    A constant, and the principal components of the features of this graph that vary more than
    one feature does (Kaiser's rule); the other columns are zero. The sum of squares of a row is 1
    on average over the ops; rows of padding are zero.

    Source: noise that features of the state share is that of Rückstieß et al., "State-dependent
    exploration for policy gradient methods", ECML 2008; the components are our choice.
    """
    mask = op_mask(graphs)[:, None]
    count = jnp.maximum(mask.sum(), 1)
    features = cast(jax.Array, graphs.nodes["features"])
    centred = (features - jnp.sum(features * mask, 0) / count) * mask
    deviation = jnp.sqrt(jnp.sum(centred**2, 0) / count)
    scaled = jnp.where(deviation > 1e-4, centred / jnp.maximum(deviation, 1e-4), 0)
    values, vectors = jnp.linalg.eigh(scaled.T @ scaled / count)
    kept = values > 1
    components = scaled @ vectors * jnp.where(kept, 1 / jnp.sqrt(jnp.maximum(values, 1)), 0)
    columns = jnp.concatenate([mask.astype(jnp.float32), components], 1)
    return columns / jnp.sqrt(1 + kept.sum())


def quantise(places: jax.Array, graphs: GraphsTuple, *, devices: int, settings: Settings) -> Action:
    """Returns the action of places `[..., N, L]`, with the leading axes of the places.

    The origin of the plane is put into the middle of the graph: the mean of the ops, weighted by
    the logarithm of the bytes that they make. The mean of the priorities of ops that run is put
    to 1/2: what counts is mostly how they differ. Ops that read or make much are led less (see
    `loosen_heavy`).
    """
    features = cast(jax.Array, graphs.nodes["features"])
    mask = op_mask(graphs)
    weight = (features[:, OP_FEATURES.index("made")] * mask)[:, None]
    plane = places[..., :2]
    middle = jnp.sum(plane * weight, -2, keepdims=True) / jnp.maximum(weight.sum(), 1e-6)
    runs = mask & (features[:, OP_FEATURES.index("is_input")] == 0)
    priority = places[..., PLACES.index("priority")]
    mean = jnp.sum(priority * runs, -1, keepdims=True) / jnp.maximum(runs.sum(), 1)
    places = places.at[..., :2].set(plane - middle)
    places = places.at[..., PLACES.index("priority")].set(priority - mean + 0.5)
    places = loosen_heavy(places, features[:, OP_FEATURES.index("share")], settings)
    return levels(places, devices=devices, settings=settings)


def loosen_heavy(places: jax.Array, share: jax.Array, settings: Settings) -> jax.Array:
    """Returns places `[..., N, L]` that lead an op the less, the more bytes it reads or makes.

    Its place in the plane fades to the origin, and the deviation of its priority to the widest,
    around the mean that it had. Which of the few largest tensors share a device, and which is
    freed before the next is made, is a matter of packing: searches find it better if they are
    led less. To fade the mean of the priority, too, was no better on training graphs.

    Args:
      places: as of `apply`, with the origin in the middle of the graph.
      share: of all bytes that each op reads, or makes, whichever is more, in 0..1, `[N]`.
      settings: the settings of the policy.
    """
    kept = jnp.exp(-share / settings.heavy)
    deviation = PLACES.index("priority_deviation")
    places = places.at[..., :2].multiply(kept[:, None])
    return places.at[..., deviation].set(1 - kept * (1 - places[..., deviation]))


def levels(places: jax.Array, *, devices: int, settings: Settings) -> Action:
    """Returns the levels of places `[..., N, L]` as they are.

    Devices are taken to be alike: they lie in even directions of the plane. The mean of a device
    is 1/2 at the origin, and more in its direction. Where a part is not led, places count as those
    that are nearest to standard BRKGA: to uniform keys, and to its elite bias.
    """
    places = jnp.where(_is_led(settings), places, jnp.float32(list(_STANDARD.values())))
    at = dict(zip(PLACES, jnp.moveaxis(places, -1, 0), strict=True))
    angle = 2 * np.pi * np.arange(devices) / devices
    means = 0.5 + places[..., :2] @ np.stack([np.cos(angle), np.sin(angle)])
    deviations = jnp.broadcast_to(at["device_deviation"][..., None], means.shape)
    genes = jnp.stack(
        [
            jnp.concatenate([means, at["priority"][..., None]], -1),
            jnp.concatenate([deviations, at["priority_deviation"][..., None]], -1),
        ],
        -1,
    )
    bins = settings.bins

    def level(place: jax.Array) -> jax.Array:
        return jnp.clip(jnp.floor(place * bins), 0, bins - 1).astype(jnp.int32)

    shift = jnp.stack([at["transfer"], at["transfer_deviation"]], -1)
    shift = jnp.clip(jnp.round(shift * bins), -bins, bins).astype(jnp.int32)
    return Action(level(genes), level(at["elite_bias"]), shift)


def action(params: Tree, graphs: GraphsTuple, *, devices: int, settings: Settings) -> Action:
    """Returns the action of one graph without exploration."""
    places, _ = apply(params, graphs, settings=settings)
    return quantise(places, graphs, devices=devices, settings=settings)


# Places nearest to what standard BRKGA does: means of 1/2, the widest deviations, a bias of 0.7.
_STANDARD = dict.fromkeys(PLACES, 0.0)
_STANDARD |= {"device_deviation": 1.0, "priority": 0.5, "priority_deviation": 1.0}
_STANDARD |= {"elite_bias": 0.4}


def _nothing(graphs: GraphsTuple) -> jax.Array:
    """Returns no noise for one graph, `[N, L]`."""
    return jnp.zeros((graphs.nodes["features"].shape[0], len(PLACES)))


def _kernel(settings: Settings) -> jax.Array:
    """Returns the first weights of features for places, `[F, L]`."""
    kernel = np.zeros((len(OP_FEATURES), len(PLACES)), np.float32)
    for axis in ("x", "y"):
        kernel[OP_FEATURES.index(f"side_{axis}"), PLACES.index(axis)] = settings.lean
    kernel[OP_FEATURES.index("turn"), PLACES.index("priority")] = 1
    return jnp.asarray(kernel)


def _bias(settings: Settings) -> jax.Array:
    """Returns the first places of an op without features, `[L]`."""
    first = dict.fromkeys(PLACES, 0.0) | {"elite_bias": _STANDARD["elite_bias"]}
    first["device_deviation"] = settings.device_deviation
    first["priority_deviation"] = settings.priority_deviation
    return jnp.float32(list(first.values()))


def _is_explored(directions: int, settings: Settings) -> np.ndarray:
    """Returns which places vary in which directions of `noise_basis`, bool `[F + 1, L]`."""
    explored = np.tile(_is_led(settings), (directions, 1))
    explored[0, [PLACES.index(place) for place in CENTRED]] = False
    return explored


def _is_led(settings: Settings) -> np.ndarray:
    """Returns which places count, bool `[L]`."""
    return np.array([part in settings.parts for part, places in PARTS.items() for _ in places])
