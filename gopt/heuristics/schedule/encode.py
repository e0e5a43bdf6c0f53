"""Encode a schedule as the keys that decode to it."""

from collections.abc import Sequence

import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem

MAX_ITEMS = 2**24  # positions divided by their count stay distinct in float32 up to here


def keys_from_items(
    problem: Problem, device: Sequence[int] | np.ndarray, items: Sequence[int]
) -> Keys:
    """Return the keys of one candidate that places ops on `device` and issues `items` in order.

    Each item must follow the items that it waits for. It is then the ready item with the smallest
    key when it is due. Unlisted items get the key 1.

    Args:
      problem: one problem, as NumPy arrays.
      device: device index of each of the n real ops, int `[n]`.
      items: ops and transfers in issue order, numbered as in `Problem`.

    Returns:
      Keys of one candidate, float32.

    Raises:
      ValueError: `device` has a wrong shape or a device that is not allowed; or `items` has an item
        out of range, a duplicate, or more than `MAX_ITEMS` entries.
    """
    (n, t, _), devices = problem.shape, problem.num_devices
    chosen, order = np.asarray(device, np.int64), np.asarray(items, np.int64)
    real = int(problem.num_ops)
    if chosen.shape != (real,):
        raise ValueError(f"device has shape {chosen.shape}: expected one device for {real} ops")
    allowed = (chosen >= 0) & (chosen < devices)
    allowed &= np.asarray(problem.allowed)[np.arange(real), np.clip(chosen, 0, devices - 1)]
    if not allowed.all():
        index = int(np.argmin(allowed))
        raise ValueError(f"device[{index}] is {chosen[index]}: expected a device it is allowed on")
    count = n + t * devices
    good = (order >= 0) & (order < count)
    if not good.all():
        index = int(np.argmin(good))
        raise ValueError(f"items[{index}] is {order[index]}: expected an item in 0..{count - 1}")
    listed, first = np.unique(order, return_index=True)
    if listed.size < order.size:
        index = int(np.setdiff1d(np.arange(order.size), first)[0])
        raise ValueError(f"items[{index}] is {order[index]}: expected each item once")
    if order.size > MAX_ITEMS:
        raise ValueError(f"items has {order.size} rows: expected {MAX_ITEMS} at most")

    key = np.ones(count, np.float32)
    key[order] = np.arange(order.size) / max(order.size, 1)
    place = np.zeros((n, devices), np.float32)
    place[np.arange(real), chosen] = 1
    return Keys(device=place, priority=key[:n], transfer=key[n:].reshape(t, devices))


def keys_in_order(problem: Problem) -> Keys:
    """Return the keys that run all ops on device 0 in index order."""
    count = int(problem.num_ops)
    return keys_from_items(problem, [0] * count, range(count))
