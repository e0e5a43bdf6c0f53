"""Peers of gopt: the same costs by other means, and the same search by other packages."""

from gopt.host.extras import optional

_NAMES = ("compiled", "dispatching", "fusions")  # with Numba, which they need when they are used
compiled, dispatching, fusions = (optional(f"{__name__}.{n}", "peers", "Numba") for n in _NAMES)
