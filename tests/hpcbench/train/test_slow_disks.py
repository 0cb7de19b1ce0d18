"""Signals where the disk is slow: a checkpoint is written in the time that there is, or the one before it counts."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hpcbench.exits import Aborted
from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.checkpoint_files import complete
from hpcbench.results.run_folder import RunFolder
from hpcbench.train import checkpoint_writer
from hpcbench.train.checkpoint_io import Checkpoint
from hpcbench.train.checkpoint_writer import CheckpointWriter
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.interrupted import attempts, newest, plan, same_run
from tests.hpcbench.train.test_checkpoint_writer import ALONE, Gate, gate

__all__ = ["gate"]

COMMON = ("--train.target", "1e-9", "--train.local_batch_size", "2", "--train.max_epochs", "2")
"""Two epochs of twelve steps."""
TIMED = ("--train.checkpoint_async", "false")
"""The checkpoint of an epoch is on the disk, and timed, before the next step."""
SLOW_S = 40
"""So long the disk takes for a checkpoint: longer than the 25 s after SIGTERM, and less than SIGUSR1 leaves."""
SOON_S = 6.0
"""After SIGTERM, where the disk never takes the checkpoint; a test cannot wait 25 s."""


NOT_BEGUN = r"^no checkpoint of step (\d+): it would take about (\d+) s, and (\d+) s are left$"
LEFT = r"^the checkpoint of step (\d+) is not on the disk in time, and is lost; resume with --resume$"


def steps(attempt: Attempt) -> list[int]:
    """The steps of the checkpoints that an attempt has begun."""
    return [int(save["step"]) for save in attempt.saves]


@pytest.mark.slow
def test_on_a_disk_known_to_be_slow_sigterm_begins_no_checkpoint_and_sigusr1_does(cosmos: Path, tmp_path: Path) -> None:
    """What an attempt has not measured itself it knows from the one before."""
    run, whole = tmp_path / "run", tmp_path / "whole"

    def attempt(step: int, name: str, *more: str, **environ: str) -> dict[str, Any]:
        words = arguments(cosmos, run, *(more or ("--resume",)))
        return {"words": words, "plan": plan("step", step, name, disk_s=SLOW_S), "environ": environ}

    term, warned, late, *last = found = attempts(
        attempt(15, "SIGTERM", *COMMON, *TIMED), attempt(14, "SIGUSR1"), attempt(16, "SIGUSR1", HPCBENCH_WARN_S="30"),
        {"words": arguments(cosmos, run, "--resume")}, {"words": arguments(cosmos, whole, *COMMON)},
    )  # fmt: skip
    assert [each["codes"] for each in found] == [[143], [138], [138], [3], [3]], found
    for done, step, seconds in ((term, 15, 25), (late, 16, 27)):
        (said,) = re.findall(NOT_BEGUN, done["said"], re.MULTILINE)
        assert int(said[0]) == step
        assert SLOW_S - 4 <= int(said[1]) < 2 * SLOW_S
        assert int(said[2]) <= seconds
    assert not any("no checkpoint of" in each["said"] for each in (warned, *last))
    ended = [(each.cause, each.last_step, steps(each)) for each in Attempts.read(run).attempts]
    assert ended == [("signal", 15, [12]), ("signal", 14, [14]), ("signal", 16, []), ("epochs", 24, [24])]
    same_run(run, whole)


MESHES: dict[str, tuple[int, tuple[str, ...]]] = {
    "one rank": (1, ()),
    "two ranks": (2, ("--train.local_batch_size", "1")),
    "sharded": (2, ("--train.local_batch_size", "1", "--parallel.shard_states", "true")),
}


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
def test_a_checkpoint_that_the_disk_does_not_take_in_time_is_left_and_the_one_before_it_counts(
    mesh: str, cosmos: Path, tmp_path: Path
) -> None:
    """Before the scheduler kills: with an end, its cause and one line. The run continues as if nothing had been."""
    run, whole, before, after = (tmp_path / name for name in ("run", "whole", "before", "after"))
    ranks, settings = MESHES[mesh]
    new, again = (*COMMON, "--train.precision", "64-true", *settings), arguments(cosmos, run, "--resume")
    each: list[dict[str, Any]] = [
        {"words": arguments(cosmos, run, *new), "plan": plan("step", 15, "SIGUSR1")},
        {"words": again, "plan": plan("step", 18, "SIGTERM", ranks - 1, stuck=1, write_s=SOON_S), "copy": str(before)},
        {"words": again, "copy": str(after)},
        *([{"words": arguments(cosmos, whole, *new)}] if mesh == "one rank" else []),
    ]
    found = attempts(*(attempt | {"world_size": ranks} for attempt in each))
    codes = [138, 143, 3, 3][: len(each)]
    assert [done["codes"] for done in found] == [[code] * ranks for code in codes], found
    (lost,) = re.findall(LEFT, found[1]["said"], re.MULTILINE)
    assert steps(Attempts.read(after).attempts[-1]) == [int(lost)]
    assert newest(after).state["step"] == newest(before).state["step"] < int(lost)
    kept = {path.name: path.read_bytes() for path in (before / "checkpoints").iterdir()}
    assert len(kept) == 4
    files = {path.name: path.read_bytes() for path in (after / "checkpoints").iterdir()}
    assert {name: files.get(name) for name in kept} == kept, "the ones before it, bit for bit"
    assert len(files) == len(kept) + 1, "a part of the one that was left"
    assert not list((run / "checkpoints").glob(".*")), "which the next one removes"
    summary = RunFolder.open(after).read_summary()
    assert (summary.status, summary.cause, summary.signal, summary.checkpoints) == ("aborted", "signal", "SIGTERM", 2)
    assert newest(run).state["step"] == 24
    if mesh == "one rank":
        same_run(run, whole)


MOMENTS: dict[str, dict[str, Any]] = {
    "step": {"where": "step", "number": 26},
    "end": {"phase": "checkpoint", "number": 3},  # it enters the phase for each epoch, and to wait for the last one
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_checkpoint_that_was_under_way_at_the_signal_is_left_when_the_time_is_over(
    moment: str, cosmos: Path, tmp_path: Path
) -> None:
    """Within the next epoch, and where the run has nothing more to do than to wait for it; Slurm is still asked why."""
    run, after, command = tmp_path / "run", tmp_path / "after", tmp_path / "scontrol"
    command.write_text("#!/bin/sh\necho JobId=7 JobState=RUNNING PreemptTime=2026-03-14T10:00:00\n")
    command.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    epochs = 3 if moment == "step" else 2
    words = arguments(cosmos, run, *COMMON, "--train.max_epochs", str(epochs))
    moments = MOMENTS[moment] | {"signal": "SIGTERM", "stuck": 2, "write_s": SOON_S}
    done, last = attempts(
        {"words": words, "plan": moments, "environ": environ},
        {"words": arguments(cosmos, run, "--resume"), "copy": str(after)},
    )
    assert (done["codes"], last["codes"]) == ([143], [3]), (done, last)
    assert re.findall(LEFT, done["said"], re.MULTILINE) == ["24"]
    assert newest(after).state["step"] == 12
    assert RunFolder.open(after).read_summary().cause == "preempted"
    assert newest(run).state["step"] == 12 * epochs


def test_the_next_checkpoint_is_taken_to_need_as_long_as_one_that_is_late(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was fast and now stands still for a minute."""
    now = [0.0]
    monkeypatch.setattr(checkpoint_writer, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    writer = CheckpointWriter(tmp_path, 2, ALONE)
    writer.save(Checkpoint({"w": torch.ones(10**6)}, {}, {}, {"epoch": 0, "step": 1}, {}))
    now[0] = 60.0
    assert writer.expected_write_s(4 * 10**6) == 60.0
    gate.open.set()
    writer.wait()
    assert writer.times.saves[0].write_s == 60.0


def test_who_has_no_time_leaves_a_checkpoint_to_its_thread(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an error ends the run, which is not hidden; the thread may still write it."""

    def out_of_time() -> None:
        raise Aborted("no time is left")

    ends = list[None]()
    monkeypatch.setattr(checkpoint_writer, "leave_at_exit", lambda: ends.append(None))
    content, left = Checkpoint({"w": torch.ones(9)}, {}, {}, {"epoch": 0, "step": 1}, {}), list[int]()
    for wait in (True, False):
        writer = CheckpointWriter(tmp_path / str(wait), 2, ALONE)
        writer.check, writer.on_left = out_of_time, lambda save: left.append(save.step)
        with pytest.raises(Aborted if wait else ZeroDivisionError), writer:  # noqa: PT012
            writer.save(content, wait=wait)
            raise ZeroDivisionError
    assert (left, len(ends)) == ([1, 1], 2)
    threads = [thread for thread in threading.enumerate() if thread.name == "checkpoint"]
    gate.open.set()
    for thread in threads:
        thread.join(60)
    assert all(len(complete(tmp_path / str(wait))) == 1 for wait in (True, False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "signalled"), [(1, [0]), (2, [0, 1]), (2, [1])], ids=["one rank", "two ranks", "the other rank only"]
)
def test_a_page_that_takes_too_long_to_draw_is_left_out(
    ranks: int, signalled: list[int], cosmos: Path, tmp_path: Path
) -> None:
    """Else the scheduler kills a run that is saved, and its exit code says nothing. The first rank draws it."""
    run = tmp_path / "run"
    slow = plan("step", 3, "SIGTERM", *signalled, write_s=SOON_S, draw_s=100)
    found = attempts(
        {"words": arguments(cosmos, run, *COMMON), "plan": slow, "world_size": ranks},
        {"words": arguments(cosmos, run, "--resume"), "world_size": ranks},
    )
    assert [each["codes"] for each in found] == [[143] * ranks, [3] * ranks], found
    assert found[0]["seconds"] < 60
    assert f"no time to draw the report page; `hpcbench report {run}` does it" in found[0]["said"]
    assert (run / "report.html").exists()
    assert RunFolder.open(run).read_summary().resumed == 1
