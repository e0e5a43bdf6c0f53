"""From a schedule that a heuristic found to the keys that decode to it."""

from collections.abc import Sequence

import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem

MAX_ITEMS = 2**24  # positions divided by their count stay distinct as float32


def keys_from_items(
    problem: Problem, device: Sequence[int] | np.ndarray, items: Sequence[int]
) -> Keys:
    """Returns the keys of one candidate that places ops on `device` and issues `items` in turn.

    Items must come after the items that they wait for: then each of them is the ready one with
    the smallest key when its turn comes. Items that are not in the list get the key 1.

    Args:
      problem: one problem, on the host.
      device: device of each real op, by index.
      items: ops and transfers in order of issue, numbered as in `Problem`.

    Raises:
      ValueError: an op is not allowed on its device, an item is out of range or listed twice.
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
    """Returns the keys of all ops on device 0, in the order in which they are listed."""
    count = int(problem.num_ops)
    return keys_from_items(problem, [0] * count, range(count))
