"""Where the ranks of a run meet: a key-value store on rank 0, found without asking the user."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import psutil
from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore, Store

from staging.errors import InputError
from staging.ranks.host_addresses import LOOPBACK, own_addresses, resolve
from staging.ranks.launch import Launch, expand_nodes
from staging.ranks.messages import connect_first
from staging.ranks.mpi import communicator
from staging.ranks.siblings import Siblings

FIRST_SLURM_PORT, FIRST_LOCAL_PORT, PORTS = 10000, 20000, 10000
"""Derived ports lie below the range from which Linux assigns ports itself (32768 and up)."""
TRIED_PORTS = 8
"""From the derived port on, since another run or service of the node may have one of them."""
RUN = "hpcbench/run"
"""The key under which a store at a derived port says whose it is."""
ANSWER_S = 5.0
"""What listens at a derived port and is no store is given up after this."""


def meet(launch: Launch, environ: Mapping[str, str], timeout_s: float) -> Store:
    """A store that all ranks of ``launch`` share. Raises ``InputError`` if they cannot find each other.

    Tries in order: the address that torchrun gives; MPI, which carries rank 0's address to the others; on one node,
    ports derived from the launcher's process id; under Slurm, the first node and ports derived from job and step.
    """
    if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
        served = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        port = _port(environ["MASTER_PORT"])
        store = _open([environ["MASTER_ADDR"]], port, launch.rank == 0 and not served, timeout_s)
        return PrefixStore(f"hpcbench/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    # Only under an MPI launcher: some libraries end the process when they are initialized outside one.
    world = communicator(launch.world_size) if launch.source in ("PMI", "PMIX", "Open MPI") else None
    if world is not None:
        server = None
        offer: tuple[list[str], int] | None = None
        if launch.rank == 0:
            server = _serve(0, timeout_s)
            offer = (own_addresses(launch.local_size == launch.world_size), server.port)
        hosts, port = world.bcast(offer, root=0)
        return server if server is not None else _open(hosts, port, False, timeout_s)
    if launch.local_size == launch.world_size:
        return _open_derived([LOOPBACK], local_ports(), local_run(), launch.rank == 0, timeout_s)
    if "SLURM_JOB_ID" in environ:
        hosts = slurm_addresses(environ)
        return _open_derived(hosts, slurm_ports(environ), slurm_run(environ), launch.rank == 0, timeout_s)
    raise InputError(
        f"{launch.world_size} ranks on {launch.nodes} nodes have no way to meet: mpi4py has no working MPI library of "
        "this launcher; install mpi4py for it, or set MASTER_ADDR and MASTER_PORT to a free port on rank 0's node"
    )


def slurm_addresses(environ: Mapping[str, str]) -> list[str]:
    """The step's first node, then the node that launched it, where these names resolve."""
    nodes = expand_nodes(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", ""))
    names = [*nodes[:1], environ.get("SLURM_LAUNCH_NODE_IPADDR", "")]
    hosts = [name for name in names if name and resolve(name)]
    if not hosts:
        raise InputError(
            f"neither the first node of the Slurm step ('{names[0]}') nor the launching node resolves to an address; "
            "set MASTER_ADDR and MASTER_PORT to a free port on rank 0's node"
        )
    return hosts


def slurm_ports(environ: Mapping[str, str]) -> list[int]:
    """Ports that depend on the job and the step; those of two steps may overlap."""
    job, step = int(environ["SLURM_JOB_ID"]), int(environ.get("SLURM_STEP_ID", "0"))
    return _ports(FIRST_SLURM_PORT, job * 101 + step)


def slurm_run(environ: Mapping[str, str]) -> str:
    """What no two steps have in common: cluster, job, its restarts, step."""
    names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")
    return " ".join(["Slurm", *(environ.get(name, "-") for name in names)])


def local_ports() -> list[int]:
    """Ports that depend on the launcher, which is the parent of all ranks on a node; those of two may overlap."""
    return _ports(FIRST_LOCAL_PORT, os.getppid())


def local_run() -> str:
    """What no two launchers on a node have in common: process id and start, since containers number processes anew."""
    parent = os.getppid()
    try:
        after_name = Path(f"/proc/{parent}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        return f"process {parent} {after_name.split()[19]}"  # starttime, field 22 of proc_pid_stat(5)
    except (OSError, IndexError):
        return f"process {parent}"


def interface_towards(host: str) -> str | None:
    """Name of the network interface that this machine uses to reach ``host``; ``None`` if unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError:
            return None
        address = probe.getsockname()[0]
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return name
    return None


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InputError(f"MASTER_PORT ('{text}') must be a port number, 1 to 65535")
    return int(text)


def _ports(first: int, number: int) -> list[int]:
    lowest = first + number % (PORTS - TRIED_PORTS + 1)
    return [lowest + tried for tried in range(TRIED_PORTS)]


def _serve(port: int, timeout_s: float) -> TCPStore:
    try:
        return TCPStore("0.0.0.0", port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))  # noqa: S104
    except RuntimeError as error:
        raise InputError(
            f"port {port}, where the ranks were to meet, is in use; set MASTER_ADDR and MASTER_PORT to a free one"
        ) from error


def _open(hosts: list[str], port: int, server: bool, timeout_s: float) -> TCPStore:
    """The store at the first of ``hosts`` that answers; ``server`` starts it."""
    if server:
        return _serve(port, timeout_s)
    with connect_first(hosts, port, timeout_s, Siblings().check) as probe:
        host = probe.getpeername()[0]
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def _open_derived(hosts: list[str], ports: Sequence[int], run: str, server: bool, timeout_s: float) -> TCPStore:
    """The store of ``run`` at one of ``ports``, which nobody reserved; ``server`` starts it at the first free one."""
    if server:
        return _serve_first(ports, run, timeout_s)
    deadline, siblings = time.monotonic() + timeout_s, Siblings()
    while time.monotonic() < deadline:
        siblings.check()
        for host in hosts:
            for port in ports:
                store = _store_of(run, host, port, timeout_s)
                if store is not None:
                    return store
        time.sleep(0.1)
    raise InputError(
        f"no answer from rank 0 at {' or '.join(hosts)}, ports {ports[0]} to {ports[-1]}, within {timeout_s:g} s; see "
        "that rank 0 runs and that ports are open between the nodes, or set MASTER_ADDR and MASTER_PORT"
    )


def _serve_first(ports: Sequence[int], run: str, timeout_s: float) -> TCPStore:
    for port in ports:
        try:
            store = _serve(port, timeout_s)
        except InputError:
            continue
        store.set(RUN, run)
        return store
    raise InputError(
        f"ports {ports[0]} to {ports[-1]}, where the ranks were to meet, are in use; set MASTER_ADDR and MASTER_PORT "
        "to a free one"
    )


def _store_of(run: str, host: str, port: int, timeout_s: float) -> TCPStore | None:
    """The store at ``port`` if it is the one of ``run``; another run, or another service, may listen there."""
    found: list[TCPStore] = []

    def ask() -> None:
        with contextlib.suppress(OSError, DistError):
            socket.create_connection((host, port), timeout=2).close()
            store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))
            if store.check([RUN]) and store.get(RUN) == run.encode():
                found.append(store)

    # In a thread, since PyTorch waits without end for a service that accepts connections and says nothing.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER_S)
    return found[0] if found else None
