"""What every benchmark shares: paired timing, and a result file that names machine, commit and command."""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

from hpcbench.train.huge_pages import use_huge_pages

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # else staging.py beside this file would hide the package staging
PACKAGES = (
    "torch",
    "lightning-fabric",
    "lightning",
    "numpy",
    "h5py",
    "deflate",
    "fastcrc",
    "tfrecord",
    "numba",
    "timm",
)


@dataclass(frozen=True)
class Paired:
    """Two ways to do one task, timed alternately so that both see the same disturbances. All times in seconds."""

    ours: str
    peer: str
    rounds: int
    ours_median_s: float
    peer_median_s: float
    ours_s: list[float]
    peer_s: list[float]
    speedup_median: float
    """Median over rounds of peer time over our time."""
    speedup_min: float
    speedup_max: float
    target: float | None
    """Smallest speed-up that is required."""

    @property
    def met(self) -> bool:
        """Whether the median speed-up reaches the target."""
        return self.target is None or self.speedup_median >= self.target

    def __str__(self) -> str:
        asked = "" if self.target is None else f", target {self.target:g}: {'met' if self.met else 'MISSED'}"
        return (
            f"{self.ours} {self.ours_median_s * 1e3:.1f} ms, {self.peer} {self.peer_median_s * 1e3:.1f} ms: "
            f"{self.speedup_median:.2f} times (from {self.speedup_min:.2f} to {self.speedup_max:.2f}){asked}"
        )


def paired(
    ours: tuple[str, Callable[[], object]],
    peer: tuple[str, Callable[[], object]],
    *,
    rounds: int = 9,
    warmup: int = 1,
    repeats: int = 1,
    target: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Paired:
    """Time both callables ``rounds`` times, changing their order every round, after ``warmup`` calls of each.

    Every timing is the mean of ``repeats`` calls in a row, for tasks that a run repeats without a pause. ``clock`` may
    be ``time.process_time``: processor time, which busy neighbours disturb less.
    """
    for _ in range(warmup):
        ours[1]()
        peer[1]()
    ours_s, peer_s = [], []
    for index in range(rounds):
        if index % 2:
            peer_s.append(seconds(peer[1], repeats, clock))
            ours_s.append(seconds(ours[1], repeats, clock))
        else:
            ours_s.append(seconds(ours[1], repeats, clock))
            peer_s.append(seconds(peer[1], repeats, clock))
    return compared(ours[0], peer[0], ours_s, peer_s, target)


def compared(ours: str, peer: str, ours_s: list[float], peer_s: list[float], target: float | None = None) -> Paired:
    """Compare two ways that were timed alternately, round by round."""
    ratios = [slow / fast for slow, fast in zip(peer_s, ours_s, strict=True)]
    return Paired(
        ours=ours,
        peer=peer,
        rounds=len(ratios),
        ours_median_s=statistics.median(ours_s),
        peer_median_s=statistics.median(peer_s),
        ours_s=ours_s,
        peer_s=peer_s,
        speedup_median=statistics.median(ratios),
        speedup_min=min(ratios),
        speedup_max=max(ratios),
        target=target,
    )


def seconds(call: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the time of one call by ``clock``, as the mean of ``repeats`` in a row."""
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


class Worker:
    """A process that runs the calling script with ``arguments``, and does one unit of work for each line it is sent.

    If the sides of a comparison have an allocator or a memory peak of their own, each needs a process of its own.
    The process starts as ``hpcbench`` does, with huge pages for its tensors, unless it is ``plain``.
    ``serve`` is the other end. ``answers`` keeps what each unit reported.
    """

    def __init__(self, *arguments: str, plain: bool = False) -> None:
        command = [sys.executable, str(Path(sys.argv[0]).resolve()), "--worker", *arguments]
        environment = dict(os.environ)
        if not plain:
            use_huge_pages(environment)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.answers: list[dict[str, float]] = []

    def __call__(self) -> None:
        """Request one unit of work, and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.answers.append(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def answers() -> TextIO:
    """Reserve standard output for ``serve``: from now on, all else that this process prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def serve(work: Callable[[], object], out: TextIO) -> None:
    """Do ``work`` for every line of standard input; report its processor seconds and the process's peak memory."""
    for _ in sys.stdin:
        start = time.process_time()
        work()
        busy = time.process_time() - start
        print(json.dumps({"processor_s": busy, "peak_bytes": peak_bytes()}), file=out, flush=True)


def peak_bytes() -> int:
    """Return the peak resident memory of this process. Not getrusage's, which starts from that of the parent."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def machine() -> dict[str, Any]:
    """Return processor, cores that this process may use, memory, accelerators if torch is loaded, and versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "accelerators": _accelerators(),
        "load_1_5_15_min": os.getloadavg(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: installed_version for name in PACKAGES if (installed_version := _version(name))},
    }


def commit(root: Path = ROOT) -> str:
    """Return the commit of the code, with ``-dirty`` if tracked files differ from it; ``unknown`` outside a clone.

    Results do not count: a benchmark that writes twice has already changed its own file.
    """
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}-dirty" if changed else head


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write_results(name: str, results: dict[str, Any]) -> Path:
    """Write ``results`` with machine, commit and command to ``results/<name>.json``; dataclasses become objects."""
    plain = {key: asdict(value) if isinstance(value, Paired) else value for key, value in results.items()}
    script = Path(sys.argv[0]).resolve()
    shown = script.relative_to(ROOT) if script.is_relative_to(ROOT) else Path(script.name)
    record = {
        "command": shlex.join(["python", str(shown), *sys.argv[1:]]),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "results": plain,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _accelerators() -> list[str]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.accelerator.is_available():
        return []
    device = torch.get_device_module(torch.accelerator.current_accelerator())
    return [device.get_device_name(index) for index in range(torch.accelerator.device_count())]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
