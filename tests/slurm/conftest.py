"""Four nodes of a real Slurm for all tests of a process, sites that name them, and small datasets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from tests.fork_server import PAUSE
from tests.slurm.daemons import Slurm, keep, search_path, start_slurm, wait_for

SITE = """\
title: {title}
scheduler: slurm
launcher: srun
mpi: {mpi}
queue: {queue}
node: {{cores: {cores}, memory_gib: 1}}
local_path: {local}/{{node}}
"""
NEEDED = ("slurmctld", "slurmd", "srun", "sbatch", "sinfo", "munged", "munge")
MUNGE_SOCKET = Path("/run/munge/munge.socket.2")


def unavailable(reason: str) -> None:
    """Skip; where tests are run for a merge (``CI``) and could start Slurm, fail: nobody would notice a skip there."""
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"CI is set, and tests of Slurm cannot run: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Four nodes, up and idle; only the daemons started here are stopped at the end."""
    if missing := [name for name in NEEDED if shutil.which(name, path=search_path()) is None]:
        unavailable(f"needs {', '.join(missing)} (Debian and Ubuntu: packages slurm-wlm and munge)")
    if os.geteuid() != 0:
        pytest.skip("needs to be root, to start daemons of Slurm")
    scratch = tmp_path_factory.mktemp("slurm")
    # Test processes beside this one share the munge service: it is stopped when nobody needs it any more.
    with locked("munge-in-use", fcntl.LOCK_SH) as use, contextlib.ExitStack() as daemons:
        with locked("munge-start", fcntl.LOCK_EX):
            start_munge(daemons, use)
        try:
            started = start_slurm(scratch, daemons)
        except AssertionError as error:
            unavailable(str(error))
        yield started


@pytest.fixture
def repaired(slurm: Slurm) -> Iterator[Slurm]:
    """The same, for tests that stop daemons of it: whatever they leave, all nodes are idle for those that follow."""
    yield slurm
    slurm.repair()


@pytest.fixture
def slow_steps(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs sleep before each micro-batch, so that few steps last until something happens to them."""
    monkeypatch.setitem(slurm.environ, PAUSE, "0.1")


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both applications at the size of the preset ``smoke``."""
    root = tmp_path_factory.mktemp("data")
    for application in ("cosmoflow", "deepcam"):
        words = ["data", "simulate", application, "--preset", "smoke", "--processes", "1"]
        assert main([*words, "--out", str(root / application)]) == 0
    return root


@pytest.fixture
def sites(tmp_path: Path, slurm: Slurm) -> Path:
    """A folder of sites of one's own: two nodes with and without MPI, and four with two cores each."""
    folder = tmp_path / "sites"
    folder.mkdir()
    local = tmp_path / "local"
    for name, mpi in (("two-nodes", "pmi2"), ("two-nodes-no-mpi", "none")):
        text = SITE.format(title="two nodes on one machine", mpi=mpi, queue="batch", cores=1, local=local)
        (folder / f"{name}.yaml").write_text(text)
    text = SITE.format(title="four nodes on one machine", mpi="pmi2", queue="four", cores=2, local=local)
    (folder / "four-nodes.yaml").write_text(text)
    slurm.environ["HPCBENCH_SITES"] = str(folder)
    return folder


@contextlib.contextmanager
def locked(name: str, kind: int) -> Iterator[Path]:
    """Hold a lock that all test processes of this machine know."""
    path = Path(tempfile.gettempdir()) / f"hpcbench-tests-{name}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, kind)
        yield path
    finally:
        os.close(descriptor)


def start_munge(daemons: contextlib.ExitStack, lock: Path) -> None:
    """Start the authentication service unless one is running; it ends when nobody holds ``lock`` any more."""
    if authenticates():
        return
    MUNGE_SOCKET.parent.mkdir(exist_ok=True)
    shutil.chown(MUNGE_SOCKET.parent, "munge", "munge")
    keep(daemons, "munge", str(lock))
    try:
        wait_for(authenticates, "", 60)
    except AssertionError:
        unavailable("munged does not start here (its key /etc/munge/munge.key must belong to the user munge)")


def authenticates() -> bool:
    """Whether a munge service answers."""
    return subprocess.run(["munge", "--no-input"], capture_output=True, check=False).returncode == 0
