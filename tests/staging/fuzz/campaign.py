"""Mutated files of every format are put through the readers of staging, in child processes that are watched.

``python -m tests.staging.fuzz --seed 7 --cases 1000000 --jobs 2`` makes a million manifests, journals, indexes, tars,
TFRecords, npy, HDF5 and further files, in every second one the checksums and lengths right again. A reader may give a
value, or refuse the file in one line. Any other error, the end of the process, more than some seconds, and more memory
than goes with the size of the file are findings. Each is told once, with the command that repeats its first case.
Exit code 1 where there is one that is not a crash within the HDF5 library.
"""

from __future__ import annotations

import argparse
import json
import linecache
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.staging.fuzz.family import FAMILIES, find_family, make_case
from tests.staging.processes import ENVIRON, memory_folder

BATCH = 250
"""Cases that a child is given at a time."""
SHOW_S = 30.0
HANGS = (signal.SIGPROF, signal.SIGALRM)
FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')


@dataclass(frozen=True)
class Finding:
    """Something that a reader may not do."""

    family: str
    seed: int
    case: int
    kind: str
    """``exception``, ``wrong``, ``memory``, ``crash``, ``hang`` or ``library``: a crash within HDF5."""
    what: str
    where: str
    trace: str
    alone: bool | None = None
    """Whether it happens without the cases before it, too; ``None`` where it was not tried."""

    @property
    def group(self) -> tuple[str, str, str, str]:
        """What findings have in common that are one bug."""
        return self.family, self.kind, self.what.partition(":")[0] if self.kind == "exception" else "", self.where

    @property
    def name(self) -> str:
        """For ``--reproduce``."""
        return f"{self.family}:{self.seed}:{self.case}"

    def __str__(self) -> str:
        alone = "" if self.alone is not False else ", not alone: only after the cases before it"
        return (
            f"{self.kind} in {self.family}: {self.what} {f'at {self.where}' if self.where else ''}{alone}\n"
            f"  again: python -m tests.staging.fuzz --reproduce {self.name}"
        )


@dataclass
class Outcome:
    """What was tried and found."""

    cases: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    """Of reading and making cases, by family."""
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Seconds and number of the slowest case of each family."""
    largest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes of memory and number of the case that took most."""
    sums: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """SHA-256 over all files of a batch."""
    counts: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str, str, str], Finding] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a finding; of its kind the case of the lowest number is kept."""
        self.counts[finding.group] += 1
        self.first[finding.group] = min(
            self.first.get(finding.group, finding), finding, key=lambda found: (found.seed, found.case)
        )

    @property
    def bugs(self) -> list[Finding]:
        """The first of each kind that is not the HDF5 library's."""
        return [finding for finding in self.first.values() if finding.kind != "library"]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        kinds: Counter[str] = Counter()
        for group, count in self.counts.items():
            kinds[group[1]] += count
        return {
            "cases": self.cases.total(), "by_family": dict(self.cases), "findings": dict(kinds),
            "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
            "slowest_s": {name: [round(found[0], 3), found[1]] for name, found in self.slowest.items()},
            "most_memory_bytes": self.largest,
            "first": [asdict(finding) | {"count": self.counts[group]} for group, finding in self.first.items()],
        }  # fmt: skip


class Reading:
    """A child, started again whenever it has died."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None

    def batch(self, family: str, seed: int, first: int, stop: int) -> Iterator[dict[str, Any]]:
        """What the child says of these cases; an object with ``died`` where one ended it, and then of the rest."""
        while first < stop:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # it died between two batches, which is told below
                process.stdin.write(f"{family} {seed} {first} {stop}\n")
                process.stdin.flush()
            for line in process.stdout:
                found = json.loads(line)
                yield found
                if "done" in found:
                    return
            code = process.wait()
            self.close()
            case = int((self.folder / "at").read_text() or first)
            said = (self.folder / "trace").read_text() + (self.folder / "stderr").read_text(errors="replace")[-3000:]
            yield {"died": code, "case": case, "trace": said, "cases": case + 1 - first}
            first = case + 1

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            (self.folder / "at").write_text("")
            command = [sys.executable, "-m", "tests.staging.fuzz.child", str(self.folder)]
            with (self.folder / "stderr").open("w") as errors:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=ENVIRON
                )
        return self._process


class Campaign:
    """Cases of some families by a seed, ``jobs`` at a time, in folders below ``folder``."""

    def __init__(self, seed: int, folder: Path, jobs: int = 1, *, show: bool = False) -> None:
        self.seed, self.folder, self.jobs, self._show = seed, folder, jobs, show
        self.outcome = Outcome()
        self._lock = threading.Lock()
        self._began = self._shown = time.monotonic()

    def run(self, families: list[str], cases: int, seconds: float | None = None) -> Outcome:
        """``cases`` in all, the same number of each family; only the first of each begin after ``seconds``."""
        batches = self._batches(families, -(-cases // len(families)), seconds)
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda number: self._work(number, batches), range(self.jobs)))
        for group, finding in list(self.outcome.first.items()):
            if finding.kind in ("memory", "crash", "hang", "library"):
                self.outcome.first[group] = replace(finding, alone=self._happens_alone(finding))
        return self.outcome

    def _batches(self, families: list[str], cases: int, seconds: float | None) -> Iterator[tuple[str, int, int]]:
        for first in range(0, cases, BATCH):
            for family in families:
                if first and seconds is not None and time.monotonic() - self._began > seconds:
                    return
                yield family, first, min(first + BATCH, cases)

    def _work(self, number: int, batches: Iterator[tuple[str, int, int]]) -> None:
        folder = self.folder / str(number)
        folder.mkdir()
        child = Reading(folder)
        try:
            while True:
                with self._lock:
                    batch = next(batches, None)
                if batch is None:
                    return
                for found in child.batch(batch[0], self.seed, *batch[1:]):
                    with self._lock:
                        self._note(batch, found)
        finally:
            child.close()

    def _note(self, batch: tuple[str, int, int], reply: dict[str, Any]) -> None:
        family, outcome = batch[0], self.outcome
        finding = finding_of(family, self.seed, reply)
        if finding is not None:
            if finding.group not in outcome.first and self._show:
                print(finding, file=sys.stderr, flush=True)
            outcome.add(finding)
        if "died" in reply:
            outcome.cases[family] += reply["cases"]
        elif "done" in reply:
            outcome.cases[family] += reply["done"]
            outcome.seconds[family] += reply["seconds"]
            outcome.slowest[family] = max(outcome.slowest.get(family, (0.0, -1)), tuple(reply["slowest"]))
            outcome.largest[family] = max(outcome.largest.get(family, (0, -1)), tuple(reply["largest"]))
            outcome.sums[batch] = reply["sha256"]
            self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if self._show and now - self._shown > SHOW_S:
            self._shown, done = now, self.outcome.cases.total()
            rate, kinds = done / (now - self._began), len(self.outcome.first)
            print(f"{done} cases, {rate:.0f} a second, {kinds} kinds of findings", file=sys.stderr, flush=True)

    def _happens_alone(self, finding: Finding) -> bool:
        return any(again.kind == finding.kind for again in reproduce(finding.family, finding.seed, finding.case))


def finding_of(family: str, seed: int, reply: dict[str, Any]) -> Finding | None:
    """What a child's object says of a case; ``None`` where it says something else."""
    if "died" in reply:
        code, trace = reply["died"], reply["trace"]
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        kind = "hang" if -code in HANGS else "crash"
        frames = FRAME.findall(trace)
        where = f"{'/'.join(Path(frames[0][0]).parts[-2:])}:{frames[0][1]} {frames[0][2]}" if frames else ""
        if kind == "crash" and frames and is_in_hdf5(frames[0][0], int(frames[0][1])):
            kind = "library"
        return Finding(family, seed, reply["case"], kind, f"the process ended by {name}", where, trace)
    if "kind" in reply:
        return Finding(family, seed, reply["case"], reply["kind"], reply["what"], reply["where"], reply["trace"])
    return None


def is_in_hdf5(file: str, number: int) -> bool:
    """Whether the innermost line of Python is h5py's own, or one that calls its compiled part."""
    line = linecache.getline(file, number)
    return "/h5py/" in file or ("/staging/" in file and (".id." in line or "h5py." in line))


def reproduce(family: str, seed: int, case: int) -> list[Finding]:
    """What one case gives in a child of its own."""
    with memory_folder(Path(tempfile.gettempdir())) as folder:
        child = Reading(folder)
        try:
            return [
                finding for found in child.batch(family, seed, case, case + 1)
                if (finding := finding_of(family, seed, found)) is not None
            ]  # fmt: skip
        finally:
            child.close()


def main() -> int:
    """Run a campaign, or one case, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), metavar="S", help="default: drawn")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="children at a time")
    parser.add_argument(
        "--seconds", type=float, metavar="S", help=f"begin no cases after so long but the first {BATCH} of each format"
    )
    parser.add_argument("--formats", default=",".join(FAMILIES), metavar="A,B", help="default: %(default)s")
    parser.add_argument("--reproduce", metavar="FORMAT:SEED:CASE", help="one case, with its whole traceback")
    parser.add_argument("--save", type=Path, metavar="FILE", help="with --reproduce: write the file of the case")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was found as JSON")
    args = parser.parse_args()
    if args.reproduce:
        return _reproduce(args.reproduce, args.save)
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory() as spare, memory_folder(Path(spare)) as folder:
        campaign = Campaign(args.seed, folder, args.jobs, show=True)
        outcome = campaign.run(args.formats.split(","), args.cases, args.seconds)
    found = {"seed": args.seed, **outcome.as_dict()}
    if args.report is not None:
        args.report.write_text(json.dumps(found, indent=1))
    print(json.dumps({key: value for key, value in found.items() if key != "first"}, indent=1))
    for group, finding in outcome.first.items():
        print(f"{outcome.counts[group]} times {finding}")
    return 1 if outcome.bugs else 0


def _reproduce(name: str, save: Path | None) -> int:
    family, seed, case = name.rsplit(":", 2)
    if save is not None:
        save.write_bytes(make_case(find_family(family), family, int(seed), int(case))[0])
    findings = reproduce(family, int(seed), int(case))
    for finding in findings:
        print(f"{finding}\n{finding.trace}")
    print(f"{len(findings)} findings")
    return 1 if any(finding.kind != "library" for finding in findings) else 0
