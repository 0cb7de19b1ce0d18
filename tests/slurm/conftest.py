"""A private Slurm with two nodes on this machine: several slurmd daemons that MPI sees as nodes of their own."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcbench.cli.main import main

SITE = """\
title: two nodes on one machine
scheduler: slurm
launcher: srun
mpi: {mpi}
node: {{cores: 1, memory_gib: 1}}
local_path: {local}/{{node}}
"""
NEEDED = ("slurmctld", "slurmd", "srun", "sbatch", "sinfo", "munged", "munge")
MUNGE_SOCKET = Path("/run/munge/munge.socket.2")

CONFIGURATION = """\
ClusterName=local
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/munge
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldPort={ports[0]}
FirstJobId={first_job}
SlurmUser=root
SlurmdUser=root
SlurmctldPidFile={scratch}/ctld.pid
SlurmdPidFile={scratch}/%n.pid
SlurmdSpoolDir={scratch}/spool.%n
StateSaveLocation={scratch}/state
SlurmctldLogFile={scratch}/ctld.log
SlurmdLogFile={scratch}/%n.log
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cores} RealMemory=1000 State=UNKNOWN
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cores} RealMemory=1000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A Slurm that answers to the commands below, and the folder of its logs."""

    scratch: Path
    environ: dict[str, str]

    def run(self, *words: object, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm, such as srun, to its end; its output is kept."""
        command = [str(word) for word in words]
        return subprocess.run(
            command, env=self.environ, cwd=self.scratch, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def idle_nodes(self) -> int:
        """Nodes that wait for work."""
        return self.run("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").stdout.count("node")

    def cancel_everything(self) -> None:
        """End the jobs that a failed test has left, whose processes would outlive the daemons."""
        self.run("scancel", "--full", f"--user={getpass.getuser()}")
        deadline = time.monotonic() + 30
        while self.run("squeue", "--noheader").stdout and time.monotonic() < deadline:
            time.sleep(0.5)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Two nodes, up and idle; only the daemons started here are stopped at the end."""
    if missing := [name for name in NEEDED if shutil.which(name, path=search_path()) is None]:
        pytest.skip(f"needs {', '.join(missing)} (Debian and Ubuntu: packages slurm-wlm and munge)")
    if os.geteuid() != 0:
        pytest.skip("needs to be root, to start daemons of Slurm")
    scratch = tmp_path_factory.mktemp("slurm")
    # Test processes beside this one share the munge service: who started it stops it when nobody needs it any more.
    with locked("munge-in-use", fcntl.LOCK_SH) as use, contextlib.ExitStack() as daemons:
        daemons.callback(fcntl.flock, use, fcntl.LOCK_UN)
        with locked("munge-start", fcntl.LOCK_EX):
            start_munge(daemons, use)
        yield start_slurm(scratch, daemons)


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
    """A folder of sites of one's own: with and without MPI."""
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, mpi in (("two-nodes", "pmi2"), ("two-nodes-no-mpi", "none")):
        (folder / f"{name}.yaml").write_text(SITE.format(mpi=mpi, local=tmp_path / "local"))
    slurm.environ["HPCBENCH_SITES"] = str(folder)
    return folder


@contextlib.contextmanager
def locked(name: str, kind: int) -> Iterator[int]:
    """Hold a lock that all test processes of this machine know."""
    descriptor = os.open(Path(tempfile.gettempdir()) / f"hpcbench-tests-{name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, kind)
        yield descriptor
    finally:
        os.close(descriptor)


def start_munge(daemons: contextlib.ExitStack, use: int) -> None:
    """Start the authentication service unless one is running; the lock ``use`` is held by all who need it."""
    if authenticates():
        return
    MUNGE_SOCKET.parent.mkdir(exist_ok=True)
    shutil.chown(MUNGE_SOCKET.parent, "munge", "munge")
    service = subprocess.Popen(["munged", "--foreground"], user="munge", group="munge", extra_groups=[],
                               env={"PATH": search_path()}, stderr=subprocess.DEVNULL)  # fmt: skip
    daemons.callback(stop, service.pid, service)
    daemons.callback(fcntl.flock, use, fcntl.LOCK_EX)  # called first: waits until no other process uses the service
    deadline = time.monotonic() + 15
    while not authenticates():
        if time.monotonic() > deadline or service.poll() is not None:
            pytest.skip("munged does not start here (its key /etc/munge/munge.key must belong to the user munge)")
        time.sleep(0.2)


def authenticates() -> bool:
    """Whether a munge service answers."""
    return subprocess.run(["munge", "--no-input"], capture_output=True, check=False).returncode == 0


def start_slurm(scratch: Path, daemons: contextlib.ExitStack) -> Slurm:
    """Start the controller and both nodes, and wait until they are idle."""
    (scratch / "state").mkdir()
    # MPICH names its shared memory by the job's number: jobs of two Slurms at once must not have the same.
    first_job = 1 + secrets.randbelow(1_000_000) * 50
    text = CONFIGURATION.format(
        scratch=scratch,
        first_job=first_job,
        ports=free_ports(3),
        host=socket.gethostname().split(".")[0],
        cores=os.cpu_count() or 1,
    )
    (scratch / "slurm.conf").write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI_", "MPI_"))}
    environ = {
        **kept, "SLURM_CONF": str(scratch / "slurm.conf"), "PATH": search_path(), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    slurm = Slurm(scratch, environ)
    for command in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "node1"], ["slurmd", "-D", "-N", "node2"]):
        daemon = subprocess.Popen(
            command, env=environ, cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )
        daemons.callback(stop, daemon.pid, daemon)
    daemons.callback(slurm.cancel_everything)
    deadline = time.monotonic() + 60
    while slurm.idle_nodes() < 2:
        if time.monotonic() > deadline:
            pytest.skip(f"Slurm does not start here: {log_tail(scratch)}")
        time.sleep(0.5)
    return slurm


def stop(pid: int, process: subprocess.Popen[bytes]) -> None:
    """End one daemon by its id."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_tail(scratch: Path) -> str:
    """The last words of the daemons' logs."""
    return " | ".join(path.read_text().splitlines()[-1] for path in scratch.glob("*.log") if path.stat().st_size)


def search_path() -> str:
    """Where the commands are: Python's own folder first, for mpiexec, and the system's folders for daemons."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
