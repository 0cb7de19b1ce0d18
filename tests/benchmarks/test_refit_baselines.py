"""Baselines of a record are fitted again without a training: the network's figures stay, table and picture follow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import learning_curve
import pytest
import reference_runs

from hpcbench.application import find_application
from tests.documented_commands import ROOT

POINTS = [
    {
        "samples": samples, "epochs": 1, "seeds": [1, 2],
        "network": {name: [0.5, 0.25] for name in learning_curve.SHOWN["deepcam"][1]},
        "baseline": dict.fromkeys(learning_curve.SHOWN["deepcam"][1], 0.125),
    }
    for samples in (4, 8)
]  # fmt: skip
CURVE = {"command": "made by hand", "commit": "abc", "results": {"preset": "smoke", "points": POINTS}}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the programs write to, with links to what they read; a README with a table of the smoke preset."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("apps", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for name in ("hpcbench", "pyproject.toml", "staging"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "docs" / "pictures").mkdir(parents=True)
    marks = (learning_curve.BEGIN, learning_curve.END)
    with (folder / "apps" / "deepcam" / "README.md").open("a", encoding="utf-8") as file:
        file.write("\n".join(mark.format(preset="smoke") for mark in marks))
    (folder / "benchmarks" / "results").mkdir()
    (folder / "benchmarks" / "results" / "learning_curve_deepcam_smoke.json").write_text(json.dumps(CURVE))
    return folder


def call(checkout: Path, *words: str) -> None:
    """Run a program of the copy, which has no training in it."""
    environ = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words, "--out", "runs"],
        cwd=checkout,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (checkout / "runs").iterdir()] == ["data"]


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_learning_curve_keeps_its_networks(checkout: Path) -> None:
    call(checkout, "benchmarks/learning_curve.py", "deepcam", "--preset", "smoke", "--refit-baselines")
    found = read(checkout / "benchmarks" / "results" / "learning_curve_deepcam_smoke.json")
    points = found["results"]["points"]
    assert found["results"].pop("baseline_commit") == "unknown"  # the copy is no clone
    for point, before in zip(points, POINTS, strict=True):
        scores = point["baseline"]
        assert scores.keys() == before["baseline"].keys()  # type: ignore[attr-defined]
        assert 0 < scores["iou"] != 0.125
        assert point | {"baseline": before["baseline"]} == before
    assert found | {"results": CURVE["results"]} == CURVE
    text = (checkout / "apps" / "deepcam" / "README.md").read_text(encoding="utf-8")
    assert learning_curve.table(points, *learning_curve.SHOWN["deepcam"]) in text
    assert (checkout / "docs" / "pictures" / "deepcam-learning-curve.png").stat().st_size > 10_000


@pytest.mark.slow
def test_reference_runs_keep_their_networks(checkout: Path) -> None:
    path = checkout / "apps" / "deepcam" / "references" / "smoke.json"
    before = read(path)
    ((name, point),) = before.items()
    changed = dict.fromkeys(point["Quality"], 0.125)
    path.write_text(json.dumps({name: point | {"Baselines": {"of earlier code": changed}}}))
    call(checkout, "benchmarks/reference_runs.py", "deepcam", "smoke", "--refit-baselines")
    (found,) = read(path).values()
    assert found.pop("Baseline commit") == "unknown"
    fitted = found.pop("Baselines")
    assert fitted.keys() == point["Baselines"].keys()
    assert all(fitted[each] == pytest.approx(point["Baselines"][each], abs=0.01) for each in fitted)
    assert found == {key: value for key, value in point.items() if key != "Baselines"}
    text = (checkout / "apps" / "deepcam" / "README.md").read_text(encoding="utf-8")
    assert "of earlier code" not in text
    assert "| smoke | iou |" in text


@pytest.mark.parametrize("words", [
    "learning_curve.py deepcam --refit-baselines --samples 4",
    "learning_curve.py deepcam --refit-baselines --variant maxima",
    "learning_curve.py deepcam",
    "reference_runs.py deepcam laptop --refit-baselines --claims iou",
    "reference_runs.py deepcam laptop",
])  # fmt: skip
def test_what_does_not_go_together_is_refused(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = learning_curve if words.startswith("learning") else reference_runs
    monkeypatch.setattr(sys, "argv", words.split())
    with pytest.raises(SystemExit) as caught:
        program.main()
    assert caught.value.code == 2
    assert "--refit-baselines" in capsys.readouterr().err.splitlines()[-1]


def test_a_record_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning_curve, "RESULTS", tmp_path)
    with pytest.raises(SystemExit, match=r"learning_curve_deepcam_smoke.json is missing; make the runs first, without"):
        learning_curve.refit(find_application("deepcam"), "smoke", tmp_path)
    with pytest.raises(SystemExit, match=r"references/mine.json is missing; make the runs first, without"):
        reference_runs.refit(find_application("deepcam"), "mine", tmp_path)
