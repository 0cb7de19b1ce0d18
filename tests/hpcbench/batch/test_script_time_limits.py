"""A job script and its time limit: when the run is warned, and what SIGTERM means, which also cancels jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch.packed_runs import PackedRuns
from tests.hpcbench.batch.conftest import a_job, a_site
from tests.hpcbench.batch.test_scripts import AGAIN, NOTE, fakes, of, run_script

__all__ = ["fakes"]


@pytest.mark.parametrize(("seconds", "limit"), [(560, False), (575, True), (601, True)])
@pytest.mark.parametrize("name", ["slurm", "pbs", "lsf", "flux", "local"])
def test_sigterm_at_the_time_limit_is_no_cancellation(
    name: str, seconds: int, limit: bool, fakes: Path, tmp_path: Path
) -> None:
    """By the script's clock, which is set here. Slurm is asked instead, and without a scheduler no limit ends a job."""
    (fakes / "timeout").write_text(NOTE + 'shift 4\nexec "$@"\n')
    (fakes / "timeout").chmod(0o755)
    site = a_site(name)
    answers = {"TRAIN": "143", "CANCEL": "yes", "INTERRUPTED": "0", "CANCELLED": "1"}
    job = a_job(site, tmp_path / "run", attempts=2)
    _, calls = run_script(job, site, fakes, SECONDS=str(seconds), **answers)
    by_clock = limit and name not in ("slurm", "local")
    option = "" if by_clock else "--cancelled "
    asked = of(calls, "hpcbench jobs --interrupted")
    assert asked == [f"hpcbench jobs --interrupted {option}--hold {tmp_path}/notes.hold {tmp_path}/run"]
    if name != "local":
        assert (AGAIN[name].replace("=3", "=2") in calls) is by_clock


@pytest.mark.parametrize(("late_s", "least"), [(-50, 30), (0, 1), (10, 1)])
@pytest.mark.parametrize("name", ["pbs", "lsf", "flux", "local"])
@pytest.mark.parametrize("packed", [None, PackedRuns({}, 1), PackedRuns({}, 1, launchers=(("srun",),))])
def test_a_start_that_takes_all_the_time_leaves_a_second(
    packed: PackedRuns | None, name: str, late_s: int, least: int, fakes: Path, tmp_path: Path
) -> None:
    """``timeout`` takes 0 for no limit, and refuses what is below."""
    (fakes / "timeout").write_text(NOTE)
    (fakes / "timeout").chmod(0o755)
    site = a_site(name)
    job = replace(a_job(site, tmp_path / "run"), packed=packed)
    code, calls = run_script(job, site, fakes, SECONDS=str(job.time_s - job.warn_s + late_s))
    assert code == 0
    (call,) = of(calls, "timeout")
    left_s = int(call.split()[4])
    assert least <= left_s <= max(1, -late_s)


@pytest.mark.parametrize("scheduler", AGAIN)
@pytest.mark.parametrize(("continues", "tries"), [(1, 1), (0, 5)])
def test_a_job_that_is_cancelled_while_its_scheduler_is_away_does_not_come_back(
    scheduler: str, continues: int, tries: int, fakes: Path, tmp_path: Path
) -> None:
    """SIGTERM ends the pause. The script asks anew, since that of a preemption must not keep it from trying again."""
    for name in ("scontrol", "qsub", "bsub", "flux"):
        refuses = '[ "$1" = run ] || [ "$1" = getattr ] || [ "$1" = job ] || exit 1\n'
        text = (fakes / name).read_text()
        (fakes / name).write_text(text.replace(NOTE, NOTE + refuses))
    (fakes / "sleep").write_text(NOTE + '[ "$1" != 5 ] || { kill -TERM "$SCRIPT"; kill -TERM $$; }\n')
    site = a_site(scheduler)
    answers = {"TRAIN": "138", "INTERRUPTED": "0", "CANCELLED": str(continues)}
    code, calls = run_script(a_job(site, tmp_path / "run"), site, fakes, **answers)
    assert code == 138
    assert len(of(calls, AGAIN[scheduler].replace("=3", "=2"))) == tries, calls
    asked = [call for call in calls if call.startswith("hpcbench jobs --interrupted --")]
    ends = f"--hold {tmp_path}/notes.hold {tmp_path}/run"
    assert asked == [f"hpcbench jobs --interrupted {ends}", f"hpcbench jobs --interrupted --cancelled {ends}"]


def test_the_signal_of_lsf_at_the_time_limit_neither_ends_the_run_nor_keeps_it_from_coming_back(
    fakes: Path, tmp_path: Path
) -> None:
    """LSF sends SIGUSR2 at the limit (``bsub -W``), and kills ten minutes later."""
    text = (fakes / "hpcbench").read_text()
    limit = '[ "$1" != train ] || { kill -USR2 "$SCRIPT"; kill -USR2 $$; echo "hpcbench trained on" >> "$NOTES"; }\n'
    (fakes / "hpcbench").write_text(text.replace('[ "$1" != train ] || exit', f'{limit}[ "$1" != train ] || exit'))
    job = a_job(a_site("lsf"), tmp_path / "run", attempts=2)
    code, calls = run_script(job, a_site("lsf"), fakes, TRAIN="138", INTERRUPTED="0")
    assert code == 138
    assert "hpcbench trained on" in calls
    assert of(calls, "hpcbench stage --clean")
    assert AGAIN["lsf"] in calls


def test_a_job_that_bkill_ends_before_its_second_signal_does_not_come_back(fakes: Path, tmp_path: Path) -> None:
    """It sends SIGINT first, and SIGTERM ten seconds later."""
    text = (fakes / "hpcbench").read_text()
    (fakes / "hpcbench").write_text(text.replace('kill -TERM "$SCRIPT"', 'kill -INT "$SCRIPT"'))
    site = a_site("lsf")
    code, calls = run_script(a_job(site, tmp_path / "run"), site, fakes, TRAIN="143", CANCEL="yes", INTERRUPTED="0")
    assert code == 143
    assert f"hpcbench jobs --interrupted --cancelled --hold {tmp_path}/notes.hold {tmp_path}/run" in calls
    assert AGAIN["lsf"] not in calls


@pytest.mark.parametrize(("seconds", "limit"), [(300, False), (601, True)])
def test_the_sighup_of_flux_is_what_sigterm_is_elsewhere(
    seconds: int, limit: bool, fakes: Path, tmp_path: Path
) -> None:
    """Its broker sends it to the script of a job that is cancelled, or has reached its time limit."""
    (fakes / "timeout").write_text(NOTE + 'shift 4\nexec "$@"\n')
    (fakes / "timeout").chmod(0o755)
    text = (fakes / "hpcbench").read_text()
    (fakes / "hpcbench").write_text(text.replace('kill -TERM "$SCRIPT"', 'kill -HUP "$SCRIPT"'))
    site = a_site("flux")
    answers = {"TRAIN": "143", "CANCEL": "yes", "INTERRUPTED": "0", "CANCELLED": "1"}
    code, calls = run_script(a_job(site, tmp_path / "run"), site, fakes, SECONDS=str(seconds), **answers)
    assert code == 143
    option = "" if limit else "--cancelled "
    assert f"hpcbench jobs --interrupted {option}--hold {tmp_path}/notes.hold {tmp_path}/run" in calls
    assert (AGAIN["flux"].replace("=3", "=2") in calls) is limit


@pytest.mark.parametrize("launcher", ["openmpi", "mpich"])
@pytest.mark.parametrize("packed", [None, PackedRuns({}, 1)])
def test_ranks_that_srun_does_not_start_are_warned_by_the_script(
    packed: PackedRuns | None, launcher: str, fakes: Path, tmp_path: Path
) -> None:
    """Slurm sends ``--signal`` to steps, and not to what ``mpirun`` starts from the script."""
    (fakes / "timeout").write_text(NOTE)
    (fakes / "timeout").chmod(0o755)
    site = a_site("slurm", launcher=launcher)
    job = replace(a_job(site, tmp_path / "run"), packed=packed)
    code, calls = run_script(job, site, fakes)
    assert code == 0
    (call,) = of(calls, "timeout --foreground --signal=USR1 --preserve-status")
    assert 470 <= int(call.split()[4]) <= 480
    assert "--signal=USR1@" not in (tmp_path / "run" / "job.sh").read_text()
