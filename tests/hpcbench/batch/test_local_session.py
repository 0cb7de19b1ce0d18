"""The number of a local job's process is used again by the system: such a process is not the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from hpcbench.batch.holds import Hold, announce_continuation, newest_hold, stem, write_hold
from hpcbench.batch.job_record import RECORD, read_job
from hpcbench.batch.submission import cancel, job_status
from hpcbench.cli.main import main
from hpcbench.study.run_status import run_statuses
from staging.errors import InputError

MARK = "hpcbench:me/run:0badf00d"


@pytest.fixture
def sleep() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own that no job started."""
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def record(run: Path, number: int, submitted: float, began: float | None = None, host: str | None = None) -> None:
    """The run folder of a local job with the number of a process; ``began``: when it took the folder."""
    run.mkdir(exist_ok=True)
    time_of = datetime.fromtimestamp(submitted, UTC).isoformat(timespec="seconds")
    values = {"job_id": str(number), "mark": MARK, "scheduler": "local", "site": "local", "submitted": time_of}
    (run / RECORD).write_text(json.dumps(values))
    if began is not None:
        host = os.uname().nodename if host is None else host
        write_hold(run, Hold(str(number), 1, "local", MARK, 1, number, host, began), 1)


@pytest.mark.parametrize("left", ["no hold", "a hold", "an end"])
def test_a_process_that_began_after_the_job_is_not_the_job(
    left: str, sleep: subprocess.Popen[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, before = tmp_path / "run", time.time() - 60
    record(run, sleep.pid, before, None if left == "no hold" else before)
    if left == "an end":
        stem(run, 1).with_suffix(".end").write_text(f"{before + 9:.0f} 138\n")
    job = read_job(run)
    assert job.job_id == str(sleep.pid)
    assert job_status(job).state == "lost"
    assert not run_statuses({run: job})[run].under_way
    with pytest.raises(InputError, match=rf"^job {sleep.pid} of {run} cannot be cancelled: it has ended \(lost\)$"):
        cancel(job)
    assert main(["jobs", "--cancel", str(run)]) == 2
    assert "cannot be cancelled" in capsys.readouterr().err
    assert sleep.poll() is None


def test_a_process_that_is_older_than_a_job_without_hold_is_not_the_job(
    sleep: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """As on another login node, where the number is that of the user's shell."""
    record(tmp_path, sleep.pid, time.time() + 60)
    assert job_status(read_job(tmp_path)).state == "lost"


@pytest.mark.parametrize("process", ["of the job", "gone"])
def test_no_job_survives_a_restart_of_the_machine(
    process: str, sleep: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    record(tmp_path, sleep.pid, now, now)
    if process == "gone":  # and its session has another process
        monkeypatch.setattr(psutil, "Process", gone)
    assert job_status(read_job(tmp_path)).state == "running"
    monkeypatch.setattr(psutil, "boot_time", lambda: now + 1)
    assert job_status(read_job(tmp_path)).state == "lost"


def gone(number: int) -> psutil.Process:
    """There is no such process."""
    raise psutil.NoSuchProcess(number)


def test_the_job_itself_is_known_by_its_mark_whatever_the_clock_was_set_to(tmp_path: Path) -> None:
    words = ["bash", "-c", "sleep 300; true", "job.sh", MARK]
    process = subprocess.Popen(words, start_new_session=True)
    record(tmp_path, process.pid, time.time() - 3600, time.time() - 3600)
    assert job_status(read_job(tmp_path)).state == "running"
    hold = newest_hold(tmp_path)
    assert hold is not None
    stem(tmp_path, 1).with_suffix(".end").write_text("5 138\n")
    announce_continuation(tmp_path, hold)
    assert job_status(read_job(tmp_path)).state == "running", "the next attempt is the same process"
    cancel(read_job(tmp_path))
    assert process.wait(10) == -signal.SIGTERM


def test_a_job_on_another_machine_is_looked_at_there(sleep: subprocess.Popen[bytes], tmp_path: Path) -> None:
    now = time.time()
    record(tmp_path, sleep.pid, now, now, host="node9")
    status = job_status(read_job(tmp_path))
    assert status.state == "unknown"
    assert status.reason == f"it began on node9; look there, and remove {tmp_path}/holds/1.json if it is gone"
    with pytest.raises(InputError, match=r"cannot be cancelled: it began on node9; look there"):
        cancel(read_job(tmp_path))
    stem(tmp_path, 1).with_suffix(".end").write_text("5 138\n")
    assert job_status(read_job(tmp_path)).state == "lost"
    assert sleep.poll() is None
