"""Starts the ranks of ``--parallel.devices N`` on this machine; imports no torch."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from hpcbench.exits import DONE, TARGET_NOT_REACHED
from staging.errors import InputError
from staging.ranks.signals import CAUGHT, ignore_at_exit

FOREIGN = ("PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "HYDRA_", "SLURM_PROCID", "SLURM_LOCALID", "TORCHELASTIC_")
"""Prefixes of the variables of other launchers, which the ranks must not see."""

ENDED_WELL = (DONE, TARGET_NOT_REACHED)
"""Exit codes of ranks that are no failure: others may still work, and fail."""

GRACE_S = 3.0
"""When one rank fails, the others end. Those still running after this time get SIGTERM; after twice this, SIGKILL."""

REPORTED_S = 0.2
"""How long after the first failure the ranks are examined, to tell cause from victims."""

_KEEPERS: list[socket.socket] = []


def spawn(argv: Sequence[str], devices: int, environ: Mapping[str, str]) -> int:
    """Run ``python -m hpcbench ARGV`` once per rank and return the exit code of the first failure, or 0.

    The ranks get torchrun's variables and ``HPCBENCH_SPAWNED``, so that they start no others. Signals are passed on;
    a rank killed by signal n gives 128+n. Raises ``InputError`` if a launcher has already started several ranks.
    """
    from staging.ranks.launch import detect

    launch = detect(environ)
    if launch.world_size > 1:
        raise InputError(
            f"parallel.devices ({devices}) starts ranks, but {launch.source} has already started {launch.world_size}; "
            "drop --parallel.devices or the launcher"
        )
    command = [sys.executable, "-m", "hpcbench", *argv]
    return run_ranks(command, rank_environments(devices, environ))


def rank_environments(devices: int, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The environment of each rank."""
    inherited = {name: value for name, value in environ.items() if not name.startswith(FOREIGN)}
    shared = {
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(reserve_port()),
        "HPCBENCH_SPAWNED": "1",
    }
    return [{**inherited, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(devices)]


def run_ranks(command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> int:
    """Run ``command`` once in each environment, and wait for all; when one fails, the others end too.

    Raises ``InputError`` if one cannot be started, and kills those that were.
    """
    ranks: list[subprocess.Popen[bytes]] = []
    # In separate process groups, so that Ctrl-C at a terminal reaches the ranks once: from here.
    with forward_signals(ranks) as came:
        try:
            for environ in environments:
                ranks.append(_start(command, environ, len(environments)))
            for number in came:  # that came before all ranks were started
                _signal(ranks, number)
            return _wait(ranks)
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.wait()


def _start(command: Sequence[str], environ: Mapping[str, str], size: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=dict(environ), process_group=0)
    except OSError as error:
        raise InputError(
            f"rank {environ.get('RANK')} of {size} cannot be started ({error.strerror}); "
            "start fewer with --parallel.devices, or raise the limits on processes (ulimit -u) and memory"
        ) from error


def _wait(ranks: list[subprocess.Popen[bytes]]) -> int:
    code, failed_at = DONE, float("inf")
    asked = False
    while any(rank.poll() is None for rank in ranks):
        if code in ENDED_WELL and _first_failure(ranks) != code:
            # The system reports a killed rank a moment after its victims may have noticed and ended.
            time.sleep(REPORTED_S)
            code = _first_failure(ranks)
            _kill_stopped(ranks)
        # Ranks that miss the target end normally, the first one while rank 0 still writes its report.
        if code not in ENDED_WELL:
            failed_at = min(failed_at, time.monotonic())
        waited = time.monotonic() - failed_at
        if waited > GRACE_S and not asked:
            asked = True
            _signal(ranks, signal.SIGTERM)
        if waited > 2 * GRACE_S:
            _signal(ranks, signal.SIGKILL)
        time.sleep(0.05)
    return _first_failure(ranks) if code in ENDED_WELL else code


def _first_failure(ranks: list[subprocess.Popen[bytes]]) -> int:
    codes = [rank.returncode for rank in ranks if rank.poll() is not None and rank.returncode != 0]
    # A rank that was killed is the cause; others that end with 1 are its victims. One that missed the target is none.
    killed = [128 - code for code in codes if code < 0]
    failed = killed or [code for code in codes if code != TARGET_NOT_REACHED] or codes
    return failed[0] if failed else DONE


def _kill_stopped(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Kill ranks that SIGSTOP has stopped, since they neither notice that the others ended nor react to SIGTERM."""
    for rank in ranks:
        if rank.poll() is None:
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{rank.pid}/stat").read_text(encoding="utf-8", errors="replace")
                if stat.rpartition(")")[2].split()[0] == "T":
                    rank.kill()


def _signal(ranks: list[subprocess.Popen[bytes]], number: int) -> None:
    for rank in ranks:
        if rank.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, number)


@contextlib.contextmanager
def forward_signals(ranks: list[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """While entered, pass signals on to ``ranks`` instead of dying from them; once one came, until the process ends.

    Yields a list of the numbers of the signals that came.
    """
    came: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        came.append(number)
        _signal(ranks, number)

    before = {number: signal.signal(number, forward) for number in CAUGHT}
    try:
        yield came
    finally:
        if came:
            ignore_at_exit(before)
        for number, handler in () if came else before.items():
            signal.signal(number, handler)


def reserve_port() -> int:
    """A port at which a server of this launch can listen, and which nothing else is given while this process lives.

    The socket that reserves it never listens. Linux lets another socket listen on the port if it allows the reuse of
    addresses, as torch's store does, but gives the port neither to a connection nor to a socket that asks for any port.
    It is bound to all addresses, as the store is: a port may be free on one and taken by a connection on another.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("0.0.0.0", 0))  # noqa: S104
    _KEEPERS.append(keeper)
    return int(keeper.getsockname()[1])
