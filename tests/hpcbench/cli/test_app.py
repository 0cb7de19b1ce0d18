"""`hpcbench app new`: the package that it writes works when installed, and bad names get one clear line."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench import DISTRIBUTION
from hpcbench.cli.main import main
from hpcbench.skeleton import LONGEST_NAME, render, write_package
from staging.errors import InputError


def test_files_are_those_of_an_application() -> None:
    parts = ("__init__", "baselines", "config", "data", "model", "simulate", "task")
    expected = {f"src/my_waves/{part}.py" for part in parts} | {"src/my_waves/configs/smoke.yaml"}
    assert set(render("my_waves")) == expected | {"pyproject.toml", "README.md", "tests/test_my_waves.py"}


@pytest.mark.parametrize("name", ["w", "my_waves", "x" * LONGEST_NAME])
def test_rendered_files_are_valid_for_any_name(name: str) -> None:
    rendered = render(name)
    project = tomllib.loads(rendered["pyproject.toml"])
    assert project["project"]["name"] == name
    assert project["project"]["dependencies"] == [DISTRIBUTION]
    assert project["project"]["entry-points"] == {"hpcbench.apps": {name: f"{name}:application"}}
    assert yaml.safe_load(rendered[f"src/{name}/configs/smoke.yaml"])["train"]["target"] > 0
    for path, text in rendered.items():
        assert path.endswith(".md") or max(map(len, text.splitlines())) <= 120, path
        if path.endswith(".py"):
            ast.parse(text, path)


def test_what_help_needs_imports_no_torch() -> None:
    rendered = render("waves")
    for part in ("__init__", "config"):
        tree = ast.parse(rendered[f"src/waves/{part}.py"])
        imported = {
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        assert all(name.split(".")[0] in ("__future__", "dataclasses", "hpcbench", "staging") for name in imported)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Waves", "NAME 'Waves' is not made of a-z, 0-9 and inner underscores"),
        ("my-waves", "is not made of a-z"),
        ("2waves", "a letter first"),
        ("waves_", "inner underscores"),
        ("../waves", "is not made of a-z"),
        ("w" * 41, "has 41 characters, more than 40"),
        ("class", "is a word of the Python language"),
        ("cosmoflow", "is an installed application"),
        ("json", "is a module that Python finds here already"),
        ("numpy", "is a module that Python finds here already"),
        ("hpcbench", "is a module that Python finds here already"),
    ],
)
def test_a_bad_name_is_one_line_and_leaves_nothing(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "new", name, "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "waves").mkdir()
    (tmp_path / "waves" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"waves exists already; choose another NAME or another --out"):
        write_package("waves", tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["waves", "mine.txt"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/waves: cannot write there \(.*\); choose another --out"):
        write_package("waves", tmp_path / "file")


def test_an_unknown_action_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "mew", "waves"]) == 2
    assert "'mew'" in capsys.readouterr().err


def test_the_next_commands_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "new", "waves", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"pip install --no-deps --editable {tmp_path / 'waves'}\n" in out
    assert "hpcbench train waves --preset smoke --data.root data/waves\n" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["waves"]


@pytest.mark.slow
def test_the_package_installs_trains_to_its_target_and_passes_its_tests(environment: Any, tmp_path: Path) -> None:
    environment.hpcbench("app", "new", "my_waves", cwd=tmp_path)
    environment.install("./my_waves", cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def hpcbench(*words: str) -> str:
        output: str = environment.hpcbench(*words, cwd=elsewhere)
        return output

    assert "\nmy_waves " in "\n" + hpcbench("apps")
    hpcbench("data", "simulate", "my_waves", "--preset", "smoke", "--out", "data")
    assert "640 of 640 files are good" in hpcbench("data", "verify", "data")
    assert "wave_number" in hpcbench("data", "inspect", "data")
    settings = ("--data.root", "data", "--staging.destination", "staged", "--parallel.threads", "1")
    hpcbench("train", "my_waves", "--preset", "smoke", "--run-dir", "run", "--seed", "1", *settings)
    assert "common rules" in hpcbench("check", "run")
    (elsewhere / "run" / "report.html").unlink()
    hpcbench("report", "run")
    assert "linear fit to spread and slope" in (elsewhere / "run" / "report.html").read_text(encoding="utf-8")

    summary = json.loads((elsewhere / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "success"
    assert summary["metrics"]["mae"] <= summary["target"] == 0.07
    assert summary["baselines"]["predict the mean"]["mae"] == pytest.approx(0.5, abs=0.04)  # of uniform on [-1, 1]
    assert all(summary["metrics"]["mae"] < found["mae"] for found in summary["baselines"].values())
    assert len(list((elsewhere / "staged").rglob("wave_*.npy"))) == 640
    environment.succeed("-m", "pytest", "-q", "-p", "no:cacheprovider", "my_waves/tests", cwd=tmp_path)
