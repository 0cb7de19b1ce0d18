"""What a launcher starts: asks the server for a process with its arguments, files, folder and variables, and ends as
that process does. With options that only a new interpreter can have it is the real Python.

Needs little of the standard library, so that it starts in some hundredths of a second.
"""

# ruff: noqa: PTH109, PTH118, PTH119, PTH120, PTH208 - pathlib takes longer to import than all that is here

import array
import contextlib
import json
import os
import select
import signal
import socket
import sys

POLL_S = 0.2
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCONT)


def open_files() -> list[int]:
    """The descriptors that a new program would inherit."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:  # of the listing itself
            continue
    return found


def umask() -> int:
    """The bits that this process takes from the modes of its files; to read them is to set them."""
    found = os.umask(0)
    os.umask(found)
    return found


def ask(address: str, words: list[str], executable: str) -> int:
    """The exit status of the server's process, as ``waitpid`` gives it."""
    files = open_files()
    ignored = [number for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)
    request = json.dumps(
        {
            "words": words, "files": files, "folder": os.getcwd(), "variables": dict(os.environ),
            "executable": executable, "cores": sorted(os.sched_getaffinity(0)), "umask": umask(), "ignored": ignored,
        }
    ).encode()  # fmt: skip
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until this knows whom to pass them on to
    connection.sendmsg(
        [len(request).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    )
    connection.sendall(request)
    for number in files:
        if number > 2:  # it is the process that closes them, which others may wait for
            os.close(number)
    answers = connection.makefile("rb", buffering=0)
    process = int(answers.readline() or sys.exit("the server of forked processes has ended"))

    def forward(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(process, number)

    for number in FORWARDED:  # ignored ones, too: a program may take them up again
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    while not select.select([connection], [], [], POLL_S)[0]:  # a signal just before it waits is passed on after it
        pass
    return int(answers.readline() or sys.exit("the server of forked processes has ended"))


def main(address: str, real: str) -> None:
    """Be Python, or ``hpcbench`` where this is called so."""
    words = sys.argv[1:]
    name, folder = os.path.basename(sys.argv[0]), os.path.dirname(sys.argv[0])
    if name == "hpcbench":
        words = ["-m", "hpcbench", *words]
    if not words or not (words[0] in ("-m", "-c", "-u") or words[0].endswith(".py")):
        os.execv(real, [real, *words])
    status = ask(address, words, os.path.join(folder, "python"))
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))
