"""The time limit under schedulers that do not warn: ``timeout`` in the script signals the launcher.

That is MPICH's mpiexec under PBS and Flux, and Open MPI's mpirun under LSF. Scheduler and queue are fakes that run the
scripts; ``timeout``, launchers, ranks, staging and training are real. Under PBS and Flux the ranks' processes are
forked, and sleep before each micro-batch.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from tests.fork_server import PAUSE
from tests.hpcbench.batch.executing import Machine
from tests.open_mpi import OpenMpi

pytestmark = [pytest.mark.slow, pytest.mark.mpi]

SITE = "title: any {kind} machine\nscheduler: {kind}\nlauncher: {launcher}\nlocal_path: {local}/${{job_id}}\n"
FLUX_RUN = """\
if [ "$1" = run ]; then
    for word; do case "$word" in --ntasks=*) ranks="${word#*=}" ;; esac; done
    while [ "$1" != -m ]; do python="$1"; shift; done
    exec %s -n "$ranks" "$python" "$@"
fi
"""
"""``flux run`` starts as many ranks, here."""


@pytest.fixture
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mpiexec: str
) -> Iterator[Machine]:
    """A scheduler whose jobs start their ranks by a real launcher; ``sites`` has its profile."""
    launcher = {"pbs": "mpich", "lsf": "openmpi", "flux": "flux"}[request.param]
    if launcher == "openmpi":
        open_mpi: OpenMpi = request.getfixturevalue("open_mpi")
        for name, value in open_mpi.environment.items():
            monkeypatch.setenv(name, value)
    else:  # a process that is forked has the MPI library that the tests have
        request.getfixturevalue("forked_processes")
        monkeypatch.setenv(PAUSE, "0.5")
    made = Machine(request.param, tmp_path, monkeypatch)
    programs = tmp_path / "bin"
    for name in ("srun", "mpirun", "mpiexec"):
        (programs / name).unlink()
    program, real = ("mpirun", open_mpi.mpirun) if launcher == "openmpi" else ("mpiexec", mpiexec)
    (programs / program).write_text(f'#!/bin/bash\nexec {real} "$@"\n')
    (programs / program).chmod(0o755)
    if made.kind == "flux":
        fake = (programs / "flux").read_text().rpartition("fi\n")[2]
        (programs / "flux").write_text(f"#!/bin/bash\n{FLUX_RUN % mpiexec}{fake}")
    (tmp_path / "sites").mkdir()
    text = SITE.format(kind=made.kind, launcher=launcher, local=tmp_path / "local")
    (tmp_path / "sites" / "here.yaml").write_text(text)
    monkeypatch.setenv("HPCBENCH_SITES", str(tmp_path / "sites"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CosmoFlow at the size of the preset ``smoke``."""
    root = tmp_path_factory.mktemp("data")
    words = ["data", "simulate", "cosmoflow", "--preset", "smoke", "--processes", "1", "--out", str(root / "set")]
    assert main(words) == 0
    return root / "set"


@pytest.fixture(scope="module")
def warned_after_s(data: Path, mpiexec: str, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Seconds in which a job has started and trained a while, however busy this machine is."""
    run, began = tmp_path_factory.mktemp("first") / "run", time.monotonic()
    words = [mpiexec, "-n", "2", sys.executable, "-m", "hpcbench", "train", "cosmoflow", "--preset", "smoke"]
    words += ["--data.root", str(data), "--run-dir", str(run), "--train.max_epochs", "1"]
    subprocess.run([*words, "--train.target", "null", "--train.baselines", "false"], check=True)
    return max(25, math.ceil(2.5 * (time.monotonic() - began)))


@pytest.mark.parametrize("machine", ["lsf", "pbs", "flux"], indirect=True)
def test_a_job_meets_its_time_limit_twice_and_then_makes_its_last_epoch(
    machine: Machine, data: Path, warned_after_s: int, tmp_path: Path
) -> None:
    run, settings = tmp_path / "runs" / "job", tmp_path / "settings.yaml"
    write_epochs(settings, 100_000)
    words = ["submit", "cosmoflow", "--site", "here", "--preset", "smoke", "--ranks-per-node", "2"]
    limit = time.strftime("%H:%M:%S", time.gmtime(warned_after_s + 60))
    words += ["--cores-per-rank", "1", "--time", limit, "--warn-s", "60", "--run-dir", str(run)]
    words += ["--data.root", str(data), "--config", str(settings), "--train.baselines", "false"]
    assert main(words) == 0
    deadline = time.monotonic() + 10 * warned_after_s
    while machine.log(run).count("the run was stopped by SIGUSR1; continued") < 2:
        assert time.monotonic() < deadline, machine.log(run)
        time.sleep(0.1)
    write_epochs(settings, len(RunFolder.open(run).read_epochs()["epoch"]) + 2)
    assert machine.ended(run).state == "done", machine.log(run)
    summary, log = RunFolder.open(run).read_summary(), machine.log(run)
    assert (summary.status, summary.cause, summary.world_size, summary.resumed) == ("success", "epochs", 2, 2), log
    assert log.count("hpcbench: aborted: signal SIGUSR1") == 2
    assert [path for path in (tmp_path / "local").rglob("*") if path.is_file()] == []
    record = json.loads((run / "environment.json").read_text())
    assert record["launched_by"] == ("PMIX" if machine.kind == "lsf" else "PMI"), "the launcher that is meant"
    steps = RunFolder.open(run).read_steps()["step"]
    assert steps.tolist() == list(range(1, len(steps) + 1)), "each step once, in order"


def write_epochs(path: Path, epochs: int) -> None:
    """The user's settings, which each attempt of the job reads: no target, and so many epochs."""
    part = path.with_suffix(".part")
    part.write_text(yaml.safe_dump({"train": {"target": None, "max_epochs": epochs}}))
    part.replace(path)
