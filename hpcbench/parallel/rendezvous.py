"""Where the ranks of a run meet: a key-value store on rank 0, found without asking the user."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import timedelta

import psutil
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore, Store

from staging.errors import InputError
from staging.ranks.host_addresses import LOOPBACK, own_addresses, resolve
from staging.ranks.launch import Launch, expand_nodes
from staging.ranks.messages import connect_first
from staging.ranks.mpi import communicator
from staging.ranks.siblings import Siblings

FIRST_PORT, PORTS = 20000, 10000
"""Derived ports lie below the range from which Linux assigns ports itself (32768 and up)."""


def meet(launch: Launch, environ: Mapping[str, str], timeout_s: float) -> Store:
    """A store that all ranks of ``launch`` share. Raises ``InputError`` if they cannot find each other.

    Tries in order: the address that torchrun gives; MPI, which carries rank 0's address to the others; on one node, a
    port derived from the launcher's process id; under Slurm, the first node and a port derived from job and step.
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
        return _open([LOOPBACK], FIRST_PORT + os.getppid() % PORTS, launch.rank == 0, timeout_s)
    if "SLURM_JOB_ID" in environ:
        return _open(slurm_addresses(environ), slurm_port(environ), launch.rank == 0, timeout_s)
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


def slurm_port(environ: Mapping[str, str]) -> int:
    """A port that depends on the job and the step, so that concurrent steps do not meet."""
    job, step = int(environ["SLURM_JOB_ID"]), int(environ.get("SLURM_STEP_ID", "0"))
    return FIRST_PORT + (job * 101 + step) % PORTS


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
