"""Only one run that is started by hand works in a run folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.results.folder_lock import is_locked, lock, unlock

HOLDER = """
import os, sys, time
from pathlib import Path
from hpcbench.results.folder_lock import lock
lock(Path(sys.argv[1]))
if sys.argv[2:] and os.fork() == 0:
    time.sleep(60)
print("locked", flush=True)
time.sleep(60)
"""


def holder(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A process that works in the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), *words], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_folder_is_free_once_its_process_was_killed_though_a_child_of_it_lives(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    process = holder(tmp_path, "with a child, as readers of samples are")
    try:
        assert is_locked(tmp_path)
        process.kill()
        process.wait()
        assert not is_locked(tmp_path, 10)  # the child closes its copy of the lock once it runs
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_the_process_itself_may_lock_again_and_give_back(tmp_path: Path) -> None:
    for _ in range(2):
        lock(tmp_path)
    assert not is_locked(tmp_path)
    unlock(tmp_path)
    unlock(tmp_path)
    process = holder(tmp_path)
    assert is_locked(tmp_path)
    process.kill()
    process.wait()


def test_a_folder_that_is_not_there_is_free(tmp_path: Path) -> None:
    lock(tmp_path / "nowhere")
    assert not is_locked(tmp_path / "nowhere")


@pytest.mark.slow
def test_a_second_run_is_refused_while_the_first_works_and_resumes_once_it_was_killed(
    small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.cli.train.KILLED_S", 0.2)
    run = tmp_path / "run"
    words = ["train", "cosmoflow", "--preset", "smoke", "--data.root", str(small_cosmos), "--train.target", "null",
             "--run-dir", str(run)]  # fmt: skip
    command = [sys.executable, "-m", "hpcbench", *words, "--train.max_epochs", "10000"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + 60
        while not list(run.glob("checkpoints/*")) and time.monotonic() < until:
            time.sleep(0.1)
        assert main([*words, "--resume"]) == 2
        assert "another run works in" in capsys.readouterr().err
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    epochs = len((run / "epochs.csv").read_text().splitlines()) + 1
    assert main([*words, "--resume", "--train.max_epochs", str(epochs)]) == 0
