"""The least memory that any order of some steps needs, by exhaustive search.

Source: our own; checked with instances whose optima are known.
"""

from collections.abc import Collection, Sequence


def least_peak(
    sizes: Sequence[int],
    reads: Sequence[Collection[int]],
    kept: Collection[int],
    over: Collection[int] = (),
) -> int:
    """Return the least peak over all orders of steps; each step makes one tensor.

    A step holds the tensors that it reads and makes. A tensor is freed after its last reader. Takes
    seconds for about sixty steps of a randomly wired network, and longer if many orders are close.

    Args:
      sizes: bytes that each step makes.
      reads: for each step, the steps whose tensors it reads.
      kept: steps whose tensors stay to the end.
      over: steps that may overwrite a tensor of equal size that they are the last to read.
    """
    search = _Search(sizes, reads, kept, over)
    bound = max(sizes)
    while (needed := search.beyond(bound)) > bound:
        bound = needed
    return bound


class _Search:
    """Search over orders under a bound; sets of steps are the bits of an integer."""

    def __init__(
        self,
        sizes: Sequence[int],
        reads: Sequence[Collection[int]],
        kept: Collection[int],
        over: Collection[int],
    ):
        self.sizes, self.over = sizes, set(over)
        self.reads = [tuple(set(read)) for read in reads]
        self.needs = [sum(1 << u for u in read) for read in self.reads]
        self.readers = [0] * len(sizes)
        for v, read in enumerate(self.reads):
            for u in read:
                self.readers[u] |= 1 << v
        self.kept = set(kept)

    def beyond(self, bound: int) -> int:
        """Return the bound if some order keeps to it, else the least peak that exceeds it."""
        every, least = (1 << len(self.sizes)) - 1, sum(self.sizes)
        seen, waiting = set[int](), [(0, 0)]
        while waiting:
            done, live = waiting.pop()
            if done in seen:
                continue
            seen.add(done)
            if done == every:
                return bound
            following = []
            for step in range(len(self.sizes)):
                if done >> step & 1 or self.needs[step] & ~done:
                    continue
                peak, after = self._run(step, done, live)
                if peak > bound:
                    least = min(least, peak)
                elif after <= live:
                    # Nothing is lost by running first what fits and leaves no more than there was.
                    following = [(done | 1 << step, after)]
                    break
                else:
                    following.append((done | 1 << step, after))
            waiting += following
        return max(least, bound + 1)

    def _run(self, step: int, done: int, live: int) -> tuple[int, int]:
        """Return the bytes held during a step and after it."""
        left = ~(done | 1 << step)
        freed = [
            self.sizes[u]
            for u in self.reads[step]
            if u not in self.kept and not self.readers[u] & left
        ]
        size = self.sizes[step]
        peak = live + (0 if step in self.over and size in freed else size)
        is_read = self.readers[step] or step in self.kept
        return peak, live + (size if is_read else 0) - sum(freed)
