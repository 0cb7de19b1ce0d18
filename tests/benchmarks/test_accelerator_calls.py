"""A call of the benchmark for accelerators that is cut, or has little time; and a wheel that is carried there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from _accelerator.wheels import install

from tests.benchmarks.test_accelerator import start

WAIT_S = 110


def measurements(out: Path) -> list[dict[str, Any]]:
    """Those of the result file, as it is now."""
    found: list[dict[str, Any]] = json.loads((out / "accelerator_rest.json").read_text())["measurements"]
    return found


@pytest.mark.slow
def test_what_was_measured_stays_if_the_call_is_killed(tmp_path: Path) -> None:
    call = start(Path(sys.executable), "rest", tmp_path, "--only", "optimizer")
    deadline = time.monotonic() + WAIT_S
    while not (tmp_path / "accelerator_rest.json").exists() or measurements(tmp_path)[-1:] == []:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while [each["status"] for each in measurements(tmp_path)].count("measured") < 2:
        assert (call.poll(), time.monotonic() < deadline) == (None, True)
        time.sleep(0.02)
    workers = psutil.Process(call.pid).children()
    os.kill(call.pid, signal.SIGKILL)
    call.communicate()
    found = measurements(tmp_path)
    assert {each["status"] for each in found} <= {"measured", "running"}
    assert len([each for each in found if each["status"] == "measured" and each["result"]]) >= 2
    assert len(workers) == 1
    psutil.wait_procs(workers, timeout=60)
    assert not workers[0].is_running(), "nothing holds the device any longer"


@pytest.mark.slow
def test_a_call_with_little_time_says_what_it_left_out(tmp_path: Path) -> None:
    call = start(Path(sys.executable), "rest", tmp_path, "--only", "optimizer", "--budget-s", "7")
    output, errors = call.communicate(timeout=WAIT_S)
    assert call.returncode == 0, errors
    assert "0 measured, 6 skipped, 0 failed" in output
    assert all(each["reason"].startswith("about 8 s needed, ") for each in measurements(tmp_path))


def test_a_wheel_that_is_carried_is_installed_for_the_call_alone(tmp_path: Path) -> None:
    wheels, record = tmp_path / "wheels", "carried_thing-1.0.dist-info"
    wheels.mkdir()
    contents = {
        "carried_thing.py": "here = True\n",
        f"{record}/METADATA": "Metadata-Version: 2.1\nName: carried-thing\nVersion: 1.0\n",
        f"{record}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{record}/RECORD"] = "".join(f"{name},,\n" for name in contents)
    with zipfile.ZipFile(wheels / "carried_thing-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in contents.items():
            wheel.writestr(name, text)
    found = install(wheels, tmp_path / "target")
    assert found["installed"] == ["carried_thing-1.0-py3-none-any.whl"]
    code = "import carried_thing; print(carried_thing.here)"
    for path, answer in ((str(tmp_path / "target"), "True\n"), ("", "")):
        environ = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
        assert done.stdout == answer
