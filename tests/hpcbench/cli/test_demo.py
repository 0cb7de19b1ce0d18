"""`hpcbench demo`: the whole job, from simulated data to pages, and its exit code where a part fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.cli import demo
from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder


@pytest.mark.slow
def test_both_applications_from_data_to_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hpcbench", "demo", "--preset", "smoke", "--out", str(tmp_path / "demo")]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 1 rank x 1 thread on ") == 2, "OMP_NUM_THREADS"
    pages = [Path(line.removeprefix("report: ")) for line in done.stdout.splitlines() if line.startswith("report: ")]
    assert [re.sub(r"-smoke-.*", "", page.parent.name) for page in pages] == ["cosmoflow", "deepcam"]
    for page in pages:
        html = page.read_text()
        assert "<svg" in html or "data:image/png" in html
        summary = RunFolder.open(page.parent).read_summary()
        assert summary.status == "success"
        assert summary.baselines
        assert summary.phases_s["staging"] > 0
    table = [line for line in done.stdout.splitlines() if re.search(r"\b(cosmoflow|deepcam)\b.*smoke", line)]
    assert len([line for line in table if not line.startswith(("$", "report:", "run folder:"))]) >= 2
    assert [path for path in tmp_path.iterdir() if path.name != "demo"] == []


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
