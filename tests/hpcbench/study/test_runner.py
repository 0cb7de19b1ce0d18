"""The state machine of a study, with runs that end at once: what is run, resumed, kept, and refused."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.exits import Aborted, Cause
from hpcbench.study.convergence import read_statuses, runs_of
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.local_runs import LocalRuns, own_environment
from hpcbench.study.run_slots import Slot
from hpcbench.study.run_status import RunStatus, Status, Statuses, judge
from staging.errors import DataError, InputError
from tests.hpcbench.study.conftest import Ended, FakeLauncher, make, settings_of, write_run


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """A new study's folder."""
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write({"kind": "convergence"})
    return folder


def names(launcher: FakeLauncher) -> list[str]:
    return [Path(settings["run-dir"]).name for settings in launcher.started]


def test_a_study_makes_every_run_once(study: Study, folder: StudyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    launcher = FakeLauncher(lambda settings: 5.0)
    statuses = make(study, folder, launcher)
    assert len(launcher.started) == 8
    assert {state.status for name, state in statuses.items() if name in names(launcher)} == {"reached"}
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("[8/8] b32-adamw-x1-seed2: reached, mae ")
    assert "none left" in last
    again = FakeLauncher(lambda settings: 5.0)
    make(study, folder, again)
    assert again.started == [], "finished runs are not made again"


def test_more_seeds_and_batches_add_runs_to_those_that_are_done(study: Study, folder: StudyFolder) -> None:
    make(study, folder, FakeLauncher(lambda settings: 5.0))
    launcher = FakeLauncher(lambda settings: 5.0)
    make(replace(study, seeds=3, batch_sizes=(8, 16, 32)), folder, launcher)
    assert len(launcher.started) == 3 * 2 * 3 - 8


def test_a_run_that_diverges_misses_or_crashes_is_kept_as_such(study: Study, folder: StudyFolder) -> None:
    ends = {("sgd", "1"): math.inf, ("sgd", "2"): 99.0, ("adamw", "1"): math.nan}
    launcher = FakeLauncher(lambda settings: ends.get((settings["optim.name"], settings["train.seed"]), 5.0))
    small = replace(study, batch_sizes=(8,))
    statuses = make(small, folder, launcher)
    assert {name: state.status for name, state in statuses.items()} == {
        "b8-sgd-x1-seed1": "diverged", "b8-sgd-x1-seed2": "missed", "b8-adamw-x1-seed1": "failed",
        "b8-adamw-x1-seed2": "reached",
    }  # fmt: skip
    assert statuses["b8-adamw-x1-seed1"].reason == "exit code 1: no memory"
    assert folder.log("b8-adamw-x1-seed1").exists(), "what a crashed run printed is kept"
    make(small, folder, again := FakeLauncher(lambda settings: 5.0))
    assert again.started == []
    statuses = make(small, folder, again, retry=True)
    assert names(again) == ["b8-adamw-x1-seed1"]
    assert statuses["b8-adamw-x1-seed1"].status == "reached"


def test_the_same_crash_again_and_again_stops_the_study(study: Study, folder: StudyFolder) -> None:
    launcher = FakeLauncher(lambda settings: math.nan)
    with pytest.raises(
        InputError,
        match=r"3 runs in a row failed, the last with: exit code 1: no memory; see .*: hpcbench study resume",
    ):
        make(study, folder, launcher)
    assert len(launcher.started) <= 4


def test_a_search_decides_the_rate_of_the_seeds(study: Study, folder: StudyFolder) -> None:
    searching = replace(study, batch_sizes=(64,), optimizers=("sgd",), lr_search=(0.5, 1.0, 2.0))
    launcher = FakeLauncher(lambda settings: {"0.005": 9.0, "0.01": 8.0, "0.02": 6.0}[settings["optim.lr"]])
    make(searching, folder, launcher)
    assert names(launcher)[3:] == ["b64-sgd-x2-seed1", "b64-sgd-x2-seed2"]


def interrupted(folder: StudyFolder, name: str, settings: dict[str, str], checkpoint: bool) -> None:
    write_run(folder.run(name), settings, math.inf)
    path = folder.run(name) / "summary.json"
    ended = {**json.loads(path.read_text()), "cause": "signal", "signal": "SIGTERM", "reason": "signal SIGTERM"}
    path.write_text(json.dumps(ended), encoding="utf-8")
    if checkpoint:
        (folder.run(name) / "checkpoints").mkdir()
        for suffix in ("pt", "json"):
            (folder.run(name) / "checkpoints" / f"epoch-0001-step-00000512.{suffix}").touch()


@pytest.mark.parametrize("checkpoint", [True, False])
def test_an_interrupted_run_goes_on_from_its_checkpoint_or_starts_anew(
    study: Study, folder: StudyFolder, checkpoint: bool
) -> None:
    one = replace(study, batch_sizes=(8,), optimizers=("sgd",), seeds=1)
    (job,) = runs_of(one)({})
    settings = settings_of(job.arguments(folder.run(job.name), 1))
    interrupted(folder, job.name, settings, checkpoint)
    assert read_statuses(one, folder)[job.name].status == "interrupted"
    launcher = Resuming(lambda settings: 5.0, settings)
    statuses = make(one, folder, launcher)
    assert [each["resume"] for each in launcher.started] == [str(checkpoint)]
    assert statuses[job.name].status == "reached"
    assert not (folder.run(job.name) / "checkpoints").exists(), "a run that is done needs none"


class Resuming(FakeLauncher):
    """A resumed run has its settings from its folder."""

    def __init__(self, epochs_of: object, settings: dict[str, str], code: int = 0, said: str = "") -> None:
        super().__init__(epochs_of)  # type: ignore[arg-type]
        self.settings, self.code, self.said = settings, code, said

    def start(self, arguments: Sequence[str], log: Path, slot: Slot) -> Ended:
        if "--resume" not in arguments:
            return super().start(arguments, log, slot)  # type: ignore[return-value]
        self.started.append({"run-dir": self.settings["run-dir"], "resume": "True"})
        if self.code:
            with log.open("a", encoding="utf-8") as printed:
                printed.write(f"hpcbench: error: {self.said}\n")
            return Ended(self.code)
        folder = Path(self.settings["run-dir"])
        for path in folder.glob("*.*"):
            path.unlink()
        (folder / "checkpoints").rename(folder.parent / "aside")
        write_run(folder, self.settings, 5.0)
        (folder.parent / "aside").rename(folder / "checkpoints")
        return Ended(0)


def test_a_checkpoint_that_is_refused_means_a_new_start(study: Study, folder: StudyFolder) -> None:
    one = replace(study, batch_sizes=(8,), optimizers=("sgd",), seeds=1)
    (job,) = runs_of(one)({})
    settings = settings_of(job.arguments(folder.run(job.name), 1))
    interrupted(folder, job.name, settings, checkpoint=True)
    said = "cannot resume: the checkpoint was made with parallel.threads 4, this run has 2; use the same"
    launcher = Resuming(lambda settings: 5.0, settings, code=2, said=said)
    assert make(one, folder, launcher)[job.name].status == "reached"
    assert [each["resume"] for each in launcher.started] == ["True", "False"]
    aside = folder.run(f"{job.name}.refused-1")
    assert list((aside / "checkpoints").iterdir()), "what the earlier attempt left is kept"


def test_a_resumed_run_with_other_bad_input_keeps_its_checkpoints(study: Study, folder: StudyFolder) -> None:
    one = replace(study, batch_sizes=(8,), optimizers=("sgd",), seeds=1)
    (job,) = runs_of(one)({})
    settings = settings_of(job.arguments(folder.run(job.name), 1))
    interrupted(folder, job.name, settings, checkpoint=True)
    folder.log(job.name).write_text("hpcbench: aborted: signal SIGTERM\n")
    launcher = Resuming(lambda settings: 5.0, settings, code=2, said="/scratch/data does not exist; give --data.root")
    state = make(one, folder, launcher)[job.name]
    assert (state.status, state.reason) == ("failed", "exit code 2: /scratch/data does not exist; give --data.root")
    assert list((folder.run(job.name) / "checkpoints").iterdir())
    launcher.code = 0
    assert make(one, folder, launcher, retry=True)[job.name].status == "reached"
    assert [each["resume"] for each in launcher.started] == ["True", "True"]


class Endless:
    """A process that ends when it is asked to, or, if it is stubborn, when it must."""

    def __init__(self, stubborn: bool) -> None:
        self.code: int | None = None
        self.stubborn = stubborn

    def poll(self) -> int | None:
        return self.code

    def stop(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL or not self.stubborn:
            self.code = 128 + number


class EndlessLauncher:
    """Starts endless runs and sends a signal to this process with the second of them, or another."""

    def __init__(self, stubborn: bool = False, number: signal.Signals = signal.SIGTERM, first: int = 2) -> None:
        self.stubborn, self.number, self.first = stubborn, number, first
        self.processes: list[Endless] = []

    def start(self, arguments: Sequence[str], log: Path, slot: Slot) -> Endless:
        self.processes.append(Endless(self.stubborn))
        if len(self.processes) == self.first:
            os.kill(os.getpid(), self.number)
        return self.processes[-1]


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_signal_ends_all_runs_and_leaves_a_study_to_go_on_with(
    study: Study, folder: StudyFolder, stubborn: bool
) -> None:
    launcher = EndlessLauncher(stubborn)
    with pytest.raises(Aborted, match="signal SIGTERM; the same command continues from here") as caught:
        make(study, folder, launcher, grace_s=0.1)
    assert caught.value.exit_code == 143
    assert [process.code for process in launcher.processes] == [137 if stubborn else 143] * 2
    assert not any(state.final for state in read_statuses(study, folder).values())
    make(study, folder, again := FakeLauncher(lambda settings: 5.0))
    assert len(again.started) == 8


def test_as_many_runs_at_once_as_asked_for(study: Study, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = EndlessLauncher(first=99)
    slots = []

    def look(executor: LocalRuns, under_way: Statuses) -> dict[str, RunStatus]:
        slots.append(len(executor.running))
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    monkeypatch.setattr(LocalRuns, "look", look)
    with pytest.raises(Aborted):
        make(study, folder, launcher, at_once=3)
    assert (len(launcher.processes), slots) == (3, [3])


def test_a_second_process_in_the_folder_is_refused(folder: StudyFolder) -> None:
    with (
        held(folder),
        pytest.raises(InputError, match=rf"is held by pid {os.getpid()} on .*; wait for it"),
        held(folder),
    ):
        pass
    with held(folder):
        pass


def test_a_folder_in_which_no_study_began_is_removed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dataset"), held(StudyFolder(tmp_path / "new")):
        raise InputError("no dataset")
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with (
        pytest.raises(InputError, match="is not empty and holds no study; give a new folder"),
        held(StudyFolder(tmp_path)),
    ):
        pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match=r"cannot be written \(Not a directory\)"),
        held(StudyFolder(tmp_path / "file" / "study")),
    ):
        pass


@pytest.mark.parametrize("text", ["no json", '{"schema": 9}', "[]"])
def test_a_damaged_definition_is_refused(folder: StudyFolder, text: str) -> None:
    folder.definition.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"study\.json"):
        folder.read()


def test_a_damaged_summary_counts_as_a_crash(study: Study, folder: StudyFolder) -> None:
    make(study, folder, FakeLauncher(lambda settings: 5.0))
    (folder.run("b8-sgd-x1-seed1") / "summary.json").write_text("{", encoding="utf-8")
    state = read_statuses(study, folder)["b8-sgd-x1-seed1"]
    assert state.status == "failed"
    assert "is not JSON" in state.reason


def test_the_cause_of_an_end_decides_whatever_the_words(study: Study, folder: StudyFolder) -> None:
    make(study, folder, FakeLauncher(lambda settings: 5.0))
    summary = RunStatus("reached", summary=read_statuses(study, folder)["b8-sgd-x1-seed1"].summary).summary
    assert summary is not None
    summary.status, summary.reason = "aborted", "the loss is inf at step 3, after signal SIGINT"
    known: dict[Cause, Status] = {
        "diverged": "diverged", "signal": "interrupted", "preempted": "interrupted", "full_disk": "failed",
        "rank_lost": "interrupted", "hang": "interrupted", "error": "failed",
    }  # fmt: skip
    for cause, status in known.items():
        summary.cause = cause
        assert judge(summary) == status


def test_a_finished_run_keeps_what_a_repository_can_hold(study: Study, folder: StudyFolder) -> None:
    make(study, folder, FakeLauncher(lambda settings: 5.0))
    kept = {path.name for path in folder.run("b8-sgd-x1-seed1").iterdir()}
    assert {"config.yaml", "mllog.txt", "epochs.csv", "summary.json"} <= kept
    assert not kept & {"steps.csv", "scores.npz", "examples.npz", "report.html", "checkpoints"}
    assert json.loads((folder.run("b8-sgd-x1-seed1") / "summary.json").read_text())["epochs_to_target"] == 5


def test_a_run_is_a_job_of_its_own_under_a_launcher() -> None:
    environ = {"PATH": "/bin", "RANK": "1", "PMI_RANK": "1", "SLURM_PROCID": "1", "SLURM_JOB_ID": "7"}
    assert own_environment(environ, Slot()) == {"PATH": "/bin", "SLURM_JOB_ID": "7"}
