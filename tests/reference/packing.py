"""Addresses of tensors, one after another, found by trying every gap."""


def pack(tensors, key):
    """Returns the end of the last of `(size, start, end)` placed in the order of a key.

    Each goes to the smallest gap between those it meets that holds it, the lowest of several.
    """
    placed = []
    for size, start, end in sorted(tensors, key=key):
        met = [(at, at + n) for n, at, a, b in placed if a <= end and start <= b]
        ends = sorted({0, *(high for _, high in met)})
        gaps = []
        for low in ends:
            if any(a < low < b for a, b in met) or any(a == low for a, b in met if b > a):
                continue
            above = [a for a, b in met if a >= low and b > a]
            room = min(above) - low if above else float("inf")
            if room >= size:
                gaps.append((room, low))
        placed.append((size, min(gaps)[1], start, end))
    return max((at + n for n, at, _, _ in placed), default=0)
