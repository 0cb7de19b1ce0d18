"""What the figures of an interrupted run say: sums over its attempts, its gaps apart, and rates of the time it took."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hpcbench.measure.step_times import StepTimes
from hpcbench.results import units
from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.checkpoint_files import complete
from hpcbench.results.run_folder import RunFolder
from hpcbench.train import checkpoint_io, checkpoint_writer, loop, setup
from hpcbench.train.checkpoint_io import load_newest
from hpcbench.train.checkpoint_writer import CheckpointWriter
from hpcbench.train.loop import Trainer
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.interrupted import attempts, events, newest, plan

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
NEVER = ("--train.target", "1e-9")
SLEEP_S = 0.05
TWO = ("--train.local_batch_size", "2", "--measure.warmup_steps", "2", *NEVER)
"""Twelve steps an epoch, of which at least ``SLEEP_S`` each here."""
THREE = ("--train.max_epochs", "3")
DRAW_S = 3.0
"""Drawing takes so long in the last attempt."""
AT_LEAST_S = 12 * SLEEP_S


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A run in this process that a signal ends keeps its handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@dataclass(frozen=True)
class Moments:
    """The steps after which a run gets a signal and is killed, and that of the last checkpoint before the kill."""

    signal: int
    checkpoint: int
    kill: int


def draw_moments(draw: random.Random) -> Moments:
    """The checkpoint is that of an epoch; each attempt has a step after its warm-up, and the disk half an epoch."""
    checkpoint = draw.choice([12, 24])
    return Moments(draw.randint(3, checkpoint - 3), checkpoint, draw.randint(checkpoint + 6, checkpoint + 11))


@pytest.fixture(scope="module")
def moments() -> Moments:
    return draw_moments(random.Random(f"{os.environ['HPCBENCH_SEED']} figures"))


@pytest.fixture(scope="module")
def interrupted(
    moments: Moments, cosmos: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]]]:
    """Three epochs in three attempts, the first of which is interrupted and the second killed, and what they took."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    slow, draws = {"sleep_s": SLEEP_S}, {"where": "page", "hang_s": DRAW_S}
    found = attempts(
        {"words": arguments(cosmos, folder, *TWO, *THREE), "plan": plan("step", moments.signal, "SIGTERM", **slow)},
        {"words": arguments(cosmos, folder, "--resume"), "plan": plan("step", moments.kill, "SIGKILL", **slow)},
        {"words": arguments(cosmos, folder, "--resume", "--train.baselines", "true"), "plan": {**slow, **draws}},
    )  # fmt: skip
    assert [each["codes"] for each in found] == [[143], [-9], [3]], found
    return folder, found


def written(folder: Path) -> list[Attempt]:
    """The attempts that a run folder knows."""
    return Attempts.read(folder).attempts


@pytest.mark.slow
def test_an_epochs_throughput_is_that_of_all_its_steps(interrupted: tuple[Path, Any]) -> None:
    """24.75 samples/s of which nine steps in twelve were not counted was once written as more than 90."""
    folder, _ = interrupted
    rows, log = RunFolder.open(folder).read_epochs(), [e for e in events(folder) if e["key"] == "throughput"]
    assert len(rows) == len(log) == 3
    for (_, row), event in zip(rows.iterrows(), log, strict=True):
        assert row["train_s"] >= AT_LEAST_S
        assert event["value"] == row["samples_per_s"] == pytest.approx(24 / row["train_s"])
    summary = RunFolder.open(folder).read_summary()
    assert summary.samples_per_s == pytest.approx(rows["samples_per_s"][1:].median())
    assert summary.samples_per_s is not None
    assert units.significant(summary.samples_per_s) in (folder / "report.html").read_text()
    assert rows["train_s"].sum() + rows["eval_s"].sum() < summary.wall_s - summary.phases_s["init"]


def test_phases_and_gaps_are_the_time_from_the_first_start_to_the_last_end(interrupted: tuple[Path, Any]) -> None:
    folder, _ = interrupted
    summary, each = RunFolder.open(folder).read_summary(), written(folder)
    assert [one.cause for one in each] == ["signal", None, "epochs"]
    assert summary.resumed == 2
    assert sum(summary.phases_s.values()) == pytest.approx(summary.wall_s, rel=1e-9)
    assert summary.wall_s == pytest.approx(sum(one.wall_s for one in each), rel=1e-9)
    assert summary.wall_s + summary.gaps_s == pytest.approx(each[-1].ended - each[0].started, abs=1e-3)
    for one in each:
        assert sum(one.phases_s.values()) == pytest.approx(one.wall_s, rel=1e-9)
    for name in ("init", "compute", "evaluation", "checkpoint", "finalize"):
        assert summary.phases_s[name] == pytest.approx(sum(one.phases_s[name] for one in each)), name
    assert summary.time_to_solution_s < each[-1].ended - each[0].started


def test_each_attempt_takes_what_its_parent_measures(interrupted: tuple[Path, Any], moments: Moments) -> None:
    """But for the last page and the end of the interpreter, which take longer where a machine is busy, like the rest.

    What was lost by a kill is in the gaps.
    """
    folder, found = interrupted
    first, killed, last = written(folder)
    for one, seen in ((first, found[0]), (last, found[2])):
        assert one.wall_s < seen["seconds"] + 0.02
        assert one.started > seen["started"] - 0.02
        assert one.ended < seen["ended"] + 0.02
    until_page = (folder / "report.html").stat().st_mtime - last.started
    # Without the drawing it would be shorter than this; only the page itself is written afterwards.
    assert until_page - DRAW_S < last.wall_s <= until_page + 0.02
    assert last.phases_s["finalize"] > DRAW_S
    lost = found[1]["seconds"] - killed.wall_s
    assert lost > (moments.kill - moments.checkpoint) * SLEEP_S
    between = found[1]["started"] - found[0]["ended"] + found[2]["started"] - found[1]["ended"]
    assert RunFolder.open(folder).read_summary().gaps_s >= lost + between - 0.1


def test_warm_steps_are_summed_and_memory_is_the_largest(interrupted: tuple[Path, Any], moments: Moments) -> None:
    """Each attempt warms up anew, in two steps; what the killed one did after its last checkpoint does not count."""
    folder, _ = interrupted
    summary, each = RunFolder.open(folder).read_summary(), written(folder)
    (rank,) = RunFolder.open(folder).read_ranks().to_dict("records")
    bounds = [0, moments.signal, moments.checkpoint, 36]
    assert [(one.first_step, one.last_step) for one in each] == list(pairwise(bounds))
    assert (rank["steps"], rank["samples"]) == (36 - 3 * 2, 2 * (36 - 3 * 2))
    assert rank["wall_s"] >= rank["steps"] * SLEEP_S
    assert summary.warm_samples_per_s == pytest.approx(rank["samples"] / rank["wall_s"])
    assert summary.warm_samples_per_s < 2 / SLEEP_S
    assert summary.peak_memory_bytes == max(one.peak_memory_bytes for one in each) > 2**26
    assert rank["run_init_s"] == pytest.approx(summary.phases_s["init"], rel=1e-6)
    assert summary.baselines.keys() == {"predict the mean", "ridge regression on power spectra"}


def test_a_checkpoint_is_written_down_when_the_disk_has_it(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first epoch: it is under way when the loop writes down what the run has taken."""
    folder, gate, saves = tmp_path / "run", threading.Event(), list[dict[str, float]]()
    save, finish_step = checkpoint_io.save, Trainer.finish_step

    def held(*words: Any) -> Path:
        assert gate.wait(60)
        return save(*words)

    def watched(trainer: Trainer, samples: int) -> None:
        finish_step(trainer, samples)
        if trainer.state.step == 13:
            saves.extend(written(folder)[0].saves)
            gate.set()
            for thread in threading.enumerate():
                if thread.name == "checkpoint":
                    thread.join()
            saves.extend(written(folder)[0].saves)

    monkeypatch.setattr(checkpoint_io, "save", held)
    monkeypatch.setattr(Trainer, "finish_step", watched)
    assert train(folder, *TWO, "--train.max_epochs", "2") == 3
    under_way, done = saves
    assert (under_way["step"], under_way["write_bytes"]) == (12, 0)
    assert (done["step"], done["write_bytes"]) == (12, complete(folder / "checkpoints")[0].stat().st_size)
    assert RunFolder.open(folder).read_summary().checkpoints == 2


@pytest.mark.slow
def test_processor_time_is_summed_over_attempts(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a processor that is ten times as busy as the clock."""
    monkeypatch.setattr(setup, "StepTimes", partial(StepTimes, processor=lambda: 10 * time.perf_counter()))
    rows = []
    for more in ((*TWO, "--train.max_epochs", "1"), ("--resume", "--train.max_epochs", "2")):
        assert train(tmp_path / "run", *more) == 3
        rows += RunFolder.open(tmp_path / "run").read_ranks().to_dict("records")
    first, both = rows
    assert (first["steps"], both["steps"]) == (10, 20)
    for row in rows:
        assert row["cpu_s"] == pytest.approx(10 * row["wall_s"], rel=0.1)
    assert both["cpu_s"] > first["cpu_s"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[int, signal.Signals]:
    """Signals that a run in this process gets after the steps that are put in here."""
    step = Trainer.finish_step
    planned: dict[int, signal.Signals] = {}

    def finish_step(trainer: Trainer, samples: int) -> None:
        step(trainer, samples)
        if trainer.state.step in planned:
            signal.raise_signal(planned[trainer.state.step])

    monkeypatch.setattr(Trainer, "finish_step", finish_step)
    return planned


@pytest.mark.slow
def test_an_attempt_knows_how_fast_earlier_ones_wrote(
    train: Train, tmp_path: Path, sent: dict[int, signal.Signals], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is stopped before it has written any; on the disk that it assumes its checkpoint would take minutes."""
    monkeypatch.setattr(checkpoint_writer, "ASSUMED_BANDWIDTH", 1e3)
    # so that the checkpoint of an epoch is written, and timed, before the next steps end
    common = (*TWO, "--train.max_epochs", "2", "--train.checkpoint_async", "false")
    sent[5] = signal.SIGTERM
    assert train(tmp_path / "first", *common) == 143
    assert not (tmp_path / "first" / "checkpoints").exists() or load_newest(tmp_path / "first" / "checkpoints") is None
    sent.clear()
    sent[15] = signal.SIGTERM
    assert train(tmp_path / "run", *common) == 143
    assert newest(tmp_path / "run").state["step"] == 15
    sent.clear()
    sent[18] = signal.SIGTERM
    assert train(tmp_path / "run", "--resume") == 143
    assert newest(tmp_path / "run").state["step"] == 18


@pytest.mark.slow
def test_evaluations_are_those_whose_seconds_count(
    train: Train, tmp_path: Path, sent: dict[int, signal.Signals], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five, of which the checkpoint after epoch 3 knows three, and three after the resume."""
    took, real = list[float](), loop.evaluate

    def evaluate(*words: Any) -> Any:
        began = time.perf_counter()
        time.sleep(SLEEP_S)
        found = real(*words)
        took.append(time.perf_counter() - began)
        return found

    monkeypatch.setattr(loop, "evaluate", evaluate)
    folder = tmp_path / "run"
    sent[16] = signal.SIGTERM
    with monkeypatch.context() as patched:
        patched.setattr(CheckpointWriter, "expected_write_s", lambda writer, nbytes: 26.0)
        assert train(folder, *NEVER, "--train.max_epochs", "6", "--train.checkpoint_every", "3") == 143
    assert newest(folder).state["epoch"] == 3
    assert RunFolder.open(folder).read_summary().evaluations == len(took) == 5
    sent.clear()
    assert train(folder, "--resume") == 3
    summary = RunFolder.open(folder).read_summary()
    assert summary.evaluations == len(took) == 8
    assert [one.evaluations for one in written(folder)] == [5, 3]
    assert summary.phases_s["evaluation"] == pytest.approx(sum(took), abs=8 * SLEEP_S / 4)


@pytest.mark.slow
def test_no_checkpoint_is_begun_that_would_take_longer_than_there_is_time(
    train: Train, tmp_path: Path, sent: dict[int, signal.Signals], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """After SIGTERM 25 s are left, after SIGUSR1 the time of the warning."""
    monkeypatch.setattr(CheckpointWriter, "expected_write_s", lambda writer, nbytes: 26.0)
    folder = tmp_path / "run"
    sent[15] = signal.SIGTERM
    assert train(folder, *TWO, "--train.max_epochs", "2") == 143
    said = capsys.readouterr()
    assert "no checkpoint of step 15: it would take about 26 s, and 25 s are left" in said.out + said.err
    assert newest(folder).state["step"] == 12
    summary = RunFolder.open(folder).read_summary()
    assert (summary.cause, summary.signal, summary.steps) == ("signal", "SIGTERM", 15)
    sent.clear()
    sent[14] = signal.SIGUSR1
    assert train(folder, "--resume") == 138
    assert newest(folder).state["step"] == 14
    sent.clear()
    assert train(folder, "--resume") == 3
    assert train(tmp_path / "whole", *TWO, "--train.max_epochs", "2") == 3
    losses = [RunFolder.open(path).read_steps()["loss"].tolist() for path in (folder, tmp_path / "whole")]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_preempted_job_says_so(cosmos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "scontrol"
    command.write_text("#!/bin/sh\necho JobId=7 JobState=RUNNING PreemptTime=2026-03-14T10:00:00\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    ends = {}
    for name in ("SIGTERM", "SIGUSR1"):
        words = arguments(cosmos, tmp_path / name, *TWO, "--train.max_epochs", "1")
        ends[name] = {"words": words, "plan": plan("step", 3, name)}
    assert [each["codes"] for each in attempts(*ends.values())] == [[143], [138]]
    found = [RunFolder.open(tmp_path / name).read_summary() for name in ends]
    assert [(each.cause, each.signal) for each in found] == [("preempted", "SIGTERM"), ("signal", "SIGUSR1")]
    assert json.loads((tmp_path / "SIGTERM" / "summary.json").read_text())["cause"] == "preempted"


@pytest.mark.slow
def test_an_attempt_that_is_killed_before_its_first_checkpoint_counts(cosmos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    found = attempts(
        {"words": arguments(cosmos, folder, *TWO, "--train.max_epochs", "1"), "plan": plan("step", 3, "SIGTERM")},
    )
    assert found[0]["codes"] == [143], found
    known = Attempts.read(folder)
    known.attempts[0].energy_j, known.attempts[0].energy_source = 5.0, "a meter"
    known.write(folder)
    found += attempts(
        {"words": arguments(cosmos, folder, "--resume"), "plan": plan("step", 6, "SIGKILL", sleep_s=SLEEP_S)},
        {"words": arguments(cosmos, folder, "--resume")},
    )
    assert [each["codes"] for each in found[1:]] == [[-9], [3]], found
    summary, (first, killed, last) = RunFolder.open(folder).read_summary(), written(folder)
    assert summary.resumed == 2
    assert (killed.cause, killed.first_step, killed.last_step) == (None, 3, 3)
    assert found[1]["started"] - 0.02 < killed.started < killed.ended < found[1]["ended"]
    assert last.first_step == 3
    lost = found[1]["seconds"] - killed.wall_s
    assert lost > 3 * SLEEP_S
    assert summary.gaps_s >= lost
    assert summary.wall_s == pytest.approx(first.wall_s + killed.wall_s + last.wall_s)
    assert (killed.energy_j, killed.energy_source) == (0.0, "a meter")
    joules, _, note = Attempts([first, killed, replace(last, energy_j=2.0)]).energy
    assert joules == 7.0
    assert "over 3 attempts without what 1 took after the last checkpoint" in note
