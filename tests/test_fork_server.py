"""A process that is forked for a test is what the real Python would be: its arguments, files, variables and end."""

from __future__ import annotations

import array
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from tests.fork_server import PAUSE, forking_programs

pytestmark = pytest.mark.slow

LOOK = """
import json, os, sys
number = int(os.environ["NUMBER"])
print(json.dumps([sys.argv, os.getcwd(), os.environ["WORD"], os.read(number, 9).decode(), sys.path[0], __name__,
                  oct(os.umask(0)), sorted(os.sched_getaffinity(0)), sys.stdin.read()]))
sys.exit(5)
"""


@pytest.fixture(scope="module")
def forking(forking_folder: Path) -> str:
    """The program ``python`` whose processes are forked."""
    return str(forking_folder / "python")


def looked(python: str, folder: Path, *words: str) -> tuple[int, list[object]]:
    """Exit code and what a process sees of itself."""
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("inherited")
    with (folder / "file").open() as file:
        number = file.fileno()
        variables = {**os.environ, "WORD": "a \n b", "NUMBER": str(number)}
        done = subprocess.run(
            [python, *words], cwd=folder, env=variables, input="asked", capture_output=True, text=True, check=False,
            pass_fds=[number], umask=0o027,
        )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["-c", "-u", "script", "-m"])
def test_a_process_sees_what_a_real_one_does(forking: str, tmp_path: Path, kind: str) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    words = {"-c": ["-c", LOOK], "-u": ["-u", "-c", LOOK], "script": ["look.py"], "-m": ["-m", "look"]}[kind]
    found = looked(forking, tmp_path, *words, "one", "-x two")
    assert found == looked(sys.executable, tmp_path, *words, "one", "-x two")
    assert found[0] == 5


def test_it_has_torch_already(forking: str) -> None:
    program = "import sys; sys.exit(7 if 'torch' in sys.modules else 8)"
    assert subprocess.run([forking, "-c", program], check=False).returncode == 7


def test_training_sleeps_before_each_micro_batch_if_it_is_asked_to(forking: str, tmp_path: Path) -> None:
    """Else a run of few steps would end before what a test lets happen to it."""
    data = tmp_path / "data"
    few = ["--simulate.train_samples", "8", "--simulate.validation_samples", "2", "--processes", "1"]
    assert main(["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", str(data), *few]) == 0
    words = [forking, "-m", "hpcbench", "train", "cosmoflow", "--preset", "smoke", "--data.root", str(data)]
    words += ["--train.local_batch_size", "2", "--train.max_epochs", "1", "--train.baselines", "false"]
    words += ["--run-dir", str(tmp_path / "run"), "--train.target", "null"]
    done = subprocess.run(words, env={**os.environ, PAUSE: "0.5"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert summary.steps == 4
    assert summary.time_to_solution_s > 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_that_ends_it_ends_the_program(forking: str, number: signal.Signals) -> None:
    program = f"import os; os.kill(os.getpid(), {int(number)})"
    assert subprocess.run([forking, "-c", program], check=False).returncode == -number


def test_a_signal_to_the_program_reaches_the_process(forking: str) -> None:
    program = (
        "import signal, sys, time\nsignal.signal(10, lambda *_: sys.exit(9))\nprint(1, flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    with subprocess.Popen([forking, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 9


IGNORE = 'trap \'\' INT; exec "$0" "$@"'
"""What a shell makes of a program that it starts in the background."""


@pytest.mark.parametrize("before", [[], ["bash", "-c", IGNORE]], ids=["default", "ignored"])
def test_signals_that_are_ignored_stay_so_until_the_program_takes_them_up(forking: str, before: list[str]) -> None:
    program = "import signal; print([str(signal.getsignal(number)) for number in (1, 2, 10, 12, 15, 18)])"
    said = [subprocess.check_output([*before, python, "-c", program]) for python in (forking, sys.executable)]
    assert said[0] == said[1]
    taken_up = (
        "import signal, sys, time\nsignal.signal(2, lambda *_: sys.exit(9))\nprint(1, flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    with subprocess.Popen([*before, forking, "-c", taken_up], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 9


def test_the_processes_of_a_server_end_with_it() -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with tempfile.TemporaryDirectory(prefix="fork-") as folder:
        with forking_programs(Path(folder)) as programs:
            process = subprocess.Popen([programs / "python", "-c", program], stdout=subprocess.PIPE)
            assert process.stdout is not None
            found = Path(f"/proc/{int(process.stdout.readline())}")
            assert found.exists()
            process.send_signal(signal.SIGSTOP)
        gone = wait_until(lambda: not found.exists())
        process.kill()
        process.communicate()
    assert gone


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def speak(forking: str, content: bytes, files: int = 1) -> socket.socket:
    """Say as much to the server as a client does before it is killed, or stopped; it passes on so many ``files``."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(Path(forking).parent / "socket"))
    if content:
        with Path(os.devnull).open() as file:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * files))]
            connection.sendmsg([content], ancillary)
    return connection


REQUEST = json.dumps({
    "words": ["-c", "import time; time.sleep(60)"], "files": [9], "folder": "/", "variables": {}, "executable": "x",
    "cores": [0], "umask": 0, "ignored": [],
}).encode()  # fmt: skip


@pytest.mark.parametrize("said", [0, 3, 8, 20, None], ids=["nothing", "half a length", "a length", "a part", "all"])
def test_a_client_that_is_killed_while_it_asks_takes_nobody_with_it(forking: str, said: int | None) -> None:
    whole = len(REQUEST).to_bytes(8, "big") + REQUEST
    for _ in range(20):
        speak(forking, whole[:said]).close()
    assert subprocess.run([forking, "-c", "import sys; sys.exit(7)"], check=False, timeout=60).returncode == 7


def test_a_client_that_is_stopped_while_it_asks_lets_others_be_served(forking: str) -> None:
    with speak(forking, len(REQUEST).to_bytes(8, "big")):
        assert subprocess.run([forking, "-c", "import sys; sys.exit(7)"], check=False, timeout=60).returncode == 7


def test_a_process_keeps_its_files_if_others_end_when_it_is_forked(forking: str) -> None:
    """The server sees all at once, and its own sockets had the numbers of the files of the process."""
    sleep = "import os, time; print(os.getppid(), flush=True); time.sleep(60)"
    others = [subprocess.Popen([forking, "-c", sleep], stdout=subprocess.PIPE) for _ in range(4)]
    (server,) = {int(other.stdout.readline()) for other in others if other.stdout is not None}
    numbers = list(range(3, 60))
    look = f"import gc, os; gc.collect(); [os.fstat(number) for number in {numbers}]"
    request = json.dumps({**json.loads(REQUEST), "words": ["-c", look], "files": numbers}).encode()
    with speak(forking, len(request).to_bytes(8, "big"), len(numbers)) as connection:
        time.sleep(0.5)  # in which the server takes it up
        os.kill(server, signal.SIGSTOP)
        assert wait_until(lambda: Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
        connection.sendall(request)
        for other in others:
            other.kill()
            other.wait()
        os.kill(server, signal.SIGCONT)
        with connection.makefile("rb") as answers:
            process, status = map(int, answers.read().split())
    assert process != server
    assert status == 0


def test_where_the_server_has_ended_clients_do_not_wait() -> None:
    program = "import os; os.kill(os.getppid(), 9); import time; time.sleep(60)"
    with tempfile.TemporaryDirectory(prefix="fork-") as folder, forking_programs(Path(folder)) as programs:
        for _ in range(2):
            done = subprocess.run(
                [programs / "python", "-c", program], capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 1
            assert re.search(r"has ended|Connection(Refused|Reset)Error|BrokenPipeError", done.stderr)


def test_the_process_ends_with_a_program_that_is_killed(forking: str) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen([forking, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = Path(f"/proc/{int(process.stdout.readline())}")
        assert found.exists()
        process.kill()
        process.wait(30)
        assert wait_until(lambda: not found.exists()), "it goes on"


def test_options_of_a_new_interpreter_are_the_real_pythons(forking: str) -> None:
    done = subprocess.run(
        [forking, "-S", "-c", "import sys; print(sys.flags.no_site)"], capture_output=True, check=True
    )
    assert done.stdout == b"1\n"
