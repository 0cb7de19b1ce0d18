"""``hpcbench study strong|weak|throughput``: its options, its folder, its life, and a real study on this machine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.run_status import read_run_status
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.run_matrix import all_runs
from tests.hpcbench.study.scaling.fake_cluster import WHY, Cluster

pytestmark = pytest.mark.usefixtures("forked_processes")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A site of the name ``cluster``, with Slurm, which answers at once and is asked often."""
    monkeypatch.setattr("hpcbench.study.scaling.study.scheduler_pauses_s", lambda jobs: (0.01, 0.01))
    return Cluster(tmp_path / "cluster", monkeypatch)


def words(small_cosmos: Path, folder: Path, *more: str, mode: str = "strong") -> list[str]:
    """A study of four jobs there."""
    ladder = ["--site", "cluster", "--nodes", "1,2", "--repeats", "2", "--steps", "25", "--time", "30m"]
    return ["study", mode, "cosmoflow", *ladder, "--data.root", str(small_cosmos), "--study-dir", str(folder), *more]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an error."""
    line = capsys.readouterr().err
    assert line.startswith("hpcbench: error: ")
    assert line.count("\n") == 1
    return line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["strong", "cosmoflow"], "the following arguments are required: --study-dir, --nodes; see hpcbench study "
         "strong --help"),
        (["weak", "cosmoflow", "--nodes", "1"], "the following arguments are required: --study-dir; see hpcbench "
         "study weak --help"),
        (["throughput", "cosmoflow", "--nodes", "1", "--study-dir", "s"], "required: --instance-nodes"),
        (["strong", "cosmoflw", "--nodes", "1", "--study-dir", "s"], "did you mean 'cosmoflow'"),
        (["strong", "cosmoflow", "--nodes", "1", "--study-dir", "s", "--site", "polaris", "--steps", "9"],
         "name yours with --account"),
        (["convergence", "cosmoflow", "--nodes", "1,2", "--batch-sizes", "4", "--optimizers", "sgd", "--study-dir",
          "s"], "--nodes (1,2) must be a whole number"),
        (["resume", "nowhere"], "nowhere holds no study.json; give the --study-dir of a study"),
        (["resume", "cosmoflow"], "study resume takes the folder of a study, not the application cosmoflow"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["study", *arguments]) == 2
    assert message in said(capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "message"), [
    ("--jobs 0", "--jobs (0) must be at least 1"), ("--runs 0", "--runs (0) must be at least 1"),
    ("--contingency -0.1", "--contingency (-0.1) must be at least 0"),
    ("--min-efficiency 70", "--min-efficiency (70) must be"),
])  # fmt: skip
def test_numbers_have_a_bound(
    option: str, message: str, small_cosmos: Path, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(small_cosmos, tmp_path / "new", *option.split())) == 2
    assert message in said(capsys)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("mode", "batches", "hours"), [("strong", (4, 4), 3), ("weak", (4, 8), 3),
                                                        ("throughput", (4, 4), 3)])  # fmt: skip
def test_a_dry_run_shows_the_plan_and_leaves_nothing(
    mode: str, batches: tuple[int, int], hours: int, small_cosmos: Path, cluster: Cluster, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    more = ["--instance-nodes", "1"] if mode == "throughput" else []
    assert main(words(small_cosmos, tmp_path / "new", "--dry-run", *more, mode=mode)) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    table = [line.split() for line in shown.partition("\n-----")[2].splitlines()[1:3]]
    assert [(int(row[0]), int(row[5])) for row in table] == list(zip((1, 2), batches, strict=True))
    jobs = "4 jobs for 6 instances" if mode == "throughput" else "4 jobs"
    assert f"{jobs}, at most {hours} node-hours an attempt (0.5 h each)" in shown
    assert not (tmp_path / "new").exists()
    assert not cluster.notes()


ADVICE = ["--contingency", "0.2", "--min-efficiency", "0.95"]


@pytest.mark.slow
def test_the_life_of_a_study(
    small_cosmos: Path, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StudyFolder(tmp_path / "new")
    assert main(words(small_cosmos, folder.path)) == 0
    assert f"status: hpcbench study status {folder.path}" in capsys.readouterr().out
    study = Scaling.from_dict(folder.read() or {}, folder.definition)
    cluster.will(study, n0002_r1="failed")
    assert len(cluster.notes("submit")) == 4
    for counts in ("0 done, 0 running, 4 waiting", "0 done, 4 running, 0 waiting", "3 done, 0 running, 0 waiting"):
        assert main(["study", "status", str(folder.path)]) == 0
        told = capsys.readouterr().out
        assert f"runs: {counts}" in told
    assert f"n0002-r1: {WHY}" in told
    assert main(words(small_cosmos, folder.path)) == 0
    assert f"1 failed; start again: hpcbench study resume {folder.path}" in capsys.readouterr().out
    assert main(["study", "resume", str(folder.path), "--dry-run"]) == 0
    assert len(cluster.notes("submit")) == 4
    assert main(["study", "resume", str(folder.path), "--time", "2h"]) == 2
    assert (
        "hpcbench study resume has no --time; it is an option of hpcbench study convergence, strong, weak, throughput"
        in said(capsys)
    )
    assert main(["study", "resume", str(folder.path), "--wait", "--runs", "9", *ADVICE]) == 0
    shown = capsys.readouterr().out
    assert "[4/4] n0002-r1: 333 samples/s" in shown
    assert "From 1 to 2 nodes throughput grows" in shown
    assert cluster.notes("submit")[4:] == ["n0002-r1"]
    proposal = " ".join((folder.path / "proposal.txt").read_text().split())
    assert proposal.startswith("Cost of 9 runs on each size")
    assert "include 20 % of contingency" in proposal
    assert "below 95 % a size is not recommended" in proposal
    copy = tmp_path / "copy"
    assert main(["study", "collect", str(folder.path), "--out", str(copy)]) == 0
    assert capsys.readouterr().out == f"{copy}: 4 runs\n"
    assert main(["study", "report", str(copy)]) == 0
    named = folder.table.read_text()
    assert " on nid0" in named
    assert named.replace(" on nid0", " on node 0") in capsys.readouterr().out, "a copy has no names of nodes"
    assert main(["study", "collect", str(folder.path)]) == 2
    assert "the following arguments are required: --out; see hpcbench study collect --help" in said(capsys)


def test_a_study_grows_into_what_its_dataset_allows(
    small_cosmos: Path, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def weak(*ladder: str) -> int:
        return main(words(small_cosmos, tmp_path / "new", "--repeats", "1", *ladder, mode="weak"))

    assert weak("--nodes", "1", "--vary", "data.train_samples=4") == 0
    assert weak("--nodes", "1,2", "--vary", "data.train_samples=16") == 2
    assert "a global batch of 8 is more than the 4 training samples" in said(capsys), "where the two meet"
    assert weak("--nodes", "1", "--vary", "data.train_samples=16") == 0
    assert cluster.notes("submit") == ["n0001-train_samples_4-r1", "n0001-train_samples_16-r1"]


def test_what_a_queue_has_no_room_for_is_told_and_resumed(
    small_cosmos: Path, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, folder = cluster.folder / "cluster.yaml", tmp_path / "new"
    profile.write_text(profile.read_text() + "queue: debug\nmost_jobs: 1\n")
    left = "not submitted yet: {} runs; when others have ended: hpcbench study resume {}"
    assert main(words(small_cosmos, folder, "--queue", "debug")) == 0
    assert left.format(3, f"{folder}\n") in capsys.readouterr().out
    assert len(cluster.notes("submit")) == 1
    assert main(words(small_cosmos, folder, "--queue", "debug", "--jobs", "2")) == 0
    assert left.format(2, f"{folder} --jobs 2\n") in capsys.readouterr().out
    assert main(words(small_cosmos, tmp_path / "other", "--queue", "prod")) == 0
    assert "not submitted yet" not in capsys.readouterr().out
    assert len(cluster.notes("submit")) == 2 + 4, "the figure is for the queue of the profile"


def test_a_scheduler_that_is_not_there_leaves_no_folder(
    small_cosmos: Path,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.limit(0)
    assert main(words(small_cosmos, tmp_path / "new")) == 2
    assert "sbatch refused the job: sbatch: error: Batch job submission failed: too many jobs; change the job" in said(
        capsys
    )
    monkeypatch.setenv("PATH", "")
    assert main(words(small_cosmos, tmp_path / "new")) == 2
    assert "'sbatch' is not on PATH; submit on a login node" in said(capsys)
    assert not (tmp_path / "new").exists()


def test_the_folder_of_another_study_is_refused(
    small_cosmos: Path, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write({"kind": "convergence"})
        assert main(words(small_cosmos, folder.path)) == 2
        assert "is held by pid" in said(capsys)
    for more in ([], ["--dry-run"]):
        assert main(words(small_cosmos, folder.path, *more)) == 2
        assert "its kind is convergence, this one's strong; give another --study-dir" in said(capsys)
    folder.definition.unlink()
    cluster.limit(1)
    assert main(words(small_cosmos, folder.path)) == 2
    capsys.readouterr()
    assert main(words(small_cosmos, folder.path, mode="weak")) == 2
    assert "its kind is strong, this one's weak" in said(capsys)
    assert main(words(small_cosmos, folder.path, "--steps", "9")) == 2
    assert "its steps is 25, this one's 9" in said(capsys)
    assert main(["study", "report", str(folder.path), "--repeats", "1"]) == 2
    assert "hpcbench study report has no --repeats; it is an option of hpcbench study strong" in said(capsys)
    assert main(["study", "report", str(folder.path)]) == 2
    assert "has no run that is done" in said(capsys)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, one for each simulated node")
def test_a_real_study_is_interrupted_and_goes_on(small_cosmos: Path, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    command = ["study", "strong", "cosmoflow", "--nodes", "1,2", "--repeats", "1", "--steps", "10"]
    command += ["--data.root", str(small_cosmos), "--study-dir", str(folder.path)]
    first = subprocess.Popen(
        [sys.executable, "-m", "hpcbench", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log, deadline = folder.run("n0002-r1") / "mllog.txt", time.monotonic() + 120
    while not log.exists():
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process = json.loads((folder.run("n0002-r1") / "job.json").read_text())["job_id"]
    first.send_signal(signal.SIGINT)
    _, error = first.communicate(timeout=120)
    assert (first.returncode, error) == (
        130,
        "hpcbench: aborted: signal SIGINT; the same command continues from here\n",
    )
    left = subprocess.run(["ps", "-o", "stat=", "--sid", process], capture_output=True, text=True, check=False)
    assert all(state.startswith("Z") for state in left.stdout.split()), "nothing of the run goes on"
    assert [path.name for path in folder.runs.iterdir()] == ["n0001-r1"]
    done = subprocess.run([sys.executable, "-m", "hpcbench", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line[:15] for line in done.stdout.splitlines() if line.startswith("[")] == ["[2/2] n0002-r1:"]
    assert "From 1 to 2 nodes throughput" in done.stdout
    study = Scaling.from_dict(folder.read() or {}, folder.definition)
    assert study.commands == (f"hpcbench {shlex.join(command)}",)
    summaries = [read_run_status(folder.run(run.name)).summary for run in all_runs(study)]
    assert [(s.simulated_nodes, s.global_batch_size, s.local_batch_size) for s in summaries if s is not None] == [
        (None, 4, 4), (2, 4, 2),
    ]  # fmt: skip


def test_the_jobs_of_a_study_are_cancelled(
    cluster: Cluster, small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StudyFolder(tmp_path / "study")
    assert main(words(small_cosmos, folder.path)) == 0
    scancel = cluster.folder / "bin" / "scancel"
    scancel.write_text(f'#!/bin/bash\necho "$*" >> {cluster.folder}/cancelled\n')
    scancel.chmod(0o755)
    capsys.readouterr()
    assert main(["study", "cancel", str(folder.path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "n0002-r1: job 2 is being cancelled"
    assert (cluster.folder / "cancelled").read_text().split() == ["1", "2", "3", "4"]
    scancel.write_text("#!/bin/bash\necho no >&2\nexit 1\n")
    assert main(["study", "cancel", str(folder.path)]) == 2
    assert "n0001-r1: scancel did not cancel job 1: no" in capsys.readouterr().out
    assert main(["study", "cancel", str(tmp_path / "none")]) == 2
    assert "holds no study.json" in said(capsys)
