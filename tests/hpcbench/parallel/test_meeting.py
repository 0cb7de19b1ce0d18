"""How ranks find each other, and what they are told when they cannot."""

from __future__ import annotations

import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from hpcbench.parallel import group as groups
from hpcbench.parallel import rendezvous
from hpcbench.parallel.group import connect
from hpcbench.parallel.rendezvous import interface_towards, local_ports, meet, slurm_addresses, slurm_ports
from hpcbench.parallel.spawn import reserve_port
from staging.errors import InputError
from staging.ranks.launch import Launch

IP_LOCAL_PORT_RANGE = 51
"""Option of Linux 6.3: the ports that a socket may be given by the system; the name is in no Python yet."""


def check_in(*launches: Launch) -> list[str]:
    """What each of the launches is told at the store."""
    store = HashStore()

    def enter(launch: Launch) -> str:
        try:
            groups._check_in(store, launch, timeout_s=1.0)
        except InputError as error:
            return str(error)
        return "welcome"

    with ThreadPoolExecutor(len(launches)) as pool:
        return list(pool.map(enter, launches))


def test_a_complete_world_is_welcome() -> None:
    assert check_in(Launch(0, 3), Launch(1, 3), Launch(2, 3)) == ["welcome"] * 3


def test_two_processes_of_one_rank_stop_all() -> None:
    told = check_in(Launch(0, 3), Launch(1, 3), Launch(1, 3))
    assert told == ["two processes are rank 1 of 3; start all ranks with one launcher and one number of ranks"] * 3


def test_different_numbers_of_ranks_stop_all() -> None:
    told = check_in(Launch(0, 2), Launch(1, 3))
    assert len(set(told)) == 1
    assert "belongs to a world of" in told[0]


def test_missing_ranks_are_counted() -> None:
    told = check_in(Launch(0, 3), Launch(1, 3))
    assert told == ["only 2 of 3 ranks met within 1 s; see that the launcher started all of them"] * 2


@pytest.mark.parametrize("bound", ["timeout_s", "meeting_s"])
def test_a_rank_alone_gives_up(bound: str) -> None:
    environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port())}
    with pytest.raises(InputError, match="only 1 of 2 ranks met within 1 s"):
        connect(Launch(0, 2, 0, 2), environ=environ, **{bound: 1})  # type: ignore[arg-type]


def test_no_rank_0() -> None:
    environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port())}
    with pytest.raises(InputError, match=r"no answer at 127\.0\.0\.1, port \d+, within 1 s; see that rank 0 runs"):
        meet(Launch(1, 2, 1, 2), environ, 1.0)


def test_port_in_use() -> None:
    with socket.create_server(("", 0)) as taken:
        environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        with pytest.raises(InputError, match="is in use; set MASTER_ADDR and MASTER_PORT to a free one"):
            meet(Launch(0, 2, 0, 2), environ, 1.0)


def test_a_reserved_port_is_given_to_nobody_else() -> None:
    port = reserve_port()
    only_this = struct.pack("I", port << 16 | port)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client, socket.socket() as other:
        for each in (client, other):
            try:
                each.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, only_this)
            except OSError:
                pytest.skip("this kernel cannot narrow the range of ports of one socket (Linux 6.3)")
        with pytest.raises(OSError):  # noqa: PT011 - the kernel's number depends on its version
            client.connect(server.getsockname())
        with pytest.raises(OSError, match="already in use"):
            other.bind(("", 0))
    environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    store = meet(Launch(0, 2, 0, 2), environ, 5.0)
    store.set("answer", "42")
    assert meet(Launch(1, 2, 1, 2), environ, 5.0).get("answer") == b"42"


@pytest.mark.parametrize("port", ["", "http", "0", "70000"])
def test_bad_port(port: str) -> None:
    with pytest.raises(InputError, match=r"MASTER_PORT \('.*'\) must be a port number, 1 to 65535"):
        meet(Launch(0, 2, 0, 2), {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}, 1.0)


def test_several_nodes_without_mpi_slurm_or_address() -> None:
    with pytest.raises(InputError, match="2 ranks on 2 nodes have no way to meet"):
        meet(Launch(0, 2, 0, 1, 0, 2), {}, 1.0)


def test_the_first_node_of_a_slurm_step_must_resolve() -> None:
    with pytest.raises(InputError, match=r"first node of the Slurm step \('nowhere\.invalid'\)"):
        slurm_addresses({"SLURM_STEP_NODELIST": "nowhere.invalid"})
    # Where node names do not resolve, the node that launched the step stands in.
    environ = {"SLURM_STEP_NODELIST": "nowhere.invalid", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"}
    assert slurm_addresses(environ) == ["127.0.0.1"]


def step_of(job: int, **more: str) -> dict[str, str]:
    """The environment of a Slurm step on this machine."""
    return {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost", **more}


def test_steps_of_a_job_get_ports_of_their_own_below_the_ephemeral_range() -> None:
    each = [slurm_ports({"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)}) for job in (7, 8) for step in range(50)]
    assert len({ports[0] for ports in each}) == 100
    assert all(1024 < port < 20000 for ports in each for port in ports), "nor those of runs on one node"
    assert {len(set(ports)) for ports in each} == {8}


def test_loopback_is_reached_through_the_loopback_interface() -> None:
    assert interface_towards("127.0.0.1") in set(dict(socket.if_nameindex()).values())


def meet_pair(environ: dict[str, str], nodes: int = 2) -> tuple[Any, Any]:
    """The stores of both ranks of a run, which share what they hold."""
    launches = [Launch(rank, 2, rank if nodes == 1 else 0, 2 if nodes == 1 else 1, 0, nodes) for rank in range(2)]
    first, second = (meet(launch, environ, 5.0) for launch in launches)
    first.set("word", "hello")
    assert second.get("word") == b"hello"
    return first, second


def test_processes_of_one_launcher_derive_the_same_port() -> None:
    # No address, no MPI, one node: rank 0 serves where its siblings, children of the same parent, will look.
    first, second = meet_pair({}, nodes=1)
    assert first.port == second.port == local_ports()[0] == 20000 + os.getppid() % 9993


def test_a_port_that_a_silent_service_has_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ANSWER_S", 0.5)
    environ = step_of(11)
    with socket.create_server(("", slurm_ports(environ)[0])):
        first, second = meet_pair(environ)
    assert first.port == second.port == slurm_ports(environ)[1]


def test_two_jobs_with_the_same_ports_do_not_meet() -> None:
    """Nor does a job meet its own ranks from before it was requeued."""
    environs = [step_of(12), step_of(12 + 9993), step_of(12, SLURM_RESTART_COUNT="1")]
    pairs = [meet_pair(environ) for environ in environs]
    assert len({tuple(slurm_ports(environ)) for environ in environs}) == 1
    assert [second.port for _, second in pairs] == slurm_ports(environs[0])[:3]
    pairs[0][0].set("word", "of the first job")
    assert pairs[1][1].get("word") == b"hello"


def test_a_rank_does_not_take_the_store_of_another_run_for_its_own() -> None:
    other = meet(Launch(0, 2, 0, 1, 0, 2), step_of(13), 5.0)
    alone = step_of(13 + 9993)
    with pytest.raises(InputError, match=r"no answer from rank 0 at localhost, ports \d+ to \d+, within 1 s"):
        meet(Launch(1, 2, 0, 1, 1, 2), alone, 1.0)
    assert other.port == slurm_ports(alone)[0]  # type: ignore[attr-defined]


def test_no_derived_port_is_free() -> None:
    with ExitStack() as taken:
        for port in slurm_ports(step_of(14)):
            taken.enter_context(socket.create_server(("", port)))
        with pytest.raises(InputError, match=r"ports \d+ to \d+, where .* are in use; set MASTER_ADDR and MASTER_PORT"):
            meet(Launch(0, 2, 0, 1, 0, 2), step_of(14), 1.0)
