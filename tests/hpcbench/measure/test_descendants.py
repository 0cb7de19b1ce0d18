"""The processes below this one, against psutil's search through all of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hpcbench.measure import descendants as module
from hpcbench.measure.descendants import descendants

FAMILY = """
import subprocess, sys
words = [sys.executable, "-c", "import sys; print('there', flush=True); sys.stdin.read()"]
child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("there", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child, started by a thread that has ended since."""
    made: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        words = [sys.executable, "-c", FAMILY]
        made.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    (process,) = made
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.communicate()


def test_they_are_those_that_psutil_finds(family: subprocess.Popen[bytes]) -> None:
    found = descendants()
    (child,) = psutil.Process(family.pid).children()
    assert {family.pid, child.pid} <= set(found)
    assert found.index(family.pid) < found.index(child.pid)
    assert set(found) == {each.pid for each in psutil.Process().children(recursive=True)}


def test_without_lists_of_the_kernel_they_are_searched(
    family: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: False)
    monkeypatch.setattr(module, "_children", lambda pid: pytest.fail("there are no lists"))
    assert set(descendants()) == {each.pid for each in psutil.Process().children(recursive=True)}


def test_a_process_that_has_ended_has_none() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert module._children(done.pid) == []
