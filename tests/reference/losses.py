"""Reference policy-gradient losses: NumPy in float64, one number at a time."""

from collections.abc import Sequence

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, np.float64)
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def log_prob(logits: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return log-probabilities of actions `[...]` for logits `[..., K]`."""
    result = np.empty(np.shape(action))
    for index in np.ndindex(*result.shape):
        row = np.asarray(logits[index], np.float64)
        top = row.max()
        if top == -np.inf:  # all actions are excluded
            result[index] = -np.inf
        else:
            result[index] = row[action[index]] - top - np.log(np.exp(row - top).sum())
    return result


def entropy(logits: np.ndarray) -> np.ndarray:
    """Return entropies `[...]`, in nats, for logits `[..., K]`."""
    result = np.empty(np.shape(logits)[:-1])
    for index in np.ndindex(*result.shape):
        if np.max(logits[index]) == -np.inf:  # all actions are excluded
            result[index] = 0
            continue
        chances = softmax(logits[index])
        result[index] = -sum(p * np.log(p) for p in chances if p > 0)
    return result


def reinforce_gradient(
    logits: np.ndarray, action: np.ndarray, reward: np.ndarray, baseline: np.ndarray
) -> np.ndarray:
    """Return the gradient of the REINFORCE loss with respect to the logits, `[B, K]`.

    The gradient of a log-probability is the one-hot action less the softmax.
    """
    count, size = np.shape(logits)
    result = np.zeros((count, size))
    for row in range(count):
        for arm in range(size):
            score = float(arm == action[row]) - softmax(logits[row])[arm]
            result[row, arm] = -(reward[row] - baseline[row]) * score / count
    return result


def leave_one_out(reward: np.ndarray) -> np.ndarray:
    """Return baselines `[G, S]` of rewards `[G, S]`: the mean over the other samples of a graph."""
    reward = np.asarray(reward, np.float64)
    result = np.empty(reward.shape)
    for g, s in np.ndindex(*reward.shape):
        result[g, s] = np.mean([r for j, r in enumerate(reward[g]) if j != s])
    return result


def regal_log_prob(
    places: np.ndarray,
    taken: np.ndarray,
    features: np.ndarray,
    exploration: float,
    varied: Sequence[str],
) -> tuple[np.ndarray, np.ndarray]:
    """Return log-densities `[S]` of sampled places `[S, N, K]`, and their gradients.

    Gradients are with respect to the mean `places`, `[N, K]`. Noise lies in a space with two parts:
    a constant, and the principal components of the features `[N, F]` whose variance exceeds one
    feature's. It is isotropic there, with root mean square `exploration`. Each entry of `varied`,
    one for each of the K places, is "not", "fully", or "without" the constant.
    """
    n = len(features)
    columns = np.asarray(features, np.float64) - np.mean(features, 0, dtype=np.float64)
    deviation = columns.std(0)
    columns = columns[:, deviation > 1e-4] / deviation[deviation > 1e-4]
    left, values, _ = np.linalg.svd(columns / np.sqrt(n), full_matrices=False)
    left = np.column_stack([np.full(n, n**-0.5), left[:, values**2 > 1]])
    # The expected sum of squares of one place, n exploration², is shared by all directions.
    variance = n * exploration**2 / left.shape[1]
    total, slope = [], []
    for one in np.asarray(taken, np.float64):
        noise = np.zeros_like(one)
        for k, how in enumerate(varied):
            if how != "not":
                space = left[:, 1:] if how == "without" else left
                noise[:, k] = space @ space.T @ (one[:, k] - places[:, k])
        total.append(-0.5 * np.sum(noise**2) / variance)
        slope.append(noise / variance)
    return np.array(total), np.array(slope)


def regal(
    places: np.ndarray,
    features: list[np.ndarray],
    taken: np.ndarray,
    reward: np.ndarray,
    exploration: float,
    advantage_floor: float,
    varied: Sequence[str],
) -> tuple[float, np.ndarray]:
    """Return REGAL's loss, and its gradient with respect to the mean places `[G, N, K]`.

    `features` has the rows of the real ops of each graph. `taken` are the sampled places,
    `[G, S, N, K]`, and `reward` is `[G, S]`. See `regal_log_prob` for `varied`.
    """
    places, reward = (np.asarray(x, np.float64) for x in (places, reward))
    graphs, samples = reward.shape
    advantage = reward - leave_one_out(reward)
    scaled = [row / (np.sqrt(np.mean(row**2)) + advantage_floor) for row in advantage]
    loss = 0.0
    gradient = np.zeros_like(places)
    for g, rows in enumerate(features):
        n = len(rows)
        each, slope = regal_log_prob(places[g, :n], taken[g, :, :n], rows, exploration, varied)
        for s in range(samples):
            loss -= scaled[g][s] * each[s] / (graphs * samples)
            gradient[g, :n] -= scaled[g][s] * slope[s] / (graphs * samples)
    return float(loss), gradient


def ppo(
    log_prob: np.ndarray, old_log_prob: np.ndarray, advantage: np.ndarray, clip: float
) -> float:
    """Return PPO's clipped surrogate loss, one action at a time."""
    total = 0.0
    for new, old, gain in zip(
        np.ravel(log_prob), np.ravel(old_log_prob), np.ravel(advantage), strict=True
    ):
        never = new == old == -np.inf  # impossible before and after: the ratio is 1
        ratio = 1.0 if never else np.exp(min(np.float64(new) - np.float64(old), 20))
        total += min(ratio * gain, min(max(ratio, 1 - clip), 1 + clip) * gain)
    return -total / np.size(log_prob)


def reinforce(log_prob: np.ndarray, reward: np.ndarray, baseline: np.ndarray) -> float:
    """Return the REINFORCE loss, one action at a time."""
    rows = zip(np.ravel(log_prob), np.ravel(reward), np.ravel(baseline), strict=True)
    return -sum((float(r) - float(b)) * float(p) for p, r, b in rows) / np.size(log_prob)


def baseline_error(reward: np.ndarray, baseline: np.ndarray) -> float:
    """Return the mean squared error, one reward at a time."""
    rows = zip(np.ravel(reward), np.ravel(baseline), strict=True)
    return sum((float(r) - float(b)) ** 2 for r, b in rows) / np.size(reward)


def advantages(
    reward: np.ndarray, value: np.ndarray, after: np.ndarray, discount: float, trace: float
) -> np.ndarray:
    """Return generalised advantages `[..., T]`: discounted sums of the errors from each step on."""
    result = np.zeros(np.shape(reward))
    for *row, t in np.ndindex(*result.shape):
        for k in range(t, result.shape[-1]):
            at = (*row, k)
            error = float(reward[at]) + discount * float(after[at]) - float(value[at])
            result[(*row, t)] += (discount * trace) ** (k - t) * error
    return result
