"""The documentation site has every page once, a reference of what there is, and nothing from elsewhere."""

from __future__ import annotations

import ast
import dataclasses
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from docs.site.command_reference import command_pages
from docs.site.pages import entries, file_of, linked_files, repository_pages, with_files
from docs.site.python_reference import FOLDER as PYTHON
from docs.site.python_reference import TOPICS, python_pages
from docs.site.settings_reference import PATH as SETTINGS
from docs.site.settings_reference import settings_page
from hpcbench.cli.commands import COMMANDS
from hpcbench.config.schema import OptimConfig
from tests.documented_commands import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\s\">]+)")
"""What a browser fetches from elsewhere when it shows a page."""


def test_every_page_is_in_the_navigation_once() -> None:
    found = list(entries(SITE["nav"]))
    generated = {"reference/commands/", f"{PYTHON}/", SETTINGS}
    assert sorted(found) == sorted({*repository_pages(), *generated})
    assert {"README.md", "CHANGELOG.md", "docs/staging.md", "docs/tutorials/laptop.md"} <= set(found)


def test_what_pages_link_to_is_there() -> None:
    for page in repository_pages():
        for path in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8")):
            assert (ROOT / page).parent.joinpath(path).exists(), f"{page}: {path}"


def test_a_link_to_a_recorded_study_leads_to_its_page() -> None:
    page = "docs/studies/README.md"
    files = linked_files(page)
    assert files["cosmoflow-strong"] == "docs/studies/cosmoflow-strong/scaling.html"
    assert with_files("[a](cosmoflow-strong)", page, files) == "[a](cosmoflow-strong/scaling.html)"
    assert with_files("[a](../scaling.md#three-modes)", page, files) == "[a](../scaling.md#three-modes)"
    assert file_of("benchmarks") == "benchmarks/README.md"
    assert file_of("docs/scaling.md") is file_of("docs/nowhere") is None


def test_each_command_has_a_page_with_its_help() -> None:
    pages = command_pages()
    assert set(pages) == {f"reference/commands/{name}.md" for name in ("index", *COMMANDS)}
    assert all(f"[`hpcbench {name}`]({name}.md)" in pages["reference/commands/index.md"] for name in COMMANDS)
    study = pages["reference/commands/study.md"]
    assert re.findall(r"^## (.*)", study, re.MULTILINE)[:2] == ["hpcbench study convergence", "hpcbench study strong"]
    assert "--instance-nodes" in study
    assert "--staging.destination" not in pages["reference/commands/train.md"]  # a setting, on the page of these


def test_settings_have_their_type_default_range_and_meaning() -> None:
    page = settings_page()
    meaning = "Momentum of sgd, lars and larc. This and all below: the optimizer's own default when unset."
    assert f"| `optim.momentum` | number, or unset | `null` | 0 to below 1 | {meaning} |" in page
    assert "| `staging.placement` | `replicate` or `shard` | `replicate` |  | Everything to every node," in page
    assert "| `data.train_samples` | integer, or unset | `null` | 1 to 10,000,000,000 |" in page
    assert all(f"| `optim.{field.name}` |" in page for field in dataclasses.fields(OptimConfig))
    added = page[page.index("## Added by cosmoflow") : page.index("## Added by deepcam")]
    assert "| `model.kernel_size` | `2` or `3` | `3` |" in added
    assert "`optim.lr`" not in added
    assert "`preset`" not in page


def test_objects_of_the_python_reference_exist_and_are_described() -> None:
    assert set(python_pages()) == {f"{PYTHON}/{name}.md" for name in ("index", *TOPICS)}
    for name in (each for _, _, names in TOPICS.values() for each in names):
        module, _, what = name.rpartition(".")
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        objects = (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef))
        (found,) = (node for node in objects if node.name == what)
        assert ast.get_docstring(found), name


def test_the_site_names_no_address_of_its_own() -> None:
    assert not {"site_url", "repo_url", "edit_uri", "copyright"} & set(SITE)
    assert SITE["theme"]["font"] is False


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    missing = [name for name in ("mkdocs", "material", "mkdocstrings_handlers") if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; the extra docs brings it")
    built = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(built).as_posix(): path.read_text(encoding="utf-8") for path in built.rglob("*.html")}
    assert {"index.html", "docs/staging.html", "reference/settings.html", "reference/commands/train.html"} <= set(pages)
    assert {name: found for name, text in pages.items() if (found := LOADED.findall(text))} == {}
    assert "StageOptions" in pages["reference/python/staging.html"]
    assert "trust_coefficient" in (built / "search" / "search_index.json").read_text(encoding="utf-8")
    assert (built / "docs/studies/cosmoflow-strong/scaling.html").is_file()


@pytest.mark.slow
def test_a_broken_link_or_anchor_fails_the_build(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed; the extra docs brings it")
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=shutil.ignore_patterns(".*", "build", "runs", "tests"))
    page = copy / "docs" / "accelerators.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[a](nowhere.md) [b](scaling.md#no-such-part)\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=copy, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
    assert "no-such-part" in done.stderr
