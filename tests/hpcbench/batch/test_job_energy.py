"""Energy from Slurm's accounting: known only where every step and every attempt is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.batch.holds import Hold, write_hold
from hpcbench.batch.job_energy import BY_JOB, BY_STEPS, FILE, JobEnergy, job_energy, parse_energy
from hpcbench.batch.job_record import JobHandle

NO_VALUE = "18446744073709551614"
WITHOUT_EXTERN = """\
77|COMPLETED|600|179200
77.batch|COMPLETED|600|90000
77.0|COMPLETED|10|1200
77.1|COMPLETED|580|88000
"""
"""No ``extern``: Slurm's total is that of all steps with ``batch``."""
WITH_EXTERN = """\
77|COMPLETED|600|90500
77.batch|COMPLETED|600|45000
77.extern|COMPLETED|600|90500
77.0|COMPLETED|10|1200
77.1|COMPLETED|580|88000
"""


def reason(printed: str) -> str:
    found = parse_energy(printed)
    assert found.joules is None
    return found.words


def test_numbered_steps_are_added_up_and_batch_is_not() -> None:
    """The total of the job has the first node twice here."""
    assert parse_energy(WITHOUT_EXTERN) == JobEnergy(89_200, BY_STEPS)


def test_the_whole_allocation_is_better_than_its_steps() -> None:
    assert parse_energy(WITH_EXTERN) == JobEnergy(90_500, BY_JOB)


def test_the_whole_allocation_needs_no_values_of_steps() -> None:
    printed = WITH_EXTERN.replace("580|88000", f"580|{NO_VALUE}").replace("10|1200", "10|")
    assert parse_energy(printed) == JobEnergy(90_500, BY_JOB)


@pytest.mark.parametrize("total", ["", "0", NO_VALUE])
def test_extern_is_the_whole_where_the_job_has_no_total(total: str) -> None:
    printed = WITH_EXTERN.replace("77|COMPLETED|600|90500", f"77|COMPLETED|600|{total}")
    assert parse_energy(printed) == JobEnergy(90_500, BY_JOB)


def test_a_total_below_the_steps_is_not_the_whole() -> None:
    assert parse_energy(WITH_EXTERN.replace("90500", "700")) == JobEnergy(89_200, BY_STEPS)


@pytest.mark.parametrize("value", ["", "0", NO_VALUE, "18446744073709551615", "4294967294", "1.844674e+19", "n/a"])
def test_a_step_without_a_value_makes_the_sum_incomplete(value: str) -> None:
    assert reason(WITHOUT_EXTERN.replace("|1200", f"|{value}")) == (
        "sacct has no energy of step 77.0, so that the sum over steps is incomplete"
    )


def test_a_step_that_took_no_second_needs_no_value() -> None:
    assert parse_energy(WITHOUT_EXTERN.replace("10|1200", "0|0")) == JobEnergy(88_000, BY_STEPS)


def test_a_step_that_is_still_running_makes_the_sum_incomplete() -> None:
    assert reason(WITHOUT_EXTERN.replace("77.1|COMPLETED", "77.1|RUNNING")) == (
        "step 77.1 is RUNNING by sacct, so that the sum over steps is incomplete"
    )


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "PENDING"])
def test_a_job_that_has_not_ended_has_no_energy(state: str) -> None:
    assert reason(WITH_EXTERN.replace("77|COMPLETED", f"77|{state}")) == f"job 77 is {state} by sacct"


def test_how_a_job_ended_does_not_matter() -> None:
    printed = WITHOUT_EXTERN.replace("77|COMPLETED", "77|CANCELLED by 1234").replace("77.1|COMPLETED", "77.1|FAILED")
    assert parse_energy(printed).joules == 89_200


def test_values_with_decimals_are_those_of_older_versions() -> None:
    assert parse_energy("5|COMPLETED|60|\n5.0|COMPLETED|60|4567.000000\n").joules == 4567


REQUEUED = "77|PREEMPTED|300|\n77.batch|CANCELLED|300|40000\n77.0|CANCELLED by 0|290|41000\n"


def test_all_attempts_of_a_requeued_job_count() -> None:
    assert parse_energy(REQUEUED + WITHOUT_EXTERN) == JobEnergy(130_200, f"{BY_STEPS}, over 2 records of it")
    never_began = "77|NODE_FAIL|0|\n"
    assert parse_energy(never_began + WITHOUT_EXTERN) == JobEnergy(89_200, BY_STEPS)


def test_an_attempt_without_energy_makes_that_of_the_job_unknown() -> None:
    no_step = "77|NODE_FAIL|300|\n77.batch|CANCELLED|300|40000\n"
    assert reason(no_step + WITHOUT_EXTERN) == (
        "sacct has no step of job 77 with a value, so that its energy is not known"
    )
    assert "no energy of step 77.0" in reason(REQUEUED.replace("41000", NO_VALUE) + WITHOUT_EXTERN)
    assert reason(WITHOUT_EXTERN + "77|PENDING|0|\n") == "job 77 is PENDING by sacct"


def test_components_of_a_heterogeneous_job_are_added_up() -> None:
    printed = "8+0|COMPLETED|60|\n8+0.0|COMPLETED|60|100\n8+1|COMPLETED|60|\n8+1.0|COMPLETED|60|250\n"
    assert parse_energy(printed).joules == 350


@pytest.mark.parametrize("printed", ["", "slurm_load: error\n", "77|COMPLETED\n"])
def test_no_record_is_no_energy(printed: str) -> None:
    assert reason(printed) == "sacct has no record of the job"


def test_a_cluster_without_counters_has_no_energy() -> None:
    printed = "77|COMPLETED|600|0\n77.extern|COMPLETED|600|0\n77.0|COMPLETED|590|0\n"
    assert reason(printed) == "sacct has no energy of step 77.0, so that the sum over steps is incomplete"


def fake_sacct(folder: Path, text: str, status: int = 0) -> None:
    """A command that prints ``text``, and keeps its arguments."""
    command = folder / "sacct"
    command.write_text(f"#!/bin/sh\necho \"$@\" > {folder}/asked\ncat <<'EOF'\n{text}EOF\nexit {status}\n")
    command.chmod(0o755)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands."""
    found = tmp_path / "bin"
    found.mkdir()
    monkeypatch.setenv("PATH", f"{found}:/usr/bin:/bin")
    return found


def job_in(folder: Path) -> JobHandle:
    folder.mkdir()
    return JobHandle(folder, "slurm", "77", "here")


def test_it_is_asked_once_and_kept(tmp_path: Path, commands: Path) -> None:
    job = job_in(tmp_path / "run")
    fake_sacct(commands, WITH_EXTERN)
    assert job_energy(job) == JobEnergy(90_500, BY_JOB)
    fake_sacct(commands, WITHOUT_EXTERN)
    assert job_energy(job) == JobEnergy(90_500, BY_JOB)
    (job.folder / FILE).write_text('{"joules": 5, "source": "sacct ConsumedEnergyRaw"}')
    assert job_energy(job) == JobEnergy(5, BY_STEPS), "as an earlier version kept it"
    (job.folder / FILE).write_text("no JSON")
    assert job_energy(job).words == f"{FILE} of the run is damaged; remove it to ask sacct again"


def test_what_is_unknown_is_asked_again(tmp_path: Path, commands: Path) -> None:
    job = job_in(tmp_path / "run")
    fake_sacct(commands, WITHOUT_EXTERN.replace("|1200", "|"))
    assert job_energy(job).joules is None
    fake_sacct(commands, WITHOUT_EXTERN)
    assert job_energy(job).joules == 89_200


def test_every_attempt_is_asked_for_and_no_older_job_of_the_number(tmp_path: Path, commands: Path) -> None:
    job = job_in(tmp_path / "run")
    fake_sacct(commands, WITHOUT_EXTERN)
    (job.folder / "job.json").write_text(json.dumps({"submitted": "2026-03-01T05:00:00+00:00"}))
    assert job_energy(job).joules == 89_200
    asked = (commands / "asked").read_text().split()
    assert {"--duplicates", "--jobs=77", "--starttime=2026-02-28"} <= set(asked)


def test_a_run_that_another_job_continued_took_the_energy_of_both(tmp_path: Path, commands: Path) -> None:
    """As after the last attempt, when its script is submitted by hand and gets a number of its own."""
    job = job_in(tmp_path / "run")
    for number, job_id in enumerate(("76", "77"), start=1):
        write_hold(job.folder, Hold.here(job_id, 1, "slurm", "", 2, 0), number)
    fake_sacct(commands, WITHOUT_EXTERN)
    assert job_energy(job).words == "sacct has no record of job 76, which made a part of the run"
    fake_sacct(commands, WITHOUT_EXTERN.replace("77", "76") + WITHOUT_EXTERN)
    assert job_energy(job) == JobEnergy(2 * 89_200, f"{BY_STEPS}, over 2 records of it")
    assert "--jobs=76,77" in (commands / "asked").read_text().split()


def test_why_it_was_not_asked_is_said(tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_in(tmp_path / "run")
    fake_sacct(commands, "", status=1)
    assert job_energy(job).words == "sacct failed with exit code 1"
    monkeypatch.setenv("PATH", str(job.folder))
    assert job_energy(job) == JobEnergy(None, "sacct is not on PATH")
    pbs = JobHandle(tmp_path, "pbs", "5", "here")
    assert job_energy(pbs) == JobEnergy(None, "pbs has no accounting of energy that is read here")
