"""Tables of results as text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gopt.plots.units import format_bytes, format_seconds


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with aligned columns: the first to the left, others to the right.

    Args:
      rows: cells of each row; all rows have as many.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def candidate_cells(rows: Sequence[Mapping[str, Any]], unit: str) -> list[list[str]]:
    """Return the table of a result as text, without columns that are empty.

    Args:
      rows: a row for each candidate, see `gopt.result.Result.table`.
      unit: unit of predicted costs, "B" or "s".
    """
    predicted = format_bytes if unit == "B" else format_seconds
    columns = {
        "": [row["name"] for row in rows],
        "predicted": [_text(predicted, row["predicted"]) for row in rows],
        "XLA needs": [_text(format_bytes, row["without_arguments"]) for row in rows],
        "change": [_change(rows[0]["without_arguments"], row["without_arguments"]) for row in rows],
        "temporaries": [_text(format_bytes, row["temporaries"]) for row in rows],
        "outputs": [_text(format_bytes, row["outputs"]) for row in rows],
        "arguments": [_text(format_bytes, row["arguments"]) for row in rows],
        "folded": [_text(format_bytes, row["folded"]) for row in rows],
        "process": [_text(format_seconds, row["process s"]) for row in rows],
        "of first": [_text(lambda r: f"{r[0]:.3f}", row["process ratio"]) for row in rows],
        "95 %": [_text(lambda r: f"{r[1]:.3f}-{r[2]:.3f}", row["process ratio"]) for row in rows],
        "wall, of first": [_text(lambda r: f"{r[0]:.3f}", row["wall ratio"]) for row in rows],
    }
    if not any(row["folded"] for row in rows):
        del columns["folded"]
    shown = {title: cells for title, cells in columns.items() if any(cells)}
    return [list(shown), *map(list, zip(*shown.values(), strict=True))]


def _text(format_: Callable[[Any], str], value: Any) -> str:
    return "" if value is None else format_(value)


def _change(before: int | None, after: int | None) -> str:
    """Return the relative change of bytes in percent."""
    return f"{100 * (after / before - 1):+.1f} %" if before and after is not None else ""
