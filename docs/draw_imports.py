"""Draw the imports between the folders of `gopt` as text.

python docs/draw_imports.py            # prints the picture
python docs/draw_imports.py --write    # puts it into docs/architecture.md
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- imports: begin -->\n", "<!-- imports: end -->\n"


def modules() -> dict[str, Path]:
    """Return the file of each module of `gopt`, by dotted name."""
    files = sorted((ROOT / "gopt").rglob("*.py"))
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files)
    return {name.removesuffix(".__init__"): file for name, file in zip(names, files, strict=True)}


def module_imports() -> dict[str, set[str]]:
    """Return the modules of `gopt` that each module imports, anywhere in its code."""
    known = modules()
    return {name: set(_imports(file, known)) - {name} for name, file in known.items()}


def folder_imports() -> dict[str, set[str]]:
    """Return the folders that each folder of `gopt` imports, itself left out."""
    found: dict[str, set[str]] = {}
    for name, imported in module_imports().items():
        if name != "gopt":
            folders = found.setdefault(_folder(name), set())
            folders |= {_folder(other) for other in imported if other != "gopt"} - {_folder(name)}
    return found


def layers(imports: Mapping[str, Set[str]]) -> list[list[str]]:
    """Return nodes in layers: each imports nodes of earlier layers only.

    Raises:
      ValueError: imports form a circle.
    """
    done: set[str] = set()
    found = []
    while len(done) < len(imports):
        layer = sorted(node for node in imports.keys() - done if imports[node] <= done)
        if not layer:
            raise ValueError(f"imports form a circle: {', '.join(sorted(imports.keys() - done))}")
        found.append(layer)
        done.update(layer)
    return found


def picture() -> str:
    """Return the picture: one line for each folder, a blank line between layers."""
    imports = folder_imports()
    rank = {node: k for k, layer in enumerate(layers(imports)) for node in layer}
    width = max(map(len, imports))
    blocks = []
    for layer in layers(imports):
        lines = []
        for node in layer:
            others = ", ".join(sorted(imports[node], key=lambda other: (rank[other], other)))
            lines.append(f"{node:{width}} ──▶ {others}" if others else node)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _folder(name: str) -> str:
    return name.split(".")[1]


def _imports(file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else node.module


if __name__ == "__main__":
    if "--write" in sys.argv:
        page = PAGE.read_text()
        start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        PAGE.write_text(f"{page[:start]}\n```text\n{picture()}\n```\n\n{page[end:]}")
    else:
        print(picture())
