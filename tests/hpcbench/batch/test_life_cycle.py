"""Jobs from submission to end by the documented commands, on schedulers that run the scripts for real.

Waiting, running, over the time limit, continued, done; cancelled, forgotten, and a scheduler that is down.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.batch import script, submission
from hpcbench.batch.holds import read_holds
from hpcbench.batch.job_record import read_job
from hpcbench.batch.submission import job_status
from hpcbench.cli.main import main
from hpcbench.results.attempts import Attempts
from tests.hpcbench.batch.executing import COMMANDS, Machine, read_lines
from tests.params import slow_except


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(request.param, tmp_path, monkeypatch)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.parametrize("machine", slow_except(["pbs"], ["pbs", "lsf", "flux"]), indirect=True)
def test_a_job_over_its_time_limit_is_continued_by_other_jobs_to_its_end(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_STEPS", "50")
    monkeypatch.setenv("FAKE_SAVE_S", "40")
    run = tmp_path / "runs" / "long"
    assert machine.submit(run, "--warn-s", "57") == 0
    assert job_status(read_job(run)).state in ("waiting", "running")
    for attempt in (1, 2):
        machine.interrupt(run, attempt)
    assert machine.ended(run).state == "done", machine.log(run)
    assert [(hold.job_id, hold.attempt) for hold in read_holds(run)] == [("1", 1), ("2", 2), ("3", 3)]
    log = machine.log(run)
    assert log.count("the run was stopped by SIGUSR1; continued") == 2
    told = "a checkpoint of this run took 40 s, and the warning comes 57 s before the time limit; give the next job "
    assert f"hpcbench: {told}--warn-s 80\n" in log
    assert not machine.together()
    capsys.readouterr()
    assert main(["jobs", str(run)]) == 0
    said = capsys.readouterr().out
    assert " done" in said
    assert [line.split()[:2] for line in said.splitlines()[-3:]] == [["1", "1"], ["2", "2"], ["3", "3"]]
    assert told in " ".join(said.split()), "the lines are at most 100 columns long"
    machine.trouble("forget")
    assert job_status(read_job(run)).source == "run folder"


@pytest.mark.slow
@pytest.mark.parametrize("pauses", [(0, 1, 2, 4, 8, 16), (0, 0)])
@pytest.mark.parametrize("machine", ["slurm", "pbs"], indirect=True)
def test_an_interrupted_job_is_queued_again_when_the_scheduler_is_back(
    machine: Machine, pauses: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for a while; after that it says that it cannot, and the folder that the run is interrupted."""
    monkeypatch.setattr(script, "PAUSES_S", pauses)
    monkeypatch.setattr(submission, "SETTLED_S", 2.0)
    monkeypatch.setenv("FAKE_STEPS", "50")
    run = tmp_path / "run"
    assert machine.submit(run) == 0
    machine.wait_for(run / "steps.csv", run)
    down = machine.trouble("down")
    machine.interrupt(run, 1)
    gives_up = len(pauses) == 2
    if gives_up:
        machine.wait_for(run / "holds" / "1.end", run)
    else:
        time.sleep(2)
    assert job_status(read_job(run)).state == "unknown"
    down.unlink()
    assert ("the job cannot be queued again" in machine.log(run)) is gives_up
    assert machine.ended(run).state == ("failed" if gives_up else "done"), machine.log(run)
    assert [hold.attempt for hold in read_holds(run)] == ([1] if gives_up else [1, 2])
    if gives_up:  # as the page says
        submit = {"slurm": ["sbatch"], "pbs": ["qsub"]}[machine.kind]
        subprocess.run([*submit, "job.sh"], cwd=run, check=True, capture_output=True)
        machine.wait_for(run / "holds" / "2.end", run)
        assert "the run was stopped" not in machine.log(run).rpartition("attempt 1,")[2]
        assert machine.wait(run, "done").state == "done"


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["pbs"], indirect=True)
def test_a_pbs_without_history_forgets_jobs_that_have_ended_which_their_folders_tell(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``job_history_enable`` is unset by default, and ``qstat -x`` is refused then."""
    machine.trouble("no-history")
    monkeypatch.setenv("FAKE_STEPS", "30")
    run = tmp_path / "run"
    assert machine.submit(run) == 0
    machine.wait_for(run / "steps.csv", run)
    assert (job_status(read_job(run)).state, job_status(read_job(run)).source) == ("running", "qstat")
    machine.interrupt(run, 1)
    found = machine.ended(run)
    assert (found.state, found.source) == ("done", "run folder"), machine.log(run)
    assert [(hold.job_id, hold.attempt) for hold in read_holds(run)] == [("1", 1), ("2", 2)]
    assert main(["jobs", str(run)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("machine", list(COMMANDS), indirect=True)
def test_a_job_that_is_cancelled_does_not_come_back_and_one_of_a_scheduler_that_is_down_is_unknown(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_STEPS", "3000")
    run = tmp_path / "run"
    assert machine.submit(run) == 0
    machine.wait_for(run / "steps.csv", run)
    assert job_status(read_job(run)).state == "running"
    down = machine.trouble("down")
    assert job_status(read_job(run)).state == "unknown"
    assert main(["jobs", "--cancel", str(run)]) == 2
    down.unlink()
    capsys.readouterr()
    assert main(["train", "cosmoflow", "--run-dir", str(run), "--resume", "--data.root", str(tmp_path)]) == 2
    held = f"hpcbench: error: run folder {run} is held by job 1, attempt 1: running; wait for its end, or cancel it: "
    assert capsys.readouterr().err == f"{held}hpcbench jobs --cancel {run}\n"
    assert main(["jobs", "--cancel", str(run)]) == 0
    machine.wait_for(run / "holds" / "1.end", run)
    assert job_status(read_job(run)).state == "cancelled"
    assert "the run was cancelled; not continued" in machine.log(run)
    assert len(read_holds(run)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["pbs"], indirect=True)
def test_a_job_that_its_scheduler_starts_again_continues(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node died, or it was preempted: twice. A real Slurm does so in ``tests/slurm``; LSF and Flux do not."""
    run = submit_long_run(machine, tmp_path, monkeypatch)
    for attempt in (1, 2):
        machine.trained(run, attempt)
        machine.saved(run, 2 * attempt)
        machine.lose_node(1)
    assert machine.ended(run).state == "done", machine.log(run)
    assert {hold.job_id for hold in read_holds(run)} == {"1"}
    assert not machine.together()
    first, second, third = first_steps(machine, run)
    assert 0 == first < second < third


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["lsf", "flux"], indirect=True)
def test_a_job_that_died_with_its_node_is_failed_and_its_folder_free(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page says then: submit the script of the folder again."""
    run = submit_long_run(machine, tmp_path, monkeypatch)
    machine.trained(run, 1)
    machine.saved(run, 2)
    machine.lose_node(1, restarts=False)
    assert machine.ended(run).state == "failed", machine.log(run)
    submit = {"lsf": ["bsub"], "flux": ["flux", "batch", "job.sh"]}[machine.kind]
    with (run / "job.sh").open() as text:
        subprocess.run(submit, stdin=text, cwd=run, check=True, capture_output=True)
    machine.wait_for(run / "holds" / "2.end", run)
    assert machine.wait(run, "done").state == "done", machine.log(run)
    first, second = first_steps(machine, run)
    assert 0 == first < second


def submit_long_run(machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Submit a run of six seconds; its folder."""
    monkeypatch.setenv("FAKE_STEPS", "60")
    run = folder / "run"
    assert machine.submit(run) == 0
    return run


def first_steps(machine: Machine, run: Path) -> list[int]:
    """The step from which each training of a run started."""
    found = [attempt.first_step for attempt in Attempts.read(run).attempts]
    assert len(found) == len(read_lines(machine.state / "trainings"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("machine", list(COMMANDS), indirect=True)
def test_a_second_job_of_a_folder_ends_with_a_line_while_the_first_works(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEPS", "3000")
    run = tmp_path / "run"
    assert machine.submit(run) == 0
    machine.wait_for(run / "steps.csv", run)
    own = run / "job.sh"
    command = {"slurm": ["sbatch", "--parsable"], "pbs": ["qsub"], "lsf": ["bsub"], "flux": ["flux", "batch"]}
    words = [*command[machine.kind], *([] if machine.kind == "lsf" else [str(own)])]
    with own.open() as text:
        subprocess.run(words, stdin=text, cwd=run, check=True, env=dict(os.environ), capture_output=True)
    machine.wait_for(machine.state / "jobs" / "2" / "code", run)
    assert (machine.state / "jobs" / "2" / "code").read_text() == "4"
    said = (run / "job-2.log").read_text()
    line = f"hpcbench: error: run folder {run} is held by job 1, attempt 1: running; job 2, attempt 1, ends here\n"
    assert said == line
    assert read_job(run).job_id == "1"
    assert len(read_holds(run)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["pbs", "lsf", "flux"], indirect=True)
def test_a_continuation_whose_submission_was_not_answered_is_found_by_its_mark(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script is killed as soon as the next job is in the queue, which has not begun to work."""
    monkeypatch.setattr(submission, "SETTLED_S", 2.0)
    monkeypatch.setenv("FAKE_STEPS", "3000")
    run = tmp_path / "run"
    assert machine.submit(run) == 0
    machine.wait_for(run / "steps.csv", run)
    (machine.state / "jobs" / "1" / "state").write_text("ended")  # what follows is the scheduler's word alone
    (machine.state / "jobs" / "1" / "code").write_text("137")
    assert job_status(read_job(run)).state == "failed"
    (run / "holds" / "1.next").touch()
    assert job_status(read_job(run)).state == "unknown"
    down = machine.trouble("down")
    assert job_status(read_job(run)).state == "unknown"
    down.unlink()
    mark = read_job(run).mark
    other = machine.state / "jobs" / "2"
    other.mkdir()
    facts = {"mark": mark, "kind": machine.kind, "environ": f'{{"HPCBENCH_MARK": "{mark}"}}', "state": "waiting"}
    for name, text in facts.items():
        (other / name).write_text(text)
    assert job_status(read_job(run)).state == "waiting"
    assert read_job(run).job_id.startswith("2")
    (other / "state").write_text("cancelled")
    assert job_status(read_job(run)).state == "cancelled"
    os.utime(run / "holds" / "1.next", (1, 1))


def test_the_fakes_answer_as_the_schedulers_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit codes of Slurm: of an unknown job among several 0, alone 1; of a controller that is down 1 after a while."""
    machine = Machine("slurm", tmp_path, monkeypatch)
    (machine.state / "jobs" / "7").mkdir()
    (machine.state / "jobs" / "7" / "state").write_text("waiting")

    def ends(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr.strip()

    assert ends("squeue", "--jobs=7,8") == (0, "7|PENDING|Priority\n", "")
    assert ends("squeue", "--jobs=8") == (1, "", "slurm_load_jobs error: Invalid job id specified")
    assert ends("sacct", "--jobs=8") == (1, "", "Slurm accounting storage is disabled")
    machine.trouble("down")
    machine.trouble("slow", "0.5")
    assert ends("squeue", "--jobs=7")[0] == 1
