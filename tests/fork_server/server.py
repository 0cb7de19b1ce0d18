"""Forks a process for each client; ends with the process that started it."""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch

from hpcbench.results import style
from hpcbench.train.huge_pages import use_huge_pages
from hpcbench.train.training_step import TrainingStep
from staging.ranks.process_exit import keep_exit_code, leave_at_exit
from tests.fork_server import PAUSE
from tests.fork_server.client import FORWARDED
from tests.undrawn import empty_svg

IMPORTED = ("hpcbench.train.run", "hpcbench.train.stage_only", "hpcbench.cli.main", "hpcbench.cli.train",
            "hpcbench.results.report", "hpcbench.parallel.gradients", "hpcbench.parallel.batchnorm",
            "hpcbench.optim.lamb", "apps.cosmoflow.task", "apps.deepcam.task", "torch._dynamo", "mpi4py")  # fmt: skip
LENGTH, CHUNK = 8, 2**16
PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when its parent ends. None of a test that failed goes on for ever."""


class Request:
    """What a client has sent so far. It may be stopped or killed before it has sent all, while others are served."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.files = array.array("i")
        self.content = b""

    def receive(self) -> bool:
        """Read what has arrived; whether that is all. Raises ``EOFError`` if nothing more will come."""
        content, found, _, _ = self.connection.recvmsg(CHUNK, socket.CMSG_SPACE(253 * 4))
        for _level, _kind, numbers in found:
            self.files.frombytes(numbers[: len(numbers) // self.files.itemsize * self.files.itemsize])
        if not content:
            raise EOFError
        self.content += content
        head = self.content[:LENGTH]
        return len(head) == LENGTH and len(self.content) == LENGTH + int.from_bytes(head, "big")

    @property
    def wanted(self) -> dict[str, Any]:
        """The program that it asks for: words, files, folder and variables."""
        found: dict[str, Any] = json.loads(self.content[LENGTH:])
        return found

    def close_files(self) -> None:
        """Close the files that came with it."""
        for number in self.files:
            os.close(number)


class Server:
    """Clients and their processes."""

    def __init__(self, listener: socket.socket) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = listener
        self.selector.register(listener, selectors.EVENT_READ, self.accept)
        self.pending: set[Request] = set()
        self.served: dict[int, socket.socket] = {}
        """The connection of each client that has a process, by the handle of that process."""
        self.request: dict[str, Any] | None = None

    def serve(self) -> dict[str, Any] | None:
        """What a forked process is asked for; the server itself returns ``None``, when its parent has ended."""
        parent = os.getppid()
        while os.getppid() == parent and self.request is None:
            for key, _ in self.selector.select(timeout=1.0):
                if key.fd in self.selector.get_map():  # not closed since the look
                    key.data()
                if self.request is not None:
                    break
        return self.request

    def accept(self) -> None:
        """A client, whose request has yet to arrive."""
        request = Request(self.listener.accept()[0])
        self.pending.add(request)
        self.selector.register(request.connection, selectors.EVENT_READ, lambda: self.receive(request))

    def receive(self, request: Request) -> None:
        """Fork a process for a client that has sent its whole request."""
        try:
            if not request.receive():
                return
        except (OSError, EOFError):  # it was killed before
            self.forget(request)
            request.connection.close()
            request.close_files()
            return
        self.forget(request)
        process = os.fork()
        if process == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            self.close()
            request.connection.close()
            self.request = request.wanted
            _become(self.request, list(request.files))
            return
        request.close_files()
        handle, connection = os.pidfd_open(process), request.connection
        self.served[handle] = connection
        self.selector.register(handle, selectors.EVENT_READ, lambda: self.ended(process, handle, connection))
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.left(process, connection))
        with contextlib.suppress(OSError):  # it is gone, and ``left`` will be told
            connection.sendall(b"%d\n" % process)

    def forget(self, request: Request) -> None:
        """Stop listening to a client."""
        self.selector.unregister(request.connection)
        self.pending.remove(request)

    def close(self) -> None:
        """Close what is the server's alone, in a process that is not the server.

        All of it at once: a socket that is closed when the last reference to it goes, some time later, takes a file
        of the client's with it that has its number by then.
        """
        self.selector.close()
        self.listener.close()
        for other in self.pending:
            other.connection.close()
            other.close_files()
        for handle, connection in self.served.items():
            os.close(handle)
            connection.close()

    def ended(self, process: int, handle: int, connection: socket.socket) -> None:
        """Tell a client that its process has."""
        _, status = os.waitpid(process, 0)
        self.selector.unregister(handle)
        os.close(handle)
        del self.served[handle]
        with contextlib.suppress(KeyError):
            self.selector.unregister(connection)
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % status)
        connection.close()

    def left(self, process: int, connection: socket.socket) -> None:
        """A client was killed, and its process is, too."""
        if connection.fileno() < 0:  # both have ended in one look
            return
        self.selector.unregister(connection)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Take the files, folder, cores and variables of a client, in place of the server's."""
    above = max([*request["files"], *files]) + 1
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above) for number in files]
    for number in files:
        os.close(number)
    for source, number in zip(moved, request["files"], strict=True):
        os.dup2(source, number)
        os.close(source)
    for number in FORWARDED:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.sched_setaffinity(0, request["cores"])
    variables: dict[str, str] = request["variables"]
    os.environ.clear()
    os.environ.update(variables)
    sys.executable = request["executable"]
    sys.path[:0] = list(filter(None, variables.get("PYTHONPATH", "").split(os.pathsep)))
    torch.set_num_threads(int(variables.get("OMP_NUM_THREADS", len(request["cores"]))))
    if "PYTHONUNBUFFERED" in variables or request["words"][0] == "-u":
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]


def main(descriptor: int) -> None:
    """Serve at a socket that listens, and in a forked process be the program that its client was asked for."""
    use_huge_pages(os.environ)
    for name in IMPORTED:
        importlib.import_module(name)
    style.svg = empty_svg  # drawing takes longer than a short run
    pause_before_each_batch()
    gc.collect()  # what is here now is not looked at again, so that processes share it
    gc.freeze()
    with socket.socket(fileno=descriptor) as listener:
        asked = Server(listener).serve()
    if asked is not None:
        leave_at_exit()  # without clearing all that was imported
        try:
            run(asked["words"])
        except SystemExit as end:
            if isinstance(end.code, int | None):
                keep_exit_code(end.code or 0)
            raise
        keep_exit_code(0)


def pause_before_each_batch() -> None:
    """Let training sleep before each micro-batch for the seconds of the variable ``PAUSE``, if it is set."""
    accumulate = TrainingStep.accumulate

    def paused(*args: Any, **kwargs: Any) -> None:
        time.sleep(float(os.environ.get(PAUSE, "0")))
        accumulate(*args, **kwargs)

    TrainingStep.accumulate = paused  # type: ignore[method-assign]


def run(words: list[str]) -> None:
    """Be ``python WORDS``."""
    if words[0] == "-u":
        words = words[1:]
    option = words.pop(0) if words[0] in ("-m", "-c") else ""
    sys.argv = words if option != "-c" else ["-c", *words[1:]]
    sys.path.insert(
        0, str(Path(words[0]).resolve().parent) if not option else str(Path.cwd()) if option == "-m" else ""
    )
    if option == "-m":
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        program = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(words[0], program.__dict__)
    else:
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(int(sys.argv[1]))
