"""The Spack package needs what pyproject.toml needs. Read as text: no Spack is asked, which the file says itself."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
FILE = ROOT / "contrib" / "spack" / "py-hpcbench-ml" / "package.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NO_VARIANT = {"local", "dali", "test", "docs", "dev"}
"""Extras that are no variants: PyTorch and MPI are Spack's own, DALI is not in Spack, the others are for developers."""
VARIANTS = {"torch": "+distributed"}


def directives() -> dict[str, list[ast.Call]]:
    """The calls in the body of the class by their names."""
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    (package,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert package.name == "PyHpcbenchMl"  # what Spack makes of the folder's name
    found: dict[str, list[ast.Call]] = {}
    for node in package.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            found.setdefault(node.value.func.id, []).append(node.value)
    return found


def needed(variant: str | None, kind: str = "run") -> set[str]:
    """The specs that are needed with a variant, or always, at run time or to build."""
    found = set()
    for call in directives()["depends_on"]:
        options = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        if options.get("when") == (variant and f"+{variant}") and kind in options["type"]:
            found.add(ast.literal_eval(call.args[0]))
    return found


def spec_of(requirement: str) -> str:
    """What Spack calls a requirement of pip: ``numpy>=1.26`` is ``py-numpy@1.26:``."""
    read = Requirement(requirement)
    ((operator, version),) = [(each.operator, each.version) for each in read.specifier]
    assert operator == ">="
    name = re.sub(r"[-_.]+", "-", read.name).lower()
    return f"py-{name}@{version}:{VARIANTS.get(name, '')}"


def test_it_says_that_it_is_untried() -> None:
    assert FILE.read_text(encoding="utf-8").startswith("# UNTRIED: ")


def test_it_needs_what_the_project_needs() -> None:
    python = SpecifierSet(PROJECT["project"]["requires-python"])
    ((operator, version),) = [(each.operator, each.version) for each in python]
    assert operator == ">="
    wanted = {spec_of(each) for each in PROJECT["project"]["dependencies"]}
    assert needed(None) == wanted | {f"python@{version}:"}
    assert {spec_of(each) for each in PROJECT["build-system"]["requires"]} <= needed(None, "build")


def test_each_variant_needs_what_its_extra_needs() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    variants = {ast.literal_eval(call.args[0]) for call in directives()["variant"]}
    assert variants == set(extras) - NO_VARIANT
    for name in variants:
        assert needed(name) == {spec_of(each) for each in extras[name]}


def test_the_licence_is_that_of_the_project() -> None:
    (call,) = directives()["license"]
    assert ast.literal_eval(call.args[0]) == PROJECT["project"]["license"]


@pytest.mark.parametrize(
    ("requirement", "spec"),
    [("PyYAML>=6.0", "py-pyyaml@6.0:"), ("torch>=2.6", "py-torch@2.6:+distributed"), ("a_b.c>=1", "py-a-b-c@1:")],
)
def test_names_and_versions_in_the_words_of_spack(requirement: str, spec: str) -> None:
    assert spec_of(requirement) == spec
