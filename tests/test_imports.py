"""Imports between folders of gopt point one way, and no modules import each other in a circle."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

spec = importlib.util.spec_from_file_location("draw_imports", ROOT / "docs" / "draw_imports.py")
draw_imports = importlib.util.module_from_spec(spec)
spec.loader.exec_module(draw_imports)

# Folders that a folder may import.
ALLOWED = {
    "host": "",
    "program": "",
    "search": "host",
    "search_argument": "",
    "graph": "host program",
    "xla": "program graph",
    "cost": "program graph xla",
    "measure": "host program graph xla",
    "heuristics": "host search cost",
    "plots": "cost",
    "sources": "host program graph xla cost",
    "learning": "host graph cost heuristics",
    "result": "host program xla measure plots",
    "workloads": "host sources",
    "rewriting": "host program graph xla cost measure plots result search_argument",
    "systems": "host program search graph cost heuristics learning plots rewriting",
    "fusion": "host program search search_argument graph xla cost measure heuristics plots "
    "result systems",
    "scheduling": "host program search search_argument graph xla cost measure heuristics plots "
    "result systems",
    "decisions": "host result rewriting fusion scheduling",
}


def test_folders_import_allowed_folders_only():
    imports = draw_imports.folder_imports()
    assert imports.keys() == ALLOWED.keys()
    wrong = {name: others - set(ALLOWED[name].split()) for name, others in imports.items()}
    assert not any(wrong.values()), wrong


def test_allowed_imports_have_no_circle():
    draw_imports.layers({name: set(others.split()) for name, others in ALLOWED.items()})


def test_modules_import_each_other_in_no_circle():
    imports = draw_imports.module_imports()
    imports["gopt"] = set()  # the public face: nothing imports it, and it imports all
    draw_imports.layers({name: others - {"gopt"} for name, others in imports.items()})


def test_a_circle_is_found():
    with pytest.raises(ValueError, match="circle: a, b"):
        draw_imports.layers({"a": {"b"}, "b": {"a"}, "c": set()})


def test_the_picture_is_up_to_date():
    assert draw_imports.picture() in draw_imports.PAGE.read_text()


def test_folders_are_small():
    folders = [ROOT / "gopt", *(path for path in (ROOT / "gopt").rglob("*") if path.is_dir())]
    counts = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert max(counts.values()) <= 14, counts
    assert counts["gopt"] <= 6  # with __init__
