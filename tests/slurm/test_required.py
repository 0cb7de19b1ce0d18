"""What keeps the tests of Slurm honest: they are not skipped unseen, and leave no daemon behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm.conftest import unavailable
from tests.slurm.daemons import Slurm
from tests.slurm.keeper import processes_of

ROOT = Path(__file__).parents[2]
STARTS = """\
import contextlib, sys, time
from pathlib import Path
from tests.slurm.daemons import start_slurm
with contextlib.ExitStack() as daemons:
    slurm = start_slurm(Path(sys.argv[1]), daemons)
    slurm.run("sbatch", "--nodes=2", "--output=/dev/null", "--wrap=srun sleep 600")
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(("ci", "user", "fails"), [("true", 0, True), ("true", 1000, False), ("", 0, False)])
def test_a_missing_slurm_is_no_skip_where_tests_decide_on_a_merge(
    ci: str, user: int, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(pytest.fail.Exception if fails else pytest.skip.Exception, match="there is no slurmctld"):
        unavailable("there is no slurmctld")


def test_the_checks_end_with_a_line_where_slurm_cannot_be_installed(tmp_path: Path) -> None:
    """``.ci/run`` with a package manager that has nothing, for a root without Slurm."""
    nothing = "echo 'E: Unable to locate package' >&2; exit 100"
    programs = {"id": "echo 0", "apt-get": nothing, "python3.11": "exit 0", "pip": "exit 0"}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("dirname", "mktemp", "rm", "sh"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        [str(shutil.which("bash")), str(ROOT / ".ci" / "run")], env={"PATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        ".ci/run: error: Slurm, which the tests of jobs need, cannot be installed (apt-get install slurm-wlm munge)"
    )


@pytest.mark.slurm
def test_daemons_and_jobs_end_with_the_process_that_started_them(slurm: Slurm, tmp_path: Path) -> None:
    """Even if it is killed; those that another one has started stay."""
    scratch = tmp_path / "slurm"
    scratch.mkdir()
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS, str(scratch)], env=environ, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        configuration = str(scratch / "slurm.conf")
        assert len(processes_of(SLURM_CONF=configuration)) >= 5
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 60
    while (left := processes_of(SLURM_CONF=configuration)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert slurm.run("scontrol", "ping").returncode == 0
