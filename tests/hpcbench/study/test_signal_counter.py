"""Signals end a study's runs, and those that a launcher repeats end them no harder."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcbench.exits import Aborted
from hpcbench.study import signal_counter
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.run_slots import Slot
from hpcbench.study.signal_counter import SignalCounter
from tests.hpcbench.study.conftest import make


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


class Writing:
    """A run that writes a checkpoint when it is asked to end, which takes some looks; signals go on meanwhile."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.left = 0

    def poll(self) -> int | None:
        if self.left:
            send(signal.SIGTERM)
            self.left -= 1
            self.code = None if self.left else 143
        return self.code

    def stop(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            self.code, self.left = 137, 0
        else:
            self.left = 4


class WritingLauncher:
    """Starts such runs, and asks this process to end with the second of them."""

    def __init__(self) -> None:
        self.processes: list[Writing] = []

    def start(self, arguments: Sequence[str], log: Path, slot: Slot) -> Writing:
        self.processes.append(Writing())
        if len(self.processes) == 2:
            send(signal.SIGTERM)
        return self.processes[-1]


@pytest.mark.parametrize(("repeated_s", "code"), [(60.0, 143), (-1.0, 137)])
def test_a_repeated_signal_leaves_runs_the_time_to_write_and_a_second_one_does_not(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeated_s: float, code: int
) -> None:
    monkeypatch.setattr(signal_counter, "REPEATED_S", repeated_s)
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write({"kind": "convergence"})
    launcher = WritingLauncher()
    with pytest.raises(Aborted, match="signal SIGTERM; the same command continues from here") as caught:
        make(study, folder, launcher)
    assert caught.value.exit_code == 143
    assert [process.code for process in launcher.processes] == [code] * 2
    send(signal.SIGTERM)  # while this process tidies up


def test_handlers_return_where_no_signal_ends_the_command() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with SignalCounter() as caught:
        assert signal.getsignal(signal.SIGTERM) is not before
        caught.check()
    assert signal.getsignal(signal.SIGTERM) is before
