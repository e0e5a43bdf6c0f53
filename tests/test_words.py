"""Docstrings and pages avoid openings and phrases that readers stumble over."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPENINGS = re.compile(r"(What|Which|Where|How|Who|Whose)\b")
PHRASES = re.compile(
    r"\b(that which|those which|what there is|such as has|surely|that of|those of|is no|are no"
    r"|of which each|as is said|by the way)\b",
    re.IGNORECASE,
)


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring of a module."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


def complaints(text: str) -> list[str]:
    """Return banned openings and phrases of a text, code and quotations left out."""
    prose = re.sub(r"```.*?```|`[^`]*`|“[^”]*”|\"[^\"]*\"", "x", text, flags=re.DOTALL)
    prose = " ".join(prose.split())
    opening = OPENINGS.match(prose)
    return [*([opening[0]] if opening else []), *(match[0] for match in PHRASES.finditer(prose))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What terms cost.", ["What"]),
        ("Cost models of terms, and that of\na program.", ["that of"]),
        ("Return an op that is no input; it is\n  surely `that of`.", ["is no", "surely"]),
        ("Return what is asked for.", []),
    ],
)
def test_complaints(text, found):
    assert complaints(text) == found


@pytest.mark.parametrize("folder", ["gopt", "experiments", "docs"])
def test_docstrings_are_plain(folder):
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {', '.join(found)}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line, text in docstrings(file)
        if (found := complaints(text))
    ]
    assert not wrong, "\n".join(wrong)


def test_pages_are_plain():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("experiments/**/*.md")]
    wrong = [
        f"{page.relative_to(ROOT)}: {', '.join(found)}: {paragraph[:60]}"
        for page in sorted(pages)
        for paragraph in page.read_text().split("\n\n")
        if (found := complaints(paragraph))
    ]
    assert not wrong, "\n".join(wrong)
