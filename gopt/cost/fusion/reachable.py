"""What each kernel can reach: the ops that may be in it, and all that these read.

How often an op is computed in a kernel, and whether it may be there at all, does not depend on a
configuration: which ops are there does. So each kernel has a list, settled once, that holds of all
configurations what it may have to look at. A configuration picks from it.
"""

from typing import Any, NamedTuple

import numpy as np

from gopt.cost.fusion.rules import REPEATABLE

MAX_TICKS = 2**30 - 1  # costs end here: to compute again what is fused can cost without limit
MAX_TIMES = 2**15  # how often an element is computed again at most


class Reach(NamedTuple):
    """Visits: uses that a kernel has to look at. `N` ops, `V` visits, padded.

    Kernels come from the last to the first, as the ops that end them do; of each the tensors that
    ops in it may read, by their makers from the last to the first; of each tensor its uses, of
    which those that read most come first.
    """

    end: Any  # int32 [N], ops that may end a kernel; then N - 1
    begin: Any  # int32 [N], the first visit of the kernel
    until: Any  # int32 [N], the last visit of what its end reads; before the first if none
    num_kernels: Any  # int32 []
    kernel: Any  # int32 [V], the op that ends the kernel
    reader: Any  # int32 [V], its place among the ops that may be in the kernel, 0 for the end
    maker: Any  # int32 [V], op
    place: Any  # int32 [V], of the maker at its last use, if it may be in the kernel; else N - 1
    may: Any  # int32 [V], -1 if the maker may be in the kernel, else 0
    last: Any  # int32 [V], -1 at the last use of the tensor, else 0
    further: Any  # int32 [V], the last visit of what the maker reads, if it may be in the kernel
    read: Any  # int32 [V], ticks
    work: Any  # int32 [V], ticks that the kernel computes for the maker
    saved: Any  # int32 [V], at the last use, if `may`: ticks of the first one; 0 with clones


class Ops(NamedTuple):
    """What is fused. `n` ops, `e` uses by tensor, and of a tensor those that read most first."""

    compute: np.ndarray  # [n], ticks
    role: np.ndarray  # [n], as a bit
    into: np.ndarray  # [n], roles of ends, as bits, and `REPEATABLE`
    is_kernel: np.ndarray  # bool [n]
    configurable: np.ndarray  # bool [n]
    tensor: np.ndarray  # [e]
    maker: np.ndarray  # [e]
    reader: np.ndarray  # [e]
    times: np.ndarray  # [e]
    read: np.ndarray  # [e], ticks


def reach(ops: Ops, *, limit: int, clones: bool) -> Reach:
    """Returns what kernels can reach, without padding: places that stand for none are -1.

    An op may be in a kernel if rules allow it there, it is not dear and computed several times, and
    fewer than `limit` ops between it and the end may be. It is computed as often as the way through
    the kernel that repeats it most says.

    Args:
      ops: what is fused.
      limit: how many ops may be in a kernel.
      clones: whether an op may be in several kernels; if not, then only in one that may have all
        its readers.
    """
    n = len(ops.compute)
    first = np.searchsorted(ops.maker, np.arange(n + 1))
    count = np.ones(n, np.int64)  # ops that may be in each kernel
    none = np.zeros(0, np.int64)
    held, places, repeated = [none] * n, [none] * n, [none] * n  # kernels that may have each op
    visits = []
    for op in range(n - 1, -1, -1):
        uses = np.arange(first[op], first[op + 1])
        readers = ops.reader[uses].tolist()
        use = np.repeat(uses, [len(held[i]) for i in readers])
        if len(use):
            ends = np.concatenate([held[i] for i in readers])
            times = np.concatenate([repeated[i] for i in readers]) * ops.times[use]
            kernels, which, uses_in = np.unique(ends, return_inverse=True, return_counts=True)
            most = np.ones(len(kernels), np.int64)
            np.maximum.at(most, which, np.minimum(times, MAX_TIMES))
            may = ops.configurable[op] & (ops.into[op] & ops.role[kernels] != 0)
            may &= (most == 1) | (ops.into[op] & REPEATABLE != 0)
            may &= count[kernels] < limit
            if not clones:
                may &= uses_in == len(uses)
            place = np.where(may, count[kernels], -1)
            work = np.where(may, np.minimum(ops.compute[op] * most, MAX_TICKS), 0)
            reader = np.concatenate([places[i] for i in readers])
            visits.append((ends, use, reader, may[which], place[which], work[which]))
            held[op], places[op], repeated[op] = kernels[may], place[may], most[may]
            count[held[op]] += 1
        if ops.is_kernel[op]:
            held[op], places[op] = np.append(held[op], op), np.append(places[op], 0)
            repeated[op] = np.append(repeated[op], 1)
    columns = [np.concatenate(column) for column in zip(*visits, strict=True)] or [none] * 6
    order = np.argsort(-columns[0], kind="stable")
    kernel, use, reader, may, place, work = (column[order] for column in columns)
    tensor = ops.tensor[use]
    is_first = np.ones(len(kernel), bool)
    is_first[1:] = (kernel[1:] != kernel[:-1]) | (tensor[1:] != tensor[:-1])
    last = np.append(is_first[1:], True)[: len(kernel)]

    # The last visit of each tensor, and of all that an op in a kernel reads.
    steps = np.cumsum(is_first) - 1
    stop = np.flatnonzero(last)[steps]
    latest = np.full((n, count.max(initial=1)), -1)  # type: ignore[call-overload]
    np.maximum.at(latest, (kernel, reader), stop)
    ends = np.flatnonzero(ops.is_kernel)[::-1]
    begin = np.searchsorted(-kernel, -ends)
    read = ops.read[use]
    saved = np.where(may & last & (not clones), read[np.flatnonzero(is_first)[steps]], 0)
    return Reach(
        end=ends,
        begin=begin,
        until=np.maximum(latest[ends, 0], begin - 1),
        num_kernels=np.int32(len(ends)),
        kernel=kernel,
        reader=reader,
        maker=ops.maker[use],
        place=np.where(last, place, -1),
        may=-may.astype(np.int32),
        last=-last.astype(np.int32),
        further=np.where(may, latest[kernel, place], -1),
        read=read,
        work=work,
        saved=saved,
    )


def pad_reach(found: Reach, ops: int, visits: int) -> Reach:
    """Returns what kernels can reach, with so many rows, int32."""

    def pad(values: np.ndarray, count: int, fill: int = 0) -> np.ndarray:
        return np.append(values, np.full(count - len(values), fill)).astype(np.int32)

    by_kernel = {"end": pad(found.end, ops, ops - 1), "begin": pad(found.begin, ops)}
    by_kernel["until"] = pad(found.until, ops, -1)
    by_visit = {f: pad(getattr(found, f), visits) for f in Reach._fields[4:]}
    by_visit["place"] = pad(np.where(found.place < 0, ops - 1, found.place), visits, ops - 1)
    return found._replace(**by_kernel, **by_visit)


def admitted(found: Reach, num_ops: int) -> list[dict[int, int]]:
    """Returns the ops that may be in each op's kernel, and the ticks that it computes for each."""
    result: list[dict[int, int]] = [{} for _ in range(num_ops)]
    visits = np.flatnonzero((np.asarray(found.may) != 0) & (np.asarray(found.last) != 0))
    columns = (np.asarray(x)[visits].tolist() for x in (found.kernel, found.maker, found.work))
    for kernel, maker, work in zip(*columns, strict=True):
        result[kernel][maker] = work
    return result
