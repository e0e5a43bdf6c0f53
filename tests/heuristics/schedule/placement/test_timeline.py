"""Timelines against busy intervals in a plain list."""

import numpy as np
import pytest

from gopt.heuristics.schedule.placement.timeline import Gaps, Tail


def fits(busy, start, ticks):
    """Nothing of `ticks` that starts at `start` overlaps, or runs across, a busy interval."""
    return all(start + ticks <= a or b <= start for a, b in busy)


def earliest_gap(busy, start, ticks):
    candidates = [start, *(b for _, b in busy if b > start)]
    return min(t for t in candidates if fits(busy, t, ticks))


@pytest.mark.parametrize("seed", range(20))
def test_gaps_are_found_and_changes_taken_back(seed):
    rng = np.random.default_rng(seed)
    line, busy, undo = Gaps(), [], []
    for _ in range(200):
        if undo and rng.random() < 0.3:
            line.restore(undo.pop())
            busy.pop()
        start, ticks = int(rng.integers(0, 60)), int(rng.integers(0, 5))
        found = line.earliest(start, ticks)
        assert fits(busy, found, ticks)
        # Blocks that touch are one: an item of no ticks may be put after a block it fits into.
        if ticks > 0:
            assert found == earliest_gap(busy, start, ticks)
        else:
            assert found == start or any(b == found for _, b in busy)
        undo.append(line.occupy(found, found + ticks))
        busy.append((found, found + ticks))


def test_nothing_runs_across_an_item_of_no_ticks():
    line = Gaps()
    line.occupy(3, 3)
    assert line.earliest(2, 2) == 3
    assert line.earliest(2, 1) == 2


def test_a_tail_only_grows_and_can_be_taken_back():
    line = Tail()
    before = line.occupy(4, 9)
    assert (line.earliest(0, 1), line.earliest(12, 1)) == (9, 12)
    line.restore(before)
    assert line.earliest(0, 1) == 0


@pytest.mark.parametrize("blocks", ([(0, 3), (3, 5)], [(3, 5), (0, 3)]))
def test_busy_times_that_touch_are_one_block(blocks):
    line = Gaps()
    for block in blocks:
        line.occupy(*block)
    assert line.earliest(3, 0) == 5
    assert line.earliest(0, 0) == 0
