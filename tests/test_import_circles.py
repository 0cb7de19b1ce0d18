"""No circle of imports at any level: among the files and folders of each folder, imports run one way."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("staging", "hpcbench", "apps")


def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    found = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of the project that ``path`` imports anywhere: in functions, for types, and by ``import_module``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & known.keys()
            if not inner <= known.keys():
                found.add(node.module)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                found.add(str(node.args[0].value))
    return found & known.keys()


def edges(graph: dict[str, set[str]], folder: str) -> dict[str, set[str]]:
    """What each file and folder directly below ``folder`` imports of its siblings."""
    start = f"{folder}." if folder else ""
    below: dict[str, set[str]] = {}
    for module, others in graph.items():
        if module.startswith(start):
            own = module[len(start) :].split(".")[0]
            siblings = {other[len(start) :].split(".")[0] for other in others if other.startswith(start)}
            below.setdefault(own, set()).update(siblings - {own})
    return below


KNOWN = modules()
GRAPH = {module: imports(path, KNOWN) - {module} for module, path in KNOWN.items()}
FOLDERS = ["", *sorted(module for module, path in KNOWN.items() if path.name == "__init__.py")]


def test_no_file_imports_itself_through_others() -> None:
    assert len(KNOWN) > 600
    assert sum(map(len, GRAPH.values())) > 2000
    TopologicalSorter(GRAPH).prepare()  # names a circle where there is one


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder or "packages")
def test_what_lies_in_a_folder_imports_one_way(folder: str) -> None:
    TopologicalSorter(edges(GRAPH, folder)).prepare()


def test_a_circle_would_be_found() -> None:
    graph = {"a.b.c": {"a.d"}, "a.d": {"a.b.e"}, "a.b.e": set[str]()}
    TopologicalSorter(graph).prepare()
    with pytest.raises(ValueError, match="cycle"):
        TopologicalSorter(edges(graph, "a")).prepare()
