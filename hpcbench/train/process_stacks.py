"""Where a process is: the Python stacks of this one, and what the system reports about another on the same node."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import sysconfig
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

from hpcbench.measure.descendants import descendants
from hpcbench.train.progress import HEADER_BYTES

DUMP_SIGNAL = signal.SIGRTMIN + 8
"""Makes a process that watches for hangs write its stacks, even while its main thread holds the interpreter lock."""

DUMP_S = 1.0
"""How long such a process may take to write them."""

LONGEST = 20_000
"""Characters of the stacks of one rank that are kept."""

MOST_CHILDREN = 16
"""At most this many processes below a rank are reported."""

WATCHERS = ("abort-watcher", "hang-watch")
"""Threads that only watch, and are left out of the stacks."""

HERE = Path(__file__).resolve().parents[2]
WAITING_IN = (str(HERE / "hpcbench" / "parallel") + os.sep, str(HERE / "staging" / "ranks") + os.sep)
"""Code that communicates with other ranks."""
NOT_WAITING_IN = str(HERE / "hpcbench" / "parallel" / "spatial") + os.sep
STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
DISTRIBUTED = f"{os.sep}torch{os.sep}distributed{os.sep}"


def dump_on_signal(descriptor: int) -> None:
    """Make ``DUMP_SIGNAL`` write the stacks of all threads to ``descriptor`` from now on."""
    faulthandler.register(DUMP_SIGNAL, file=descriptor, all_threads=True, chain=False)


def own_stacks() -> str:
    """The Python stacks of all threads of this process, the main one first, and what its children do."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)
    parts = [
        f"thread {names.get(ident, ident)} (the innermost call last):\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in frames
        if names.get(ident) not in WATCHERS
    ]
    for child in descendants()[:MOST_CHILDREN]:
        parts.append(f"child process {child}: {kernel_state(child)}\n")
    return "".join(parts)[:LONGEST]


def waits_for_others() -> bool:
    """Whether the main thread of this process is in code that communicates with other ranks."""
    main = threading.main_thread().ident
    return main is not None and frame_waits(sys._current_frames().get(main))


def frame_waits(frame: FrameType | None) -> bool:
    """Whether the innermost call outside the standard library is into communication between ranks."""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(STANDARD_LIBRARY) or f"{os.sep}site-packages{os.sep}" in name:
            return DISTRIBUTED in name or (name.startswith(WAITING_IN) and not name.startswith(NOT_WAITING_IN))
        frame = frame.f_back
    return False


def is_stopped(pid: int) -> bool:
    """Whether a process of this node is stopped, by a signal or a debugger."""
    return _field(pid, "State").startswith(("T", "t"))


def kernel_state(pid: int) -> str:
    """What the system reports about a process of this node: state, and where in the kernel it waits, if readable."""
    state = _field(pid, "State")
    if not state:
        return "the process no longer exists on the node"
    parts = [f"state {state}"]
    for name in ("wchan", "syscall", "stack"):
        try:
            text = " ".join(Path(f"/proc/{pid}/{name}").read_text().split())
        except OSError as error:
            text = f"not known ({error.strerror})"
        if text and text != "0":
            parts.append(f"{name}: {text}")
    return "; ".join(parts)


def stacks_of(pid: int, descriptor: int) -> str:
    """What can be known of the stacks of a process of this node that does not answer."""
    told = kernel_state(pid)
    if is_stopped(pid):
        return f"{told}\nits Python stack is not known, since a process that is stopped cannot write it\n"
    written = _dump(pid, descriptor)
    if not written:
        return f"{told}\nits Python stack is not known: it wrote none within {DUMP_S:g} s of being asked\n"
    return f"{told}\nthe innermost call first:\n{written}"[:LONGEST]


def _dump(pid: int, descriptor: int) -> str:
    """The stacks that the process writes when asked; empty if it writes none."""
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a link to a file without a name
            before = max(HEADER_BYTES, os.fstat(file.fileno()).st_size)
            os.kill(pid, DUMP_SIGNAL)
            deadline, size = time.monotonic() + DUMP_S, before
            # Written line by line; complete once nothing more comes.
            while time.monotonic() < deadline:
                time.sleep(0.1)
                last, size = size, os.fstat(file.fileno()).st_size
                if size == last > before:
                    break
            file.seek(before)
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""


def _field(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return line.split(":", 1)[1].strip()
    return ""
