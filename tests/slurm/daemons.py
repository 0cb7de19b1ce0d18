"""A private Slurm with four nodes on this machine: several slurmd daemons that MPI sees as nodes of their own."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.parallel.spawn import reserve_port
from tests.slurm.keeper import kill_all

NODES = ("node1", "node2", "node3", "node4")
KEEPER = Path(__file__).with_name("keeper.py")
NODE_VARIABLE = "HPCBENCH_TEST_NODE"
"""Of a node's daemon and, by it, of its job steps."""

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
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=batch Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=OFF
PartitionName=four Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=OFF
PartitionName=grace Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace_s}
PartitionName=no-grace Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=1000 State=UNKNOWN"
GRACE_S = 90
"""Between the signal and the end of a job of the partition ``grace``; one that ends earlier is not waited for."""


@dataclass(frozen=True)
class Slurm:
    """A Slurm that answers to the commands below, and the folder of its logs.

    Partitions: ``batch`` of two nodes, the default; ``four`` of all; ``urgent``, whose jobs take the nodes of those in
    ``grace`` and ``no-grace``.
    """

    scratch: Path
    environ: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By the name of the node; ``controller`` is the controller's."""

    def run(self, *words: object, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm, such as srun, to its end; its output is kept."""
        command = [str(word) for word in words]
        return subprocess.run(
            command, env=self.environ, cwd=self.scratch, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def idle_nodes(self) -> int:
        """Nodes that wait for work."""
        shown = self.run("sinfo", "--noheader", "--Node", "--partition=four", "--states=idle", "--format=%N").stdout
        return shown.count("node")

    def cancel_everything(self) -> None:
        """End the jobs that a failed test has left, whose processes would outlive the daemons."""
        self.run("scancel", "--full", f"--user={getpass.getuser()}")
        deadline = time.monotonic() + 30
        while self.run("squeue", "--noheader").stdout and time.monotonic() < deadline:
            time.sleep(0.5)

    def start(self, name: str) -> None:
        """Start the daemon of a node, or the controller."""
        command = ["slurmctld", "-D"] if name == "controller" else ["slurmd", "-D", "-N", name]
        self.daemons[name] = subprocess.Popen(
            command, env=self.environ | {NODE_VARIABLE: name}, cwd=self.scratch, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip

    def stop(self, name: str) -> None:
        """End one daemon, as a service is stopped; its jobs go on."""
        process = self.daemons.pop(name, None)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill_controller(self, job: str) -> None:
        """Kill the controller once it has written down that a job runs, which it does some seconds after each change.

        Killed before, it takes the job for one that waits when it is started again.
        """
        changed, state = time.time(), self.scratch / "state" / "job_state"
        self.run("scontrol", "update", f"JobId={job}", "AdminComment=runs")
        wait_for(lambda: state.exists() and state.stat().st_mtime > changed, "the controller does not save its state")
        self.daemons["controller"].kill()

    def kill_node(self, name: str) -> None:
        """Let a node die: its daemon and all that runs on it are gone at once, and the controller knows that it is."""
        configuration = self.environ["SLURM_CONF"]
        process = self.daemons.pop(name)
        process.kill()
        process.wait()
        kill_all(SLURM_CONF=configuration, **{NODE_VARIABLE: name})
        kill_all(SLURM_CONF=configuration, SLURMD_NODENAME=name)
        self.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=died")

    def repair(self) -> None:
        """Start what a test has stopped, end what it has left, and wait until all nodes are idle."""
        for name in ("controller", *NODES):
            if name not in self.daemons or self.daemons[name].poll() is not None:
                self.start(name)
        wait_for(lambda: self.run("scontrol", "ping").returncode == 0, "the controller does not answer")
        self.cancel_everything()
        # Two steps: a node that is not down takes no RESUME, and says so.
        for name in NODES:
            self.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
        wait_for(lambda: self.idle_nodes() == len(NODES), "not all nodes come back")


def wait_for(condition: Callable[[], bool], otherwise: str, limit_s: float = 90, pause_s: float = 0.3) -> None:
    """Wait until a condition holds; raises ``AssertionError`` if it does not within ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(pause_s)


def start_slurm(scratch: Path, daemons: contextlib.ExitStack) -> Slurm:
    """Start the controller and all nodes, and wait until they are idle. Raises ``AssertionError`` if they are not."""
    (scratch / "state").mkdir()
    # MPICH names its shared memory by the job's number: jobs of two Slurms at once must not have the same.
    first_job = 1 + secrets.randbelow(1_000_000) * 50
    ports = [reserve_port() for _ in ("controller", *NODES)]
    host, cores = socket.gethostname().split(".")[0], os.cpu_count() or 1
    lines = [
        NODE.format(name=name, host=host, port=port, cores=cores) for name, port in zip(NODES, ports[1:], strict=True)
    ]
    text = CONFIGURATION.format(
        scratch=scratch, first_job=first_job, ports=ports, nodes="\n".join(lines), grace_s=GRACE_S
    )
    configuration = scratch / "slurm.conf"
    configuration.write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI_", "MPI_"))}
    environ = {**kept, "SLURM_CONF": str(configuration), "PATH": search_path(), "OMP_NUM_THREADS": "1"}
    keep(daemons, str(configuration))
    slurm = Slurm(scratch, environ)
    for name in ("controller", *NODES):
        slurm.start(name)
        daemons.callback(slurm.stop, name)
    daemons.callback(slurm.cancel_everything)
    try:
        wait_for(lambda: slurm.idle_nodes() == len(NODES), "Slurm does not start here")
    except AssertionError as error:
        raise AssertionError(f"{error}: {log_tail(scratch)}") from None
    return slurm


def keep(daemons: contextlib.ExitStack, *words: str) -> None:
    """Start a keeper, which does its work when this process has ended, or earlier at the end of ``daemons``."""
    keeper = subprocess.Popen(
        [sys.executable, str(KEEPER), *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert keeper.stdin is not None
    daemons.callback(keeper.stdin.close)


def log_tail(scratch: Path) -> str:
    """The last words of the daemons' logs."""
    return " | ".join(path.read_text().splitlines()[-1] for path in scratch.glob("*.log") if path.stat().st_size)


def search_path() -> str:
    """Where the commands are: Python's own folder first, for mpiexec, and the system's folders for daemons."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
