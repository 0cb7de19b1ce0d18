"""Imports run one way: apps -> hpcbench -> staging, and staging knows no torch."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {"staging": {"torch", "lightning", "lightning_fabric", "hpcbench", "apps"}, "hpcbench": {"apps"}}
STAGING = sorted(path for path in (ROOT / "staging").rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top-level names of everything that a module imports anywhere, also inside functions and by ``import_module``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import, which hides what it needs"
            names.add(node.module or "")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                names.add(str(node.args[0].value))
    return {name.split(".")[0] for name in names}


def test_the_packages_are_found() -> None:
    for package in ("staging", "hpcbench", "apps"):
        assert len(list((ROOT / package).rglob("*.py"))) > 3


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_module_imports_from_above(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in (ROOT / package).rglob("*.py")
        if (names := imported(path) & FORBIDDEN[package])
    }
    assert found == {}


def unit(module: str) -> str:
    """The part of staging that a module belongs to: a folder or a file below it."""
    return module.split(".")[1]


def test_the_parts_of_staging_import_one_another_in_one_direction() -> None:
    """Also within functions. ``graphlib`` names a circle where there is one."""
    graph: dict[str, set[str]] = {}
    for path in STAGING:
        own = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("staging.") and unit(module) != unit(own):
                graph.setdefault(unit(own), set()).add(unit(module))
    order = list(TopologicalSorter(graph).static_order())
    assert len(order) > 20
    assert order.index("source") < order.index("landing") < order.index("stage")
    assert order.index("storage") < order.index("landing")
    assert "source" not in graph["storage"]


def test_applications_do_not_import_each_other() -> None:
    for folder in (path for path in (ROOT / "apps").iterdir() if path.is_dir()):
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                if module.startswith("apps.") and path.name != "__init__.py":
                    assert module.split(".")[1] == folder.name, f"{path} imports {module}"


def test_importing_all_of_staging_loads_no_torch() -> None:
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in STAGING if path.stem != "__init__"]
    script = (
        f"import sys, {', '.join(modules)}\n"
        "sys.exit(', '.join(name for name in ('torch', 'lightning', 'lightning_fabric') if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
