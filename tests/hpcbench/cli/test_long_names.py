"""A path that no system has, for its name is too long or its links go in a circle, is one line for every command."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from hpcbench.cli.main import main

COMMANDS = (
    "analyze {}", "campaign report {}", "campaign show --rules {}", "check {}", "data index {}", "data inspect {}",
    "data verify {}", "data simulate cosmoflow --preset smoke --out {}", "jobs {}", "jobs --cancel {}",
    "package LAB {}", "plan cosmoflow --config {}", "predict cosmoflow --machine selene --nodes 8 --calibrate {}",
    "project {}", "report {}", "results {}", "stage {} out", "stage data {}", "stage --clean {}",
    "stage --verify-only {}", "study cancel {}", "study report {}", "study resume {}", "study status {}",
    "study collect {} --out out", "train cosmoflow --run-dir {}", "train cosmoflow --run-dir {} --resume",
    "train cosmoflow --config {}", "train cosmoflow --preset smoke --data.root {}",
)  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("kind", ["long", "circle"])
def test_it_is_one_line(
    line: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    name = {"long": "n" * 300, "circle": "circle/inside"}[kind]
    before = sorted(tmp_path.rglob("*"))
    code = main([word.replace("{}", name) for word in line.split()])
    said = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(said) == 1, said
    assert said[0].startswith("hpcbench: error: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_path_below_a_folder_without_rights_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)  # root may look everywhere
    assert main(["results", "locked/box"]) == 2
    assert capsys.readouterr().err == "hpcbench: error: locked/box: permission denied; give another path\n"
