"""What contributors are told: its tasks, folders and hooks are those that there are."""

from __future__ import annotations

import ast
import re
import tomllib

import yaml

from tests.documented_commands import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def sessions() -> dict[str, ast.FunctionDef]:
    """The tasks of noxfile.py by name."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    return {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef) and each.decorator_list}


def test_the_tasks_of_the_page_are_those_of_the_noxfile() -> None:
    assert set(re.findall(r"nox -s (\w+)", PAGE)) == set(sessions())
    assert all(ast.get_docstring(each) for each in sessions().values())


def test_a_merge_is_checked_with_the_task_that_the_page_names() -> None:
    assert "--session lint" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "nox -s lint" in PAGE


def test_a_merge_runs_the_tests_of_reframe_and_lmod() -> None:
    """They skip where these are missing."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^pip install .* reframe-hpc$", script, re.MULTILINE)
    assert re.search(r"^ +for package in .*\blmod\b", script, re.MULTILINE)
    assert "tests/contrib/test_reframe.py" in script


def test_each_folder_of_tests_is_on_the_page() -> None:
    folders = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if any(path.glob("**/test_*.py"))}
    assert set(re.findall(r"^\| `(tests/\w+)` \|", PAGE, re.MULTILINE)) == {each for each in folders if "." not in each}


def test_no_file_is_longer_than_the_page_says() -> None:
    most = int(re.findall(r"at most (\d+) lines", PAGE)[0])
    paths = [
        path
        for top in ("apps", "benchmarks", "contrib", "hpcbench", "staging", "tests")
        for path in (ROOT / top).rglob("*.py")
    ]
    assert len(paths) > 500
    lines = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in paths}
    assert {name: count for name, count in lines.items() if count > most} == {}


def test_functions_are_as_short_as_the_page_says() -> None:
    usual, most = map(int, re.findall(r"rarely have more than (\d+) lines, and never more than (\d+)", PAGE)[0])
    lines = [
        node.end_lineno - node.lineno + 1
        for top in ("apps", "hpcbench", "staging")
        for path in (ROOT / top).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    assert max(lines) <= most
    assert sum(count > usual for count in lines) < 0.01 * len(lines)


def test_what_the_page_installs_has_the_programs_that_it_names() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    installed = re.findall(r'-e "\.\[([\w,]+)\]"', PAGE)[0].split(",")
    needed = [requirement for extra in installed for requirement in extras[extra]]
    for name in ("nox", "pre-commit", "ruff", "mypy", "pytest"):
        assert any(re.match(rf"{name}\b", requirement) for requirement in needed), name


def test_hooks_run_what_the_task_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    lint = ast.unparse(sessions()["lint"])
    assert {hook["entry"].split()[0] for hook in hooks} == {"ruff", "mypy"}
    assert all(f"'{hook['entry'].split()[0]}'" in lint for hook in hooks)


def test_services_run_what_a_merge_has_to_pass() -> None:
    for path in (".github/workflows/checks.yml", ".gitlab-ci.yml"):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert yaml.safe_load(text)
        assert ".ci/run $" in text, "with a version"
        classifiers = PROJECT["project"]["classifiers"]
        versions = [each.split(" :: ")[-1] for each in classifiers if re.search(r":: 3\.\d+$", each)]
        assert f'["{versions[0]}", "{versions[-1]}"]' in text, path


def test_the_citation_has_the_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["license"] == PROJECT["project"]["license"]


def test_the_changelog_has_each_version_and_what_comes_next() -> None:
    versions = re.findall(r"^## \[([\w.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert len(versions) == len(set(versions))


def test_templates_of_issues_say_what_to_give() -> None:
    folder = ROOT / ".github"
    paths = sorted((folder / "ISSUE_TEMPLATE").glob("*.md"))
    assert len(paths) >= 2
    for path in paths:
        _, front, text = path.read_text(encoding="utf-8").split("---\n", 2)
        assert {"name", "about", "labels"} <= set(yaml.safe_load(front)), path.name
        assert "**" in text
    asked = (folder / "pull_request_template.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`nox -s (\w+)`", asked))
    assert named
    assert named <= set(sessions())
    assert all((ROOT / each).is_file() for each in re.findall(r"`([\w/.-]+\.md)`", asked))
