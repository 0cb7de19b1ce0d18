"""The age of a process, against the clock of the one that started it."""

from __future__ import annotations

import subprocess
import sys
import time

from hpcbench.measure.process_age import process_age_s

PROGRAM = """import time
from hpcbench.measure.process_age import process_age_s
print(process_age_s(), time.monotonic())"""
TICK_S = 0.02


def test_a_process_is_as_old_as_its_parent_saw_it_start() -> None:
    before = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as child:
        after = time.monotonic()
        said, _ = child.communicate(timeout=60)
    age, now = map(float, said.split())
    assert now - after - TICK_S <= age <= now - before + TICK_S


def test_age_grows_with_time() -> None:
    first, started = process_age_s(), time.monotonic()
    time.sleep(0.05)
    assert abs(process_age_s() - first - (time.monotonic() - started)) < 0.01
