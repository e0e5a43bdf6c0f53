"""Reference packing of tensors: every place and every gap is tried."""


def pack(tensors, key):
    """Return the bytes of a buffer for tensors `(size, start, end)`, placed in the order of a key.

    Each tensor takes the smallest sufficient gap between the tensors that are live with it, the
    lowest on ties.
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


def meets(a, b):
    return a[1] <= b[2] and b[1] <= a[2]


def packed(tensors, outputs):
    """Return the bytes of tensors and outputs, all as `(size, start, end)`.

    A tensor shares the place of the last output that is large enough, if no tensor there is live at
    the same time. The rest is packed by size and by lifetime; the smaller result counts.
    """
    places = [[output] for output in outputs]
    rest = []
    for tensor in sorted(tensors, key=lambda t: (-t[0], t[1])):
        for place in reversed(places):
            if place[0][0] >= tensor[0] and not any(meets(tensor, other) for other in place):
                place.append(tensor)
                break
        else:
            rest.append(tensor)
    orders = (lambda t: (-t[0], t[1] - t[2], t[1]), lambda t: (t[1] - t[2], -t[0], t[1]))
    return sum(output[0] for output in outputs) + min(pack(rest, key) for key in orders)
