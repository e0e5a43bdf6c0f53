"""Save figures as files."""

from pathlib import Path
from typing import Any

from gopt.host.files import write_whole


def save_figure(path: Path, figure: Any) -> None:
    """Write a matplotlib figure atomically."""
    with write_whole(path) as temporary:
        figure.savefig(temporary, dpi=200)
