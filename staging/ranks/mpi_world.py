"""The world that MPI forms from the processes: nodes from shared memory, and messages between ranks."""

from __future__ import annotations

import copy
import os
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from staging.errors import EveryRankError, InputError
from staging.ranks.launch import claimed
from staging.ranks.mpi import communicator
from staging.ranks.world import Alone, Place, World, this_node

T = TypeVar("T")

SPIN_S = 1e-3
"""How long a rank polls MPI without a pause: a piece takes about this long, so its transfer is not slowed."""

PAUSE_S = 1e-4
"""The pause between polls after that, so that a waiting rank leaves its core to threads that read and write."""


class MPIWorld:
    """The ranks of a communicator, which is duplicated so that its messages meet no others.

    MPI is called from the thread that calls these methods, which must be one at a time (MPI_THREAD_SERIALIZED); only
    the watcher's Abort comes from another thread, for which mpi4py asks for MPI_THREAD_MULTIPLE. Waiting is done in
    Python, so that signals are handled and an idle rank takes no core. The constructor is collective.
    """

    place: Place

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise InputError(
                "the MPI library runs at a thread level below MPI_THREAD_SERIALIZED; unset MPI4PY_RC_THREAD_LEVEL, "
                "or use an MPI library that was built with threads"
            )
        self._byte, self._test_all = MPI.BYTE, MPI.Request.Testall
        self._comm = comm.Dup()
        shared = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.Get_rank())
        first_rank = shared.allreduce(comm.Get_rank(), MPI.MIN)
        shared.Free()
        seen = self.all_gather((first_rank, this_node()))
        self.place = places(*zip(*seen, strict=True))[comm.Get_rank()]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self._wait([self._comm.Ibarrier()])

    def all_gather(self, value: T) -> list[T]:
        """The values of all ranks, in rank order."""
        # The blocking operation keeps a core busy, so it begins only when all ranks are here.
        self.barrier()
        gathered: list[T] = self._comm.allgather(value)
        return gathered

    def broadcast(self, value: T) -> T:
        """The value of rank 0."""
        self.barrier()
        sent: T = self._comm.bcast(value, root=0)
        return sent

    def send_receive(self, sent: Any, to: int, received: Any, source: int) -> None:
        """Send the buffer ``sent`` to rank ``to`` while ``received`` is filled from rank ``source``; ``None``: not.

        Both are contiguous buffers of at most 1 GiB, possibly empty, and a message is as long as the buffer that it
        fills. Messages between two ranks keep their order.
        """
        requests, expected = [], []
        if received is not None:
            requests.append(self._comm.Irecv([received, self._byte], source=source))
            expected.append(memoryview(received).nbytes)
        if sent is not None:
            requests.append(self._comm.Isend([sent, self._byte], dest=to))
        for status, size in zip(self._wait(requests), expected, strict=False):
            if (came := status.Get_count(self._byte)) != size:
                raise RuntimeError(f"rank {source} sent {came} bytes into a buffer of {size}")

    def _wait(self, requests: list[Any]) -> list[Any]:
        """Wait for all ``requests``; returns their statuses."""
        statuses: list[Any] = []
        start = time.perf_counter()
        while not self._test_all(requests, statuses):
            if time.perf_counter() - start > SPIN_S:
                time.sleep(PAUSE_S)
            else:
                # If ranks outnumber cores, the rank that is waited for may need this core.
                os.sched_yield()
        return statuses


def mpi_world(environ: Mapping[str, str] = os.environ) -> World:
    """The world of this process: all ranks that a launcher started, or only itself; collective.

    MPI is loaded only if a launcher started several processes. Raises ``InputError`` if they do not form one
    MPI world, since each of them would then do the work of all.
    """
    claim = claimed(environ)
    if claim is None or claim.world_size == 1:
        return Alone()
    size = claim.world_size
    begun = f"{claim.source} started {size or 'several'} processes"
    comm = communicator()
    if comm is None:
        raise InputError(
            f"{begun}, but mpi4py finds no MPI library; install mpi4py for the MPI of this launcher, "
            "or start one process"
        )
    mpi_size = comm.Get_size()
    # A launcher that does not say how many it started is believed when MPI sees several.
    if mpi_size != (size or max(mpi_size, 2)):
        raise EveryRankError(
            f"{begun}, but MPI sees {mpi_size}, so they would all stage the same; start them with 'srun --mpi=pmi2' "
            "(or pmix), or with the mpiexec of the MPI library that mpi4py uses",
            speaks=claim.rank == 0,
        )
    return MPIWorld(comm)


def simulated(world: World, nodes: int) -> World:
    """The same ranks on ``nodes`` simulated nodes (node0, ...) in contiguous runs, whose sizes differ by at most 1."""
    size = world.place.size
    if not 1 <= nodes <= size:
        raise InputError(
            f"--simulated-nodes ({nodes}) must be 1 to the number of ranks ({size}), so that each has one; "
            f"start at least {nodes} ranks with mpiexec, or simulate fewer nodes"
        )
    node_of = [rank * nodes // size for rank in range(size)]
    return _moved(world, places(node_of, [f"node{node}" for node in node_of]))


def one_node_per_rank(world: World) -> World:
    """The same ranks, each as a separate node, for destinations that differ from rank to rank; collective."""
    if world.place.nodes == world.place.size:
        return world
    names = world.all_gather(world.place.node_name)
    return _moved(world, places(range(len(names)), names))


def places(node_of: Iterable[Hashable], names: Sequence[str]) -> list[Place]:
    """The places of all ranks, from anything that is equal for the ranks of one node, and each rank's node name.

    Nodes are numbered by their first rank and have its node name, followed by the number if several share a name.
    """
    keys = list(node_of)
    first = {key: rank for rank, key in reversed(list(enumerate(keys)))}
    number = {key: node for node, key in enumerate(dict.fromkeys(keys))}
    named = _unique([names[first[key]] for key in number])
    sizes, seen = Counter(keys), Counter[Hashable]()
    rank_places = []
    for rank, key in enumerate(keys):
        node = number[key]
        rank_places.append(Place(rank, len(keys), node, len(number), seen[key], sizes[key], named[node]))
        seen[key] += 1
    return rank_places


def _unique(names: list[str]) -> list[str]:
    count = Counter(names)
    taken = {name for name in names if count[name] == 1}
    unique = []
    for number, name in enumerate(names):
        chosen = name if count[name] == 1 else f"{name}-{number}"
        while chosen in taken and count[name] > 1:
            chosen += "-"
        taken.add(chosen)
        unique.append(chosen)
    return unique


def _moved(world: World, everyone: list[Place]) -> World:
    moved = copy.copy(world)
    moved.place = everyone[world.place.rank]
    return moved
