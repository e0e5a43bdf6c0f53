"""Print tables, and write them in Markdown."""

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from gopt.host.files import write_whole

HEAD_WIDTH = 10  # characters in a line of a head, or as many as the cells below it have


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Return a table to print: names on the left, and figures below heads of several lines."""
    result = Table()
    for index, column in enumerate(columns):
        cells = max((len(str(row[index])) for row in rows), default=0)
        lines = wrap(column, max(cells, HEAD_WIDTH), break_long_words=False, break_on_hyphens=False)
        result.add_column(
            "\n".join(lines) if index else column,
            justify="right" if index else "left",
            no_wrap=index == 0,
            overflow="fold",
        )
    for row in rows:
        result.add_row(*(escape(str(cell)) for cell in row))
    return result


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return the same table in Markdown."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    cells = [[str(cell).replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], path: Path) -> None:
    """Print a table without wrapping its cells, and write it to a Markdown file."""
    console, shown = Console(), table(columns, rows)
    widest = console.options.update(max_width=10_000)
    console.width = max(console.width, Measurement.get(console, widest, shown).maximum)
    console.print(title, soft_wrap=True, highlight=False, markup=False)
    console.print(shown)
    with write_whole(path) as temporary:
        temporary.write_text(f"{title}\n\n{markdown(columns, rows)}")


def interval(ratio: tuple[float, float, float]) -> str:
    """Return a ratio and its interval as a table cell."""
    middle, low, high = ratio
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


Column = tuple[str, str | Callable[[Any], Any]]


def show_rows(title: str, rows: Sequence[Any], columns: Sequence[Column], path: Path) -> None:
    """Print a table of rows that are mappings, and write it to a Markdown file.

    Args:
      title: title of the table.
      rows: rows as mappings.
      columns: heads, each with its cells: a key of a row, a format of its values, or a function.
      path: path of the file.
    """

    def cell(row: Any, of: str | Callable[[Any], Any]) -> Any:
        if callable(of):
            return of(row)
        return of.format(**row) if "{" in of else row[of]

    cells = [[cell(row, of) for _, of in columns] for row in rows]
    show(title, [head for head, _ in columns], cells, path)


def ratio(key: str) -> Callable[[Any], str]:
    """Return a function that makes a cell of a ratio with its interval."""
    return lambda row: interval(row[key])


def given(key: str, cell: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that makes a cell, empty if a value of the row is missing."""
    return lambda row: "" if row.get(key) is None else cell(row)


def milliseconds(*keys: Any, digits: int = 3) -> Callable[[Any], str]:
    """Return a function that makes a cell of the least of several times in ms.

    Each of `keys` leads to a time in s.
    """

    def cell(row: Any) -> str:
        for key in keys:
            row = row[key]
        return f"{1e3 * np.min(row):.{digits}f}"

    return cell
