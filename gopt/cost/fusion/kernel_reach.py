"""Reach of each kernel: the ops it may contain, and the tensors these read.

The configuration decides which ops a kernel contains. It does not change which ops the kernel may
contain, nor how often it computes each. So each kernel has one list of uses for all
configurations, from which a configuration selects.
"""

from typing import Any, NamedTuple

import numpy as np

from gopt.cost.fusion.rules import REPEATABLE

MAX_TICKS = 2**30 - 1  # cap on costs, since recomputation can grow without bound
MAX_REPETITIONS = 2**15  # cap on the repetitions of an element


class KernelReach(NamedTuple):
    """Visits: the uses that a kernel has to look at. `N` ops, `V` visits, padded.

    Kernels are ordered by their ends, last first. Within a kernel, tensors are ordered by their
    producers, last first. Of a tensor's uses the one that reads most comes first.

    Attributes:
      end: int32 `[N]`; ops that may end a kernel, then N - 1.
      begin: int32 `[N]`; first visit of the kernel.
      last_visit_of_end: int32 `[N]`; last visit of a tensor that the end reads; `begin` - 1 if
        there is none.
      num_kernels: int32 `[]`; kernels without padding.
      kernel: int32 `[V]`; op that ends the kernel.
      consumer_place: int32 `[V]`; place of the consumer among the ops the kernel may contain; 0 for
        the end.
      producer: int32 `[V]`; op that makes the tensor.
      place: int32 `[V]`; place of the producer, at its last use, if the kernel may contain it; else
        N - 1.
      may_contain_mask: int32 `[V]`; -1 if the kernel may contain the producer, else 0.
      is_last_mask: int32 `[V]`; -1 at the tensor's last use in the kernel, else 0.
      last_visit_of_producer: int32 `[V]`; last visit of a tensor that the producer reads, if the
        kernel may contain the producer; else -1.
      read: int32 `[V]`; ticks to read the tensor.
      work: int32 `[V]`; ticks that the kernel computes for the producer.
      saved_ticks: int32 `[V]`; at the last use, if the kernel may contain the producer: ticks of
        the first use; 0 with duplication.
    """

    end: Any
    begin: Any
    last_visit_of_end: Any
    num_kernels: Any
    kernel: Any
    consumer_place: Any
    producer: Any
    place: Any
    may_contain_mask: Any
    is_last_mask: Any
    last_visit_of_producer: Any
    read: Any
    work: Any
    saved_ticks: Any


class Ops(NamedTuple):
    """Ops to fuse. `n` ops; `e` uses sorted by tensor, and within a tensor by ticks, most first.

    Attributes:
      compute: `[n]`; ticks to compute the op once.
      role: `[n]`; bit of the op's role.
      fuses_into: `[n]`; bits of the roles of ends it may be fused into, and `REPEATABLE`.
      is_kernel: bool `[n]`; true if the op can run as a kernel.
      configurable: bool `[n]`; true if the op may be fused into its consumers.
      tensor: `[e]`; tensor that is read.
      producer: `[e]`; op that makes it.
      consumer: `[e]`; op that reads it.
      repetitions: `[e]`; number of times the consumer uses each element.
      read: `[e]`; ticks to read it.
    """

    compute: np.ndarray
    role: np.ndarray
    fuses_into: np.ndarray
    is_kernel: np.ndarray
    configurable: np.ndarray
    tensor: np.ndarray
    producer: np.ndarray
    consumer: np.ndarray
    repetitions: np.ndarray
    read: np.ndarray


def compute_reach(ops: Ops, *, max_kernel_ops: int, allow_duplication: bool) -> KernelReach:
    """Return the reach of kernels, without padding; missing places are -1.

    A kernel may contain an op if rules allow it, and if the op is not both expensive and repeated.
    Fewer than `max_kernel_ops` later ops, the end included, may be in the kernel already. The op is
    computed as often as the path through the kernel with the most repetitions requires.

    Args:
      ops: ops to fuse.
      max_kernel_ops: largest number of ops in a kernel.
      allow_duplication: whether an op may be in several kernels. If not, a kernel may contain it
        only if it may contain all its consumers.
    """
    n = len(ops.compute)
    first = np.searchsorted(ops.producer, np.arange(n + 1))
    count = np.ones(n, np.int64)  # number of ops each kernel may contain
    none = np.zeros(0, np.int64)
    held, places, repeated = [none] * n, [none] * n, [none] * n  # kernels that may contain an op
    visits = []
    for op in range(n - 1, -1, -1):
        uses = np.arange(first[op], first[op + 1])
        readers = ops.consumer[uses].tolist()
        use = np.repeat(uses, [len(held[i]) for i in readers])
        if len(use):
            ends = np.concatenate([held[i] for i in readers])
            repetitions = np.concatenate([repeated[i] for i in readers]) * ops.repetitions[use]
            kernels, which, uses_in = np.unique(ends, return_inverse=True, return_counts=True)
            most = np.ones(len(kernels), np.int64)
            np.maximum.at(most, which, np.minimum(repetitions, MAX_REPETITIONS))
            may = ops.configurable[op] & (ops.fuses_into[op] & ops.role[kernels] != 0)
            may &= (most == 1) | (ops.fuses_into[op] & REPEATABLE != 0)
            may &= count[kernels] < max_kernel_ops
            if not allow_duplication:
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

    # The last visit of each tensor, and of the tensors that an op in a kernel reads.
    steps = np.cumsum(is_first) - 1
    stop = np.flatnonzero(last)[steps]
    latest = np.full((n, count.max(initial=1)), -1)  # type: ignore[call-overload]
    np.maximum.at(latest, (kernel, reader), stop)
    ends = np.flatnonzero(ops.is_kernel)[::-1]
    begin = np.searchsorted(-kernel, -ends)
    read = ops.read[use]
    saved = np.where(may & last & (not allow_duplication), read[np.flatnonzero(is_first)[steps]], 0)
    return KernelReach(
        end=ends,
        begin=begin,
        last_visit_of_end=np.maximum(latest[ends, 0], begin - 1),
        num_kernels=np.int32(len(ends)),
        kernel=kernel,
        consumer_place=reader,
        producer=ops.producer[use],
        place=np.where(last, place, -1),
        may_contain_mask=-may.astype(np.int32),
        is_last_mask=-last.astype(np.int32),
        last_visit_of_producer=np.where(may, latest[kernel, place], -1),
        read=read,
        work=work,
        saved_ticks=saved,
    )


def pad_reach(found: KernelReach, ops: int, visits: int) -> KernelReach:
    """Return the reach padded to these numbers of rows, int32.

    Args:
      found: reach as returned by `compute_reach`.
      ops: padded number of ops, `N`.
      visits: padded number of visits, `V`.
    """

    def pad(values: np.ndarray, count: int, fill: int = 0) -> np.ndarray:
        return np.append(values, np.full(count - len(values), fill)).astype(np.int32)

    by_kernel = {"end": pad(found.end, ops, ops - 1), "begin": pad(found.begin, ops)}
    by_kernel["last_visit_of_end"] = pad(found.last_visit_of_end, ops, -1)
    by_visit = {f: pad(getattr(found, f), visits) for f in KernelReach._fields[4:]}
    by_visit["place"] = pad(np.where(found.place < 0, ops - 1, found.place), visits, ops - 1)
    return found._replace(**by_kernel, **by_visit)


def members_by_kernel(found: KernelReach, num_ops: int) -> list[dict[int, int]]:
    """Return, for each op's kernel, the ops it may contain, and the ticks it computes for each.

    Args:
      found: reach, padded or not.
      num_ops: number of ops.
    """
    result: list[dict[int, int]] = [{} for _ in range(num_ops)]
    visits = np.flatnonzero(
        (np.asarray(found.may_contain_mask) != 0) & (np.asarray(found.is_last_mask) != 0)
    )
    columns = (np.asarray(x)[visits].tolist() for x in (found.kernel, found.producer, found.work))
    for kernel, maker, work in zip(*columns, strict=True):
        result[kernel][maker] = work
    return result
