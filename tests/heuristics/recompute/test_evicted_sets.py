"""Times of evicted ops around an op."""

from gopt.heuristics.recompute.evicted_sets import EvictedSets


def test_neighbours_share_a_set_and_a_set_is_not_split():
    around = [[1], [0, 2], [1, 3], [2, 4], [3]]
    sets = EvictedSets([1, 2, 4, 8, 16], around)
    assert [sets.time(op) for op in range(5)] == [1, 2, 4, 8, 16]
    sets.add(1)
    sets.add(3)
    assert sets.time(0) == 1 + 2
    assert sets.time(2) == 4 + 2 + 8
    sets.add(2)
    assert sets.time(0) == 1 + 2 + 4 + 8
    sets.remove(2)
    assert sets.time(0) == 1 + 2 + 8  # op 3 is still in the set of op 1
    assert sets.time(2) == 4 + 2 + 8
    sets.remove(2)  # not evicted: no change
    assert sets.time(4) == 16 + 2 + 8
