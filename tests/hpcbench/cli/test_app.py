"""`hpcbench app new`: the package that it writes works when installed, and bad names get one clear line."""

from __future__ import annotations

import ast
import json
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench import DISTRIBUTION
from hpcbench.application import Application
from hpcbench.cli.main import main
from hpcbench.skeleton import LONGEST_NAME, render, write_package
from staging.errors import InputError
from tests.documented_commands import BLOCK, of_help, programs
from tests.fork_server import forking_programs


def test_files_are_those_of_an_application() -> None:
    parts = ("__init__", "baselines", "config", "data", "model", "shapes", "simulate", "task")
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


@pytest.mark.parametrize("text", ["", "train:\n  target: 1\n"])
def test_a_preset_that_begins_with_no_comment_is_listed(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    monkeypatch.setattr(Application, "presets", lambda self: {"mine": tmp_path / "mine.yaml"})
    assert main(["apps"]) == 0
    assert "  mine       (its first line is no comment)\n" in capsys.readouterr().out


def test_an_unknown_action_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "mew", "waves"]) == 2
    assert "'mew'" in capsys.readouterr().err


def test_the_next_commands_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "new", "waves", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"pip install --no-deps --editable {tmp_path / 'waves'}\n" in out
    assert "hpcbench train waves --preset smoke --data.root data/waves\n" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["waves"]


def type_commands(environment: Any, commands: Iterable[Sequence[str]], folder: Path) -> None:
    """Run commands of a text in ``folder``; trainings with a seed and staged, and pip without the network."""
    settings = ["--seed", "1", "--staging.destination", "staged", "--parallel.threads", "1"]
    for program, *words in commands:
        found = [str(each) for word in words for each in (sorted(folder.glob(word)) if "*" in word else [word])]
        if program == "pip":
            assert found[:2] == ["install", "--no-deps"]
            environment.install(*found[2:], cwd=folder)
        elif program == "pytest":
            environment.succeed("-m", "pytest", "-q", "-p", "no:cacheprovider", *found, cwd=folder)
        else:
            assert program == "hpcbench"
            environment.hpcbench(*found, *(settings if found[0] == "train" else []), cwd=folder)


@pytest.mark.slow
def test_the_commands_of_the_help_and_of_its_page_install_and_train_to_the_target(
    environment: Any, tmp_path: Path
) -> None:
    commands = [
        [word.replace("waves", "my_waves") for word in each.words]
        for each in of_help("app")
        if tuple(each.words[:3]) not in (("hpcbench", "app", "wrap"), ("hpcbench", "app", "shapes"))
    ]  # tests/docs/test_your_own_model.py types those
    assert commands[0] == ["hpcbench", "app", "new", "my_waves"]
    type_commands(environment, commands, tmp_path)
    assert "\nmy_waves " in "\n" + environment.hpcbench("apps", cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "summary.json").read_text(encoding="utf-8"))["status"] == "success"


@pytest.fixture(scope="module")
def package(shared_environment: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package after the first commands of its page; those of the suite are forked."""
    written = write_package("my_waves", tmp_path_factory.mktemp("package"))
    first, _ = BLOCK.findall((written / "README.md").read_text(encoding="utf-8"))
    with (
        tempfile.TemporaryDirectory(prefix="fork-") as folder,
        forking_programs(Path(folder), shared_environment.python) as forking,
    ):
        shared_environment.program = forking / "python"
        type_commands(shared_environment, programs(first[1]), written)
        yield written


@pytest.mark.slow
def test_the_first_commands_on_the_page_of_the_package_work(shared_environment: Any, package: Path) -> None:
    environment = shared_environment
    assert "640 of 640 files are good" in environment.hpcbench("data", "verify", "data/my_waves", cwd=package)
    assert "wave_number" in environment.hpcbench("data", "inspect", "data/my_waves", cwd=package)
    run = min((package / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    assert "common rules" in environment.hpcbench("check", run, cwd=package)
    assert "linear fit to spread and slope" in (run / "report.html").read_text(encoding="utf-8")
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "success"
    assert summary["metrics"]["mae"] <= summary["target"] == 0.07
    assert summary["baselines"]["predict the mean"]["mae"] == pytest.approx(0.5, abs=0.04)  # of uniform on [-1, 1]
    assert all(summary["metrics"]["mae"] < found["mae"] for found in summary["baselines"].values())
    assert len(list((package / "staged").rglob("wave_*.npy"))) == 640


@pytest.mark.slow
def test_the_reference_runs_on_the_page_of_the_package_work(shared_environment: Any, package: Path) -> None:
    environment = shared_environment
    _, second = BLOCK.findall((package / "README.md").read_text(encoding="utf-8"))
    assert "for seed in 1 2 3 4 5;" in second[1]
    loop = second[1].replace("1 2 3 4 5", "1 2").replace("hpcbench ", f"{environment.program} -m hpcbench ")
    done = subprocess.run(["bash", "-ec", loop], cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (package / "reference.html").exists()
