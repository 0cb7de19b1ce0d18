"""Programs ``python`` and ``hpcbench`` for tests, whose processes are forked from a server that has imported torch.

Importing takes a process three seconds, which is longer than most runs of the tests. Launchers, jobs and studies start
these programs as they start the real ones. Pages of their runs have no drawings. See ``client.py`` for what stays real.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PAUSE = "HPCBENCH_TEST_PAUSE_S"
"""The variable with the seconds for which training sleeps before each micro-batch.

A run that trains until something happens to it takes the processor from other tests for as long.
"""


@contextlib.contextmanager
def forking_programs(folder: Path, real: Path | None = None) -> Iterator[Path]:
    """``folder`` with both programs, and links to all others that are beside the real Python: this one, or ``real``."""
    address, real = folder / "socket", real or Path(sys.executable)
    client = (HERE / "client.py").read_text(encoding="utf-8")
    for name in ("python", "hpcbench"):
        text = f"#!{real} -IS\n{client}\n\nmain({str(address)!r}, {str(real)!r})\n"
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    for program in real.parent.iterdir():
        if not (folder / program.name).exists():
            (folder / program.name).symlink_to(program)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(64)
        server = LazyServer(listener, real)
        try:
            yield folder
        finally:
            server.stop()


class LazyServer:
    """The process of ``server.py``, which starts when the first client connects.

    If it ends before its time, clients are refused, rather than wait for ever.
    """

    def __init__(self, listener: socket.socket, python: Path) -> None:
        self._listener, self._python = listener, python
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._asked, self._end = os.pipe()
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        ready, _, _ = select.select([self._listener, self._asked], [], [])
        if self._listener in ready:
            number = self._listener.fileno()
            command = [str(self._python), "-m", "tests.fork_server.server", str(number)]
            variables = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                command,
                cwd=HERE.parents[1],
                env=variables,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            threading.Thread(target=self._watch, args=[self._process], daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if not self._stopped:
            self._listener.close()

    def stop(self) -> None:
        """End it, if it has started."""
        self._stopped = True
        os.close(self._end)
        self._thread.join()
        os.close(self._asked)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
