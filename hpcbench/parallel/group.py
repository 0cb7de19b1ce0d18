"""The ranks of a run, and their collective operations. With one process every method is an identity."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store

from hpcbench.parallel.rendezvous import interface_towards, meet
from staging.errors import InputError
from staging.ranks.collective_errors import run_together
from staging.ranks.host_addresses import own_addresses
from staging.ranks.launch import Launch
from staging.ranks.process_exit import leave_at_exit
from staging.ranks.siblings import Siblings

T = TypeVar("T")

MEETING_TIMEOUT_S = 300.0
SAME_COMMAND = "start all ranks with the same command, files and environment"
"""What to do where ranks differ in what only their start decides."""


class Work(Protocol):
    """A collective operation in progress."""

    def wait(self) -> Any:
        """Return when the result is there; on an accelerator, order the current stream after it."""


class Group:
    """All ranks of a run, made by ``connect``. With one process ``store`` is ``None``, and nothing is ever sent."""

    def __init__(self, launch: Launch, device: torch.device, store: Store | None) -> None:
        self.launch = launch
        self.rank = launch.rank
        self.world_size = launch.world_size
        self.device = device
        self.store = store

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes logs and files."""
        return self.rank == 0

    def addresses(self) -> list[str]:
        """Addresses at which the other ranks may reach this host, best first."""
        return own_addresses(one_node=self.launch.local_size == self.world_size)

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Replace ``tensor`` by its sum over ranks, in place, and return it."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def all_reduce_sum_async(self, tensor: Tensor) -> Work | None:
        """Start summing ``tensor`` over ranks in place; ``None`` with one process."""
        return dist.all_reduce(tensor, async_op=True) if self.world_size > 1 else None

    def all_reduce_max(self, tensor: Tensor) -> Tensor:
        """Replace ``tensor`` by the largest of all ranks, element by element, in place, and return it."""
        if self.world_size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor

    def latest(self, arrivals: Tensor) -> Tensor:
        """``Arrivals`` of messages among all ranks: maps (messages,) on the host to (1, messages)."""
        return self.all_reduce_max(arrivals).unsqueeze(0)

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """Overwrite ``tensor`` with that of rank ``source``, in place, and return it."""
        if self.world_size > 1:
            dist.broadcast(tensor, src=source)
        return tensor

    def all_gather_rows(self, tensor: Tensor) -> Tensor:
        """Rows of all ranks in rank order: (n_rank, ...) on each rank becomes (sum of n_rank, ...) on all.

        The number of rows may differ between ranks, and may be zero; dtype and the other dimensions may not differ.
        """
        if self.world_size == 1:
            return tensor
        counts = torch.zeros(self.world_size, dtype=torch.int64, device=tensor.device)
        counts[self.rank] = tensor.shape[0]
        rows = [int(count) for count in self.all_reduce_sum(counts).tolist()]
        padded = tensor.new_zeros((max(rows), *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        parts = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, rows, strict=True)])

    def all_gather_object(self, value: T) -> list[T]:
        """The value of every rank, in rank order."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def broadcast_object(self, value: T, source: int = 0) -> T:
        """The value of rank ``source``."""
        if self.world_size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=source)
        return box[0]

    def max(self, value: float) -> float:
        """The largest ``value`` of all ranks."""
        return max(self.all_gather_object(value))

    def barrier(self) -> None:
        """Wait for all ranks on the host; does not wait for work queued on an accelerator."""
        if self.world_size > 1:
            dist.all_reduce(torch.zeros(1))

    def together(self, step: Callable[[], T]) -> T:
        """Run ``step`` on all ranks; bad input on one of them stops all, and only the first of them reports it."""
        return run_together(step, self.rank, self.all_gather_object)

    def agree(self, name: str, value: object, advice: str = SAME_COMMAND) -> None:
        """Raise ``InputError`` on all ranks unless all have the same ``value`` (anything that JSON can write)."""
        values = self.all_gather_object(json.dumps(value, sort_keys=True, default=str))
        for rank, other in enumerate(values):
            if other != values[0]:
                raise InputError(
                    f"{name} differs between ranks: {_short(values[0])} on rank 0, "
                    f"{_short(other)} on rank {rank}; {advice}"
                )

    def close(self) -> None:
        """Leave the group; all ranks must be done with it."""
        if self.store is not None and dist.is_initialized():
            dist.destroy_process_group()
            self.store = None


def connect(
    launch: Launch,
    device: torch.device | str = "cpu",
    backend: str | None = None,
    timeout_s: float = 1800,
    environ: Mapping[str, str] = os.environ,
    meeting_s: float = MEETING_TIMEOUT_S,
) -> Group:
    """Bring the ranks together. Raises ``InputError`` on all of them if they do not form one world.

    ``backend`` is one of ``torch.distributed``; unset takes gloo for tensors on the host and torch's default for the
    kind of ``device``. ``timeout_s`` bounds every collective operation, and ``meeting_s`` the wait for all ranks. The
    group's ``launch`` has the true nodes.
    """
    device = torch.device(device)
    if launch.world_size == 1:
        return Group(launch, device, None)
    store = meet(launch, environ, min(timeout_s, meeting_s))
    _check_in(store, launch, min(timeout_s, meeting_s))
    if launch.local_size < launch.world_size:
        _choose_interface(store, launch)
    dist.init_process_group(
        backend or default_backend(device),
        store=PrefixStore("collectives", store),
        rank=launch.rank,
        world_size=launch.world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    leave_at_exit()
    group = Group(launch, device, store)
    group.launch = _true_nodes(group, environ)
    return group


def default_backend(device: torch.device) -> str:
    """gloo for the host and, with an accelerator, also torch's own choice for it."""
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


def _check_in(store: Store, launch: Launch, timeout_s: float) -> None:
    """Register this rank in the store; the last rank, or the first that finds a problem, tells the others."""
    problem = ""
    stated = store.compare_set("world_size", "", str(launch.world_size)).decode()
    if stated != str(launch.world_size):
        problem = f"rank {launch.rank} belongs to a world of {launch.world_size}, another rank to one of {stated}"
    elif store.add(f"rank/{launch.rank}", 1) > 1:
        problem = f"two processes are rank {launch.rank} of {launch.world_size}"
    if problem:
        store.set("verdict", problem)
    elif store.add("arrived", 1) == launch.world_size:
        store.set("verdict", "welcome")
    _await_verdict(store, launch, timeout_s)
    verdict = store.get("verdict").decode()
    if verdict != "welcome":
        raise InputError(f"{verdict}; start all ranks with one launcher and one number of ranks")


def _await_verdict(store: Store, launch: Launch, timeout_s: float) -> None:
    """Poll for the verdict; between polls, signals are handled and ranks that have ended are noticed."""
    deadline = time.monotonic() + timeout_s
    siblings = Siblings()
    pause_s, longest_s = 0.01, max(0.2, launch.world_size / 5000)
    try:
        while not store.check(["verdict"]):
            if time.monotonic() >= deadline:
                raise InputError(
                    f"only {store.add('arrived', 0)} of {launch.world_size} ranks met within {timeout_s:g} s; "
                    "see that the launcher started all of them"
                )
            siblings.check()
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, longest_s)
    except RuntimeError as error:
        raise InputError(
            f"rank 0 ended before all {launch.world_size} ranks had met; see what it printed, and the launcher"
        ) from error


def _choose_interface(store: Store, launch: Launch) -> None:
    """Point gloo at the interface between the nodes, since a host name often resolves to loopback."""
    if launch.rank == 0:
        store.set("address", own_addresses(one_node=False)[0])
    name = interface_towards(store.get("address").decode())
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _true_nodes(group: Group, environ: Mapping[str, str]) -> Launch:
    """The launch with nodes numbered by their first rank, from what every rank reports about its node."""
    # Several Slurm daemons on one host count as nodes; only these variables tell them apart.
    name = "/".join([socket.gethostname(), environ.get("SLURMD_NODENAME", ""), environ.get("PMI_HOSTNAME", "")])
    places = group.all_gather_object((name, group.launch.local_rank))
    if len(set(places)) < len(places):
        raise InputError(f"two ranks have the same rank within a node ({sorted(places)[:8]}); start with one launcher")
    order = list(dict.fromkeys(place for place, _ in places))
    local_size = sum(place == name for place, _ in places)
    return replace(group.launch, nodes=len(order), node_rank=order.index(name), local_size=local_size)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
