"""A study brought forward, with programs in place of a scheduler's: what is submitted, waited for, kept and refused."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.holds import Hold, write_hold
from hpcbench.batch.packed_runs import packed_runs
from hpcbench.batch.site import read_site
from hpcbench.exits import Aborted
from hpcbench.study import job_runs
from hpcbench.study.folder import StudyFolder
from hpcbench.study.job_runs import set_aside
from hpcbench.study.run_status import RunStatus
from hpcbench.study.runner import ExecutionOptions
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.run_matrix import all_runs
from hpcbench.study.scaling.study import make_runs, status
from hpcbench.study.study_jobs import study_statuses
from staging.errors import InputError
from tests.hpcbench.study.scaling.fake_cluster import ANSWERS, WHY, Cluster

STUDY = Scaling(
    mode="strong", application="cosmoflow", preset="smoke", site="cluster", nodes=(1, 2), ranks_per_node=1,
    local_batch_size=4, global_batch_size=4, cores_per_rank=4, repeats=2, steps=25, settings={"data.root": "set"},
    stages=False,
)  # fmt: skip
MANY = replace(STUDY, mode="throughput", instance_nodes=1, nodes=(2,), global_batch_size=None, repeats=3)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Slurm, or what a test asks for."""
    return Cluster(tmp_path / "cluster", monkeypatch, getattr(request, "param", "slurm"))


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """Of a new study."""
    folder = StudyFolder(tmp_path / "study")
    folder.runs.mkdir(parents=True)
    return folder


def bring(study: Scaling, cluster: Cluster, folder: StudyFolder, lines: list[str] | None = None,
          wait: bool = True, **options: Any) -> dict[str, RunStatus]:  # fmt: skip
    """Bring the study forward without waiting for long."""
    speak = (lines if lines is not None else []).append
    execution = ExecutionOptions(wait=wait, **options)
    return make_runs(study, folder, execution, site=cluster.site, pauses_s=(0.001, 0.001), speak=speak)


def look(folder: StudyFolder, name: str) -> RunStatus:
    """The status of one run."""
    return study_statuses(folder, [name])[name]


def worked(path: Path, job: int, nodes: int, hours: float) -> None:
    """An attempt of a job in this folder that ended after so many hours."""
    name = write_hold(path, Hold(str(job), 1, "slurm", "", nodes, 0, "node1", 1.7e9), 1)
    name.with_suffix(".end").write_text(f"{1.7e9 + 3600 * hours:.0f} 1\n")


def states(runs: dict[str, RunStatus]) -> set[str]:
    return {"done" if each.done else each.status for each in runs.values()}


@pytest.mark.parametrize("cluster", ANSWERS, indirect=True)
def test_the_life_of_a_study(cluster: Cluster, folder: StudyFolder) -> None:
    more = replace(STUDY, repeats=3)
    cluster.will(more, n0002_r1="failed")
    lines: list[str] = []
    assert states(bring(STUDY, cluster, folder, lines, wait=False)) == {"waiting"}
    names = ["n0001-r1", "n0002-r1", "n0001-r2", "n0002-r2"]
    assert cluster.notes("submit") == names
    assert lines[1].startswith("n0002-r1: job ")
    assert lines[1].endswith(", 2 nodes, at most 2 node-hours an attempt")
    for end in ("0 done, 0 running, 4 waiting, 0 failed, 0 left", "0 done, 4 running, 0 waiting, 0 failed, 0 left",
                "3 done, 0 running, 0 waiting, 1 failed, 0 left"):  # fmt: skip
        told, code = status(STUDY, folder)
        assert code == 0
        assert f"runs: {end}" in told
        assert "node-hours" not in told, "no script has begun"
    assert told.endswith(f"\nn0002-r1: {WHY}\nstart them again: hpcbench study resume {folder.path}")
    assert states(bring(STUDY, cluster, folder, wait=False)) == {"done", "failed"}
    assert cluster.notes("submit") == names, "what has failed is not run again unasked"
    worked(folder.run("n0001-r1"), 1, nodes=1, hours=1)
    worked(folder.run("n0002-r1"), 2, nodes=2, hours=1)
    assert "\nnode-hours used: 3.00, in 2 attempts of 2 jobs\n" in status(STUDY, folder)[0]
    lines.clear()
    assert states(bring(more, cluster, folder, lines, retry=True)) == {"done"}
    assert cluster.notes("submit")[4:] == ["n0002-r1", "n0001-r3", "n0002-r3"]
    assert (folder.runs / "n0002-r1.failed-1").joinpath("job.json").exists()
    assert WHY in (folder.runs / "n0002-r1.failed-1" / cluster.log).read_text()
    assert lines[-1].startswith("[6/6] n000")
    assert lines[-1].endswith(" (0 left)")
    assert "[4/6] n0002-r1: 333 samples/s" in "\n".join(lines)
    worked(folder.run("n0002-r1"), 5, nodes=2, hours=0.5)
    assert "\nnode-hours used: 4.00, in 3 attempts of 3 jobs\n" in f"{status(more, folder)[0]}\n"


def test_jobs_of_an_earlier_command_are_waited_for(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(STUDY)
    bring(STUDY, cluster, folder, wait=False)
    lines: list[str] = []
    assert states(bring(STUDY, cluster, folder, lines)) == {"done"}
    assert lines[0] == "[1/4] n0001-r1: 286 samples/s (3 left)", "how long it took is not known"


def test_a_reason_is_the_scheduler_s_where_it_ended_the_job(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(STUDY, n0001_r1="time limit")
    runs = bring(STUDY, cluster, folder)
    assert (runs["n0001-r1"].status, runs["n0001-r1"].reason) == ("failed", "time limit: TimeLimit")


def test_what_is_damaged_has_failed(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(STUDY)
    bring(STUDY, cluster, folder)
    (folder.run("n0001-r1") / "summary.json").write_text("{", encoding="utf-8")
    (folder.run("n0001-r2") / "job.json").write_text("{", encoding="utf-8")
    assert "is not JSON" in look(folder, "n0001-r1").reason
    assert "is damaged" in look(folder, "n0001-r2").reason
    assert look(folder, "n0002-r1").done
    assert look(folder, "none").status == "absent"


def test_no_more_groups_are_queued_than_asked_for(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(STUDY)
    assert states(bring(STUDY, cluster, folder, at_once=2)) == {"done"}
    queued = [cluster.notes()[:number] for number in range(len(cluster.notes()) + 1)]
    counts = [sum(1 if line.startswith("submit") else -1 for line in lines) for lines in queued]
    assert max(counts) == 2
    assert counts[-1] == 0, "with wait it ends when all have"
    assert len(cluster.notes("end")) == 4


def test_a_profile_says_how_many_jobs_are_queued_where_the_command_does_not(
    cluster: Cluster, folder: StudyFolder
) -> None:
    profile = cluster.folder / "cluster.yaml"
    profile.write_text(profile.read_text() + "most_jobs: 2\n")
    cluster.site = read_site(profile)
    cluster.will(STUDY)
    bring(STUDY, cluster, folder, wait=False)
    assert len(cluster.notes("submit")) == 2
    bring(STUDY, cluster, folder, wait=False)
    assert len(cluster.notes("submit")) == 2, "both are still in the queue"
    other = StudyFolder(folder.path.with_name("other"))
    other.runs.mkdir(parents=True)
    bring(STUDY, cluster, other, wait=False, at_once=3)
    assert len(cluster.notes("submit")) == 2 + 3


@pytest.mark.parametrize("cluster", ["pbs"], indirect=True)
def test_instances_of_a_repeat_are_submitted_together(cluster: Cluster, folder: StudyFolder) -> None:
    """Where the launcher cannot share out an allocation, each is a job."""
    cluster.will(MANY)
    bring(MANY, cluster, folder, at_once=1)
    for number in range(3):
        four = cluster.notes()[4 * number : 4 * number + 4]
        assert [line.partition(" ")[0] for line in four] == ["submit", "submit", "end", "end"]
        assert {line.rpartition(" ")[2] for line in four} == {f"n0002-r{number + 1}-i{i:03}" for i in (1, 2)}


@pytest.mark.parametrize("cluster", ["pbs"], indirect=True)
def test_a_queue_that_is_full_ends_the_command_and_the_next_goes_on(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(MANY)
    cluster.limit(3)
    with pytest.raises(InputError, match="qsub refused the job: qsub: Job rejected: too many"):
        bring(MANY, cluster, folder, wait=False)
    assert look(folder, "n0002-r2-i002").status == "absent"
    cluster.limit(1000)
    bring(MANY, cluster, folder, wait=False, at_once=2)
    assert cluster.notes("submit")[-1] == "n0002-r2-i002", "the other instance of a group has room"
    assert len(cluster.notes("submit")) == 4


@pytest.mark.parametrize("cluster", ["pbs"], indirect=True)
def test_a_repeat_whose_instance_failed_is_made_again_as_a_whole(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(MANY, n0002_r2_i002="failed")
    bring(MANY, cluster, folder)
    assert states(bring(MANY, cluster, folder)) == {"done", "failed"}, "nothing is made again unasked"
    before = cluster.notes("submit")
    assert states(bring(MANY, cluster, folder, retry=True)) == {"done"}
    assert sorted(cluster.notes("submit")[len(before) :]) == ["n0002-r2-i001", "n0002-r2-i002"]
    kept = {path.name for path in folder.runs.iterdir()} - {run.name for run in all_runs(MANY)}
    assert kept == {"n0002-r2-i001.aside-1", "n0002-r2-i002.failed-1"}
    assert states(bring(MANY, cluster, folder, retry=True)) == {"done"}
    assert len(cluster.notes("submit")) == len(before) + 2, "once"


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["slurm", "flux"], indirect=True)
def test_instances_of_a_repeat_are_steps_of_one_job(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(MANY, n0002_r2_i002="failed")
    cluster.will_pack(MANY)
    lines: list[str] = []
    assert states(bring(MANY, cluster, folder, lines, at_once=1)) == {"done", "failed"}
    assert [line.partition(" ")[0] for line in cluster.notes()] == ["submit", "end"] * 3, "one job after the other"
    assert lines[0].startswith("jobs/0001: job ")
    assert lines[0].endswith(", 2 runs, 2 nodes, at most 2 node-hours an attempt")
    script = (folder.jobs / "0002" / "job.sh").read_text()
    assert 'study execute "$run" || status=$?' in script
    assert "launch=(" not in script
    packed = packed_runs(folder.jobs / "0002")
    assert packed is not None
    assert list(packed.words) == ["n0002-r2-i001", "n0002-r2-i002"]
    nodes = {"slurm": ["--relative=0", "--relative=1"], "flux": ["--exclusive", "--exclusive"]}[cluster.site.scheduler]
    assert [words[-1] for words in packed.launchers] == nodes
    assert all("--nodes=1" in words for words in packed.launchers)
    assert packed.further_words == ("--check-job", "ranks=1,nodes=1,cores=4,gpus=0")
    assert states(bring(MANY, cluster, folder)) == {"done", "failed"}, "nothing is made again unasked"
    assert len(cluster.notes("submit")) == 3
    assert states(bring(MANY, cluster, folder, retry=True)) == {"done"}
    again = packed_runs(folder.jobs / "0004")
    assert again is not None
    assert again.words == packed.words, "the repeat as a whole"
    for job, hours in enumerate((1, 2, 1, 0.5), start=1):
        worked(folder.jobs / f"{job:04}", job, nodes=2, hours=hours)
    assert "\nnode-hours used: 9.00, in 4 attempts of 4 jobs" in status(MANY, folder)[0], "the job of what failed, too"
    kept = {path.name for path in folder.runs.iterdir()} - {run.name for run in all_runs(MANY)}
    assert kept == {"n0002-r2-i001.aside-1", "n0002-r2-i002.failed-1"}
    record = folder.jobs / "0004" / "job.json"
    record.write_text("", encoding="utf-8")
    told, code = status(MANY, folder)
    assert (code, f"{record}: is damaged" in told) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("retry", [True, False])
@pytest.mark.parametrize("cluster", ["pbs", "slurm"], indirect=True)
def test_a_repeat_that_a_killed_command_has_torn_is_made_again_as_a_whole(
    cluster: Cluster, folder: StudyFolder, retry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the folder of the failed instance was set aside, while the other one still has its result."""
    cluster.will(MANY, n0002_r2_i001="failed")
    if cluster.site.scheduler == "slurm":
        cluster.will_pack(MANY)
    bring(MANY, cluster, folder)
    before = cluster.notes("submit")

    def killed(path: Path, why: str) -> Path:
        set_aside(path, why)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(job_runs, "set_aside", killed)
        with pytest.raises(KeyboardInterrupt):
            bring(MANY, cluster, folder, retry=True)
    assert cluster.notes("submit") == before
    assert [look(folder, f"n0002-r2-i00{number}").status for number in (1, 2)] == ["absent", "reached"]
    assert states(bring(MANY, cluster, folder, retry=retry)) == {"done"}
    if cluster.site.scheduler == "slurm":
        made = packed_runs(folder.jobs / "0004")
        assert made is not None
        assert list(made.words) == ["n0002-r2-i001", "n0002-r2-i002"]
    else:
        assert sorted(cluster.notes("submit")[len(before) :]) == ["n0002-r2-i001", "n0002-r2-i002"]


def test_nothing_but_failures_end_a_study(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(STUDY, **{run.name.replace("-", "_"): "failed" for run in all_runs(STUDY)})
    with pytest.raises(InputError) as caught:
        bring(STUDY, cluster, folder, at_once=1)
    log = f"see {folder.run('n0001-r2')}, mend it, then: hpcbench study resume {folder.path}"
    assert str(caught.value) == f"3 runs in a row failed, the last with: {WHY}; {log}"
    assert cluster.notes("submit") == ["n0001-r1", "n0002-r1", "n0001-r2"]


def test_what_failed_stays_in_place_where_its_job_is_refused(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(STUDY, n0001_r1="failed")
    bring(STUDY, cluster, folder)
    cluster.limit(4)
    with pytest.raises(InputError, match="too many jobs"):
        bring(STUDY, cluster, folder, retry=True)
    assert look(folder, "n0001-r1").reason == WHY
    assert {path.name for path in folder.runs.iterdir()} == {run.name for run in all_runs(STUDY)}


def test_jobs_are_left_alone_where_nobody_can_ask_for_them(
    cluster: Cluster, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.will(STUDY)
    bring(STUDY, cluster, folder, wait=False)
    monkeypatch.setenv("PATH", "")
    runs = bring(STUDY, cluster, folder, wait=False, retry=True)
    assert {(each.status, each.reason) for each in runs.values()} == {
        ("unknown", "Slurm cannot be asked: 'squeue' is not on PATH")
    }


def test_a_signal_stops_submitting_and_leaves_the_queue_alone(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(STUDY)
    with pytest.raises(Aborted, match="signal SIGINT; the same command continues from here") as caught:
        make_runs(
            STUDY, folder, ExecutionOptions(), cluster.site, speak=lambda line: os.kill(os.getpid(), signal.SIGINT)
        )
    assert caught.value.exit_code == 130
    assert cluster.notes() == ["submit n0001-r1"]
    assert look(folder, "n0001-r1").status == "waiting"


def test_what_a_run_no_longer_needs_goes(cluster: Cluster, folder: StudyFolder) -> None:
    cluster.will(STUDY)
    (cluster.folder / "ends" / "n0001-r1.1" / "checkpoints").mkdir()
    bring(STUDY, cluster, folder, wait=False)
    for _ in range(3):
        look(folder, "n0001-r1")
    assert (folder.run("n0001-r1") / "checkpoints").exists()
    bring(STUDY, cluster, folder, wait=False)
    assert not (folder.run("n0001-r1") / "checkpoints").exists(), "nobody waited for its end"
