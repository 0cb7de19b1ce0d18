"""What `hpcbench demo` types, and its exit code where a part fails; tests/docs/test_first_hour.py runs it for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.cli import demo
from hpcbench.cli.main import main


def test_one_application_and_the_worst_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[tuple[str, ...]] = []

    def command(*words: str) -> int:
        said.append(words)
        return 3 if words[:2] == ("train", "deepcam") else 0

    monkeypatch.setattr(demo, "command", command)
    assert main(["demo", "--app", "cosmoflow", "--out", str(tmp_path), "--preset", "smoke"]) == 0
    assert [words[:3] for words in said] == [("data", "simulate", "cosmoflow"), ("train", "cosmoflow", "--preset")]
    assert main(["demo", "--app", "cosmoflow", "--app", "deepcam", "--out", str(tmp_path)]) == 3
    assert said[-1][said[-1].index("--preset") + 1] == "laptop"
    assert "--staging.destination" in said[-1]


def test_training_waits_for_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def command(*words: str) -> int:
        said.append(words[0])
        return 2

    monkeypatch.setattr(demo, "command", command)
    assert main(["demo", "--app", "deepcam", "--out", str(tmp_path)]) == 2
    assert said == ["data"]


def test_an_unknown_application(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--app", "depcam"]) == 2
    assert "did you mean 'deepcam'?" in capsys.readouterr().err
