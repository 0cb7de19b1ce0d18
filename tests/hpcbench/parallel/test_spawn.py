"""Ranks started by ``--parallel.devices``: exit codes, signals, and the end of all when one fails. No torch here."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest

from hpcbench.parallel.spawn import _KEEPERS, rank_environments, reserve_port, run_ranks, spawn
from staging.errors import InputError


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.parallel.spawn.GRACE_S", 0.5)


def run(script: str, ranks: int = 2) -> tuple[int, float]:
    started = time.monotonic()
    code = run_ranks([sys.executable, "-c", f"import os, sys, time\nrank = int(os.environ['RANK'])\n{script}"],
                     rank_environments(ranks, os.environ))  # fmt: skip
    return code, time.monotonic() - started


def test_all_well() -> None:
    assert run("sys.exit(0)")[0] == 0


def test_the_first_failure_is_the_exit_code_and_ends_the_others() -> None:
    code, seconds = run("time.sleep(60 * (1 - rank)); sys.exit(5)")
    assert code == 5
    assert seconds < 10


def test_a_rank_that_ignores_being_asked_is_killed() -> None:
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code, seconds = run(f"{ignore}\nif rank: sys.exit(5)\ntime.sleep(60)")
    assert code == 5
    assert seconds < 12


def test_a_killed_rank_gives_128_plus_n() -> None:
    assert run("os.kill(os.getpid(), 9)" + " if rank else time.sleep(60)")[0] == 137


def test_a_stopped_rank_is_killed_when_another_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.parallel.spawn.GRACE_S", 20.0)
    code, seconds = run("time.sleep(1); os.kill(os.getpid(), 19) if rank else time.sleep(1); sys.exit(1)")
    assert code == 1
    assert seconds < 15


def test_a_rank_that_cannot_be_started_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def limited(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        if len(started) == 2:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(popen(*words, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", limited)
    before = time.monotonic()
    with pytest.raises(InputError, match=r"rank 2 of 4 cannot be started \(Resource temporarily unavailable\); start"):
        run("time.sleep(300)", ranks=4)
    assert time.monotonic() - before < 10
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2


@pytest.mark.parametrize(("end", "code"), [("os.kill(os.getpid(), 9)", 137), ("sys.exit(1)", 1)])
def test_a_failure_counts_after_other_ranks_have_missed_their_target(end: str, code: int) -> None:
    """As if rank 0 ran out of memory while it wrote the report, for which the others do not wait."""
    assert run(f"if rank: sys.exit(3)\ntime.sleep(0.6); {end}")[0] == code


def test_ranks_that_miss_their_target_may_finish() -> None:
    # Rank 0 writes its report for longer than the grace that failing ranks get.
    code, seconds = run("time.sleep(2 * (1 - rank)); sys.exit(3)")
    assert code == 3
    assert seconds > 2


def test_signals_are_passed_on() -> None:
    program = (
        "import os, sys\nfrom hpcbench.parallel.spawn import rank_environments, run_ranks\n"
        "sys.exit(run_ranks([sys.executable, '-c', 'import os, time; os.write(1, bytes([49, 10])); time.sleep(60)'],"
        " rank_environments(2, os.environ)))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == [b"1\n", b"1\n"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 128 + signal.SIGTERM


def test_a_launcher_and_devices_exclude_each_other() -> None:
    outer = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    with pytest.raises(InputError, match=r"parallel.devices \(4\) starts ranks, but PMI has already started 2"):
        spawn(["apps"], 4, outer)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have one address for this machine")
def test_a_reserved_port_is_free_on_all_addresses() -> None:
    """The store listens on all of them. 400 of about 14,000 ports are in use elsewhere, and 400 are reserved."""
    with contextlib.ExitStack() as stack:
        elsewhere = [stack.enter_context(socket.socket()) for _ in range(400)]
        for each in elsewhere:
            each.bind(("127.0.0.2", 0))
        taken = {each.getsockname()[1] for each in elsewhere}
        found = []
        for _ in range(400):
            found.append(reserve_port())
            _KEEPERS.pop().close()
    assert taken.isdisjoint(found)


def test_a_signal_that_comes_before_all_ranks_have_started_reaches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = subprocess.Popen

    def begin_and_be_asked_to_end(*words: Any, **more: Any) -> Any:
        process = begin(*words, **more)
        os.kill(os.getpid(), signal.SIGTERM)  # before its caller knows of it
        return process

    monkeypatch.setattr("hpcbench.parallel.spawn.subprocess.Popen", begin_and_be_asked_to_end)
    code, seconds = run("time.sleep(60)")
    assert code == 143
    assert seconds < 10
