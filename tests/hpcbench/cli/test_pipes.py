"""A pipe in the place of a file that a command reads is refused in one line, and never waited for."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from hpcbench.study.run_status import read_run_status
from staging.errors import DataError
from tests.hpcbench.mlperf.packages import make_folder

LIMIT_S = 60.0
RUN_FILES = [
    "summary.json", "epochs.csv", "steps.csv", "config.yaml", "system.json", "environment.json", "scores.npz",
    "examples.npz", "staging.json", "attempts.json", "ranks.csv", "trust_ratios.csv",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _time_limit() -> Iterator[None]:
    """Opening a pipe that nobody writes to would wait without end."""

    def stop(number: int, frame: object) -> NoReturn:
        pytest.fail("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> Path:
    """A pipe at ``path``."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def refused(capsys: pytest.CaptureFixture[str], path: Path, *words: object) -> None:
    """Check that the command ends with one line about ``path``."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hpcbench: ")]
    assert len(lines) == 1
    said = f"{path}: cannot read the configuration (not a regular file)" if path.suffix == ".yaml" else "is a pipe, not"
    assert f"{path}: " in lines[0]
    assert said in lines[0]


@pytest.mark.parametrize("place", ["systems/box.json", "results/box/strong/deepcam/result_2.txt",
                                   "results/box/strong/deepcam/scaling.json"])  # fmt: skip
def test_check_of_a_round_with_a_pipe(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The official tools open each of them."""
    make_folder(tmp_path / "v1.0" / "ORG", "deepcam", random.Random(1))
    path = pipe(tmp_path / "v1.0" / "ORG" / place)
    refused(capsys, path, "check", tmp_path / "v1.0")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN_FILES)
def test_report_of_a_run_with_a_pipe(
    name: str, build_run: Any, undrawn: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build_run()
    refused(capsys, pipe(folder / name), "report", folder)


def test_report_of_runs_with_a_pipe(build_run: Any, undrawn: None, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = build_run("one"), build_run("other")
    refused(capsys, pipe(other / "summary.json"), "report", one, other)


def test_check_of_a_log_that_is_a_pipe(build_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, pipe(tmp_path / "result_0.txt"), "check", tmp_path)
    folder = build_run()
    refused(capsys, pipe(folder / "summary.json"), "check", folder)
    for path in (pipe(folder / "mllog.txt"), folder):
        assert main(["check", str(path)]) == 2
        assert "holds no mllog.txt" in capsys.readouterr().err


def test_an_index_that_is_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_text("content")
    index = pipe(tmp_path / "index")
    refused(capsys, index, "stage", tmp_path / "set", tmp_path / "out", "--index", index)


def test_a_characterisation_that_is_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, pipe(tmp_path / "machine.json"), "characterize", "--from", tmp_path / "machine.json")


def test_a_characterisation_without_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["characterize", "--from", "/dev/zero"]) == 2
    assert "/dev/zero: is a character device, not a file" in capsys.readouterr().err


def test_studies_whose_definition_is_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, pipe(tmp_path / "study.json"), "study", "report", tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "crash.json"])
def test_a_run_of_a_study_with_a_pipe_counts_as_crashed(name: str, build_run: Any) -> None:
    folder = build_run()
    pipe(folder / name)
    state = read_run_status(folder)
    assert state.status == "failed"
    assert name in state.reason


def test_resuming_a_run_with_a_pipe(build_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build_run()
    pipe(folder / "config.yaml")
    assert main(["train", "cosmoflow", "--run-dir", str(folder), "--resume"]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_a_pipe_in_place_of_the_reserve_of_a_run(tmp_path: Path) -> None:
    pipe(tmp_path / ".reserve")
    with pytest.raises(DataError, match=r"/\.reserve: is a pipe, not a file; remove it"):
        RunFolder(tmp_path).reserve()
