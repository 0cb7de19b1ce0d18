"""The process that reads: it says which case it is at, and tells of what is wrong; whoever started it sees it die.

``python -m tests.staging.fuzz.child FOLDER`` takes batches from its input, a line ``family seed first stop`` each, and
answers each with lines of JSON: findings, and last what the batch took. ``FOLDER/at`` holds the number of the case at
hand, ``FOLDER/trace`` where the process stood when a signal ended it: SIGPROF after ``CPU_S`` of the processor, SIGALRM
after ``CLOCK_S``.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO

from tests.staging.fuzz.allowed import WrongError
from tests.staging.fuzz.books import remove_all
from tests.staging.fuzz.family import Family, find_family, make_case

CPU_S = float(os.environ.get("HPCBENCH_FUZZ_CPU_S", "5"))
"""Seconds of the processor that reading a file may take; the largest have half a megabyte."""
CLOCK_S = 60.0
"""Seconds of the clock, on a machine with other work to do, too."""
ADDRESS_BYTES = 2 << 30
"""Address space beyond what the libraries take: without it a mad allocation would harm the machine."""


class Memory:
    """The most that this process had resident since ``reset``."""

    def __init__(self) -> None:
        self._reset = os.open("/proc/self/clear_refs", os.O_WRONLY)
        self._status = os.open("/proc/self/status", os.O_RDONLY)

    def reset(self) -> None:
        """Begin anew (proc(5), clear_refs)."""
        os.write(self._reset, b"5")

    def peak(self) -> int:
        """Bytes."""
        return self._read(b"VmHWM:")

    def now(self) -> int:
        """Bytes that are resident."""
        return self._read(b"VmRSS:")

    def address_space(self) -> int:
        """Bytes of it."""
        return self._read(b"VmSize:")

    def _read(self, key: bytes) -> int:
        return int(os.pread(self._status, 4096, 0).partition(key)[2].split(None, 1)[0]) << 10


class Child:
    """Reads cases below ``folder`` and says what it found to ``out``."""

    def __init__(self, folder: Path, out: TextIO) -> None:
        self._folder, self._out = folder / "case", out
        self._folder.mkdir(exist_ok=True)
        self._at = os.open(folder / "at", os.O_WRONLY | os.O_CREAT)
        self._families: dict[str, Family] = {}
        self._memory = Memory()
        self._trace = (folder / "trace").open("w")
        faulthandler.enable(self._trace, all_threads=False)
        for number in (signal.SIGPROF, signal.SIGALRM):
            faulthandler.register(number, self._trace, all_threads=False, chain=True)

    def batch(self, name: str, seed: int, first: int, stop: int) -> None:
        """Cases ``first`` to before ``stop`` of a family."""
        family = self._families.get(name) or self._families.setdefault(name, find_family(name))
        self._bound_address_space()
        began, slowest, largest = time.perf_counter(), (0.0, -1), (0, -1)
        digest = hashlib.sha256()
        for number in range(first, stop):
            os.pwrite(self._at, f"{number:20d}".encode(), 0)
            took, grown = self._case(family, name, seed, number, digest)
            slowest, largest = max(slowest, (took, number)), max(largest, (grown, number))
        self._tell(
            done=stop - first, seconds=time.perf_counter() - began, slowest=slowest, largest=largest,
            sha256=digest.hexdigest(),
        )  # fmt: skip

    def _case(self, family: Family, name: str, seed: int, number: int, digest: Any) -> tuple[float, int]:
        data, dice = make_case(family, name, seed, number)
        digest.update(data)
        remove_all(self._folder)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        signal.setitimer(signal.ITIMER_REAL, CLOCK_S)
        self._memory.reset()
        before, start = self._memory.now(), time.perf_counter()
        try:
            family.read(data, self._folder, dice)
        except Exception as error:
            self._tell(case=number, size=len(data), **description(error))
        took, grown = time.perf_counter() - start, self._memory.peak() - before
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if grown > family.memory_bytes + family.memory_factor * len(data):
            what = f"{grown >> 20} MiB for a file of {len(data)} bytes"
            self._tell(case=number, size=len(data), kind="memory", what=what, where="", trace="")
        return took, grown

    def _bound_address_space(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = self._memory.address_space() + ADDRESS_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))

    def _tell(self, **reply: Any) -> None:
        self._out.write(json.dumps(reply) + "\n")
        self._out.flush()


def description(error: Exception) -> dict[str, str]:
    """What went wrong and where: the last line of the product, or of what it calls."""
    refusal = error.__context__ if isinstance(error, WrongError) else None  # whose message was wrong
    frames = traceback.extract_tb((refusal or error).__traceback__)
    ours = [frame for frame in frames if "/staging/" in frame.filename and "/tests/" not in frame.filename]
    last = (ours or list(frames))[-1]
    where = f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno} {last.name}"
    kind = "wrong" if isinstance(error, WrongError) else "exception"
    what = f"{type(error).__name__}: {ascii(str(error))[:200]}"
    return {"kind": kind, "what": what, "where": where, "trace": "".join(traceback.format_exception(error))[-3000:]}


def main() -> None:
    """Answer batches until the input ends."""
    warnings.simplefilter("ignore")
    child = Child(Path(sys.argv[1]), sys.stdout)
    sys.stdout = sys.stderr  # what a reader prints is no answer
    for line in sys.stdin:
        name, seed, first, stop = line.split()
        child.batch(name, int(seed), int(first), int(stop))


if __name__ == "__main__":
    main()
