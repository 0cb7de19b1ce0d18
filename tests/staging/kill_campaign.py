"""Stagings of every kind are killed again and again, at any instant; then nothing is lost, wrong, or left waiting.

``python -m tests.staging.kill_campaign --trials 1000 --seed 7 --srun`` draws a placement, a path, a source with its
transform, ranks, nodes and a launcher for each trial, and some kills: of one rank, of all, of the launcher. After each
kill all that the manifests name must be whole, and the ranks that are left must end soon; at the end the same command
must bring everything. Exit code 1 where a trial found otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.staging.made_sources import EXCLUSIONS, MAKERS, TRANSFORMS, Files, large
from tests.staging.processes import ENVIRON, MEMORY, PACED, PLAIN, contents, journal, named, unfinished

HUNG_S = 30.0
"""A staging of which a process was killed, and that is still there after so long, hangs."""
END_BOUND_S = 1.0
"""From a killed rank to the end of all others it takes less than this on a machine that is not busy otherwise."""
LAST_S = 240.0
"""How long the staging may take that nobody kills."""
SIGNALS = (signal.SIGKILL,) * 4 + (signal.SIGTERM, signal.SIGINT)
LAUNCHERS = ("none", "mpiexec", "mpiexec", "srun")


SOURCES = MAKERS | {"large": large}


@dataclass(frozen=True)
class Kill:
    """A signal to some processes of a staging."""

    who: str
    """``rank`` (one of them), ``all`` or ``launcher``."""
    signal: signal.Signals
    after_s: float
    """From when all ranks have begun; below zero: from the start of the command, so much later."""
    chance: float
    """Which rank, from 0 to 1."""

    @classmethod
    def drawn(cls, dice: random.Random) -> Kill:
        """One of them, drawn."""
        who = dice.choice(("rank", "rank", "all", "launcher"))
        return cls(who, dice.choice(SIGNALS), dice.uniform(-0.2, 0.5), dice.random())


@dataclass
class Trial:
    """What is staged how, and who is killed when; drawn from ``seed`` and ``number``."""

    seed: int
    number: int
    srun: bool

    def __post_init__(self) -> None:
        dice = random.Random(f"{self.seed} {self.number}")
        self.source = dice.choice(sorted(SOURCES))
        self.placement, self.path = dice.choice(("replicate", "shard")), dice.choice(("direct", "exchange"))
        self.launcher = dice.choice([name for name in LAUNCHERS if self.srun or name != "srun"])
        self.ranks = {"none": 1, "srun": 4}.get(self.launcher) or dice.randint(2, 4)
        self.nodes = 2 if self.launcher == "srun" else dice.choice([n for n in (1, 2, 4) if self.ranks % n == 0])
        self.threads, self.pace_s = dice.randint(1, 3), dice.choice((0.05, 0.1, 0.2))
        self.kills = [Kill.drawn(dice) for _ in range(dice.randint(1, 3))]
        self.piece_bytes = dice.choice((1 << 20, 8 << 20)) if self.source == "large" else 10_000

    def command(self, words: list[str], source: Path, out: Path) -> list[str]:
        """Starts the staging by ``words``, a program."""
        before = {
            "none": [],
            "mpiexec": ["mpiexec", "-n", str(self.ranks)],
            "srun": ["srun", "--mpi=pmi2", "-N2", f"-n{self.ranks}"],
        }
        more = ["--simulated-nodes", str(self.nodes)] if self.launcher == "mpiexec" else []
        transform = TRANSFORMS.get(self.source, "")
        more += ["--transform", transform] if transform else []
        more += [word for pattern in EXCLUSIONS.get(self.source, ()) for word in ("--plain", pattern)]
        return [
            *before[self.launcher], *words, str(source), str(out / "{node}"), "--placement", self.placement,
            "--path", self.path, "--threads", str(self.threads), "--piece-bytes", str(self.piece_bytes), *more,
        ]  # fmt: skip


@dataclass
class Outcome:
    """What the trials found."""

    trials: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """By who was killed; ``late`` where the staging had ended before."""
    problems: list[str] = field(default_factory=list)
    """Lost, wrong, hung and slow to end, each with the trial's number."""
    ends_s: list[float] = field(default_factory=list)
    """From the death of a rank to the end of all others."""
    launcher_ends_s: list[float] = field(default_factory=list)
    """From there to the end of the launcher, too, with all that it started."""
    ways: Counter[str] = field(default_factory=Counter)

    def count(self, kind: str) -> int:
        """Problems of one kind."""
        return sum(problem.startswith(kind) for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "trials": self.trials, "kills": dict(self.kills), "ways": dict(sorted(self.ways.items())),
            "lost": self.count("lost"), "wrong": self.count("wrong"), "hung": self.count("hung"),
            "slow": self.count("slow"),
            "end_median_s": statistics.median(self.ends_s) if self.ends_s else None,
            "end_longest_s": max(self.ends_s, default=None), "ends": len(self.ends_s),
            "launcher_end_median_s": statistics.median(self.launcher_ends_s) if self.launcher_ends_s else None,
            "launcher_end_longest_s": max(self.launcher_ends_s, default=None), "problems": self.problems,
        }  # fmt: skip


class Campaign:
    """Trials below ``folder``, which holds the sources."""

    def __init__(
        self, folder: Path, seed: int, environ: dict[str, str], srun: bool, end_bound_s: float = END_BOUND_S
    ) -> None:
        self.folder, self.seed, self.environ, self.srun = folder, seed, environ, srun
        self.end_bound_s = end_bound_s
        self.outcome, self._lock, self._slurm = Outcome(), threading.Lock(), threading.Lock()
        random_bytes = np.random.default_rng(seed)
        self.expected = {name: make(folder / "sources" / name, random_bytes) for name, make in SOURCES.items()}

    def run(self, number: int) -> None:
        """One trial."""
        trial = Trial(self.seed, number, self.srun)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder, self._turn(trial):
            problems = list(self._problems(trial, Path(folder)))
        with self._lock:
            self.outcome.trials += 1
            self.outcome.ways[f"{trial.placement}, {trial.path}"] += 1
            self.outcome.ways[f"launcher {trial.launcher}"] += 1
            self.outcome.ways[f"source {trial.source}"] += 1
            said = [f"{problem} (trial {number} of seed {self.seed})" for problem in problems]
            self.outcome.problems += said
        for problem in said:
            print(problem, file=sys.stderr, flush=True)

    def _turn(self, trial: Trial) -> contextlib.AbstractContextManager[object]:
        """Two jobs at once would wait for each other's cores."""
        return self._slurm if trial.launcher == "srun" else contextlib.nullcontext()

    def _problems(self, trial: Trial, folder: Path) -> Iterator[str]:
        source, expected = self.folder / "sources" / trial.source, self.expected[trial.source]
        for kill in trial.kills:
            process = self._start(trial, PACED, source, folder, PACE_S=trial.pace_s, PACE_FILES=3)
            yield from self._kill(trial, process, folder, kill)
            yield from wrong_of(folder, expected)
        process = self._start(trial, PLAIN, source, folder)
        try:
            _, error = process.communicate(timeout=LAST_S)
        except subprocess.TimeoutExpired:
            end_all(process, folder)
            yield "hung: the last staging"
            return
        if process.returncode != 0:
            yield f"lost: the last staging ended with {process.returncode}: {error.strip()[-300:]}"
            return
        yield from wrong_of(folder, expected)
        found = [contents(node) for node in sorted(folder.iterdir())]
        copies = trial.nodes if trial.placement == "replicate" else 1
        for name, data in expected.items():
            there = [part[name] for part in found if name in part]
            if len(there) != copies:
                yield f"lost: {name} is on {len(there)} nodes and not {copies}"
            if any(part != data for part in there):
                yield f"wrong: {name}"
        yield from (f"wrong: {name} is there" for part in found for name in part.keys() - expected.keys())
        yield from (f"wrong: {path} is left" for node in folder.iterdir() for path in unfinished(node))

    def _start(
        self, trial: Trial, words: list[str], source: Path, folder: Path, **environ: object
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            trial.command(words, source, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=self.environ | {key: str(value) for key, value in environ.items()}, start_new_session=True,
        )  # fmt: skip

    def _kill(self, trial: Trial, process: subprocess.Popen[str], folder: Path, kill: Kill) -> list[str]:
        """Send the signal when its time has come; the problem, if not all ended in time."""
        hung = [f"hung: {kill.who} got {kill.signal.name}"]
        before, deadline = set(begun(folder)), time.monotonic() + LAST_S
        while kill.after_s >= 0 and len(set(begun(folder)) - before) < trial.ranks and process.poll() is None:
            if time.monotonic() > deadline:
                end_all(process, folder)
                return [f"hung: not all ranks have begun after {LAST_S:g} s"]
            time.sleep(0.005)
        time.sleep(abs(kill.after_s))
        ranks = sorted(set(begun(folder)) - before)
        living, late = [pid for pid in ranks if is_running(pid)], process.poll() is not None
        chosen = {"rank": living[int(kill.chance * len(living)) :][:1], "all": living}.get(kill.who) or [process.pid]
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, kill.signal)
        died, others = time.monotonic(), [pid for pid in living if pid not in chosen]
        threading.Thread(target=process.communicate, daemon=True).start()
        while any(map(is_running, others)) and time.monotonic() < died + HUNG_S:
            time.sleep(0.002)
        took = time.monotonic() - died
        # a launcher may end before the last of its ranks does
        while (process.poll() is None or any(map(is_running, ranks))) and time.monotonic() < died + HUNG_S:
            time.sleep(0.005)
        took_all = time.monotonic() - died
        ended = process.poll() is not None and not any(map(is_running, ranks))
        is_measured = len(chosen) == 1 and chosen[0] in ranks and kill.signal == signal.SIGKILL and bool(others)
        with self._lock:
            self.outcome.kills["late" if late else kill.who if chosen != [process.pid] else "launcher"] += 1
            self.outcome.ends_s += [took] if is_measured else []
            self.outcome.launcher_ends_s += [took_all] if is_measured and ended else []
        end_all(process, folder)
        if trial.launcher == "srun":
            self._free_nodes()
        if not ended:
            return hung
        is_slow = is_measured and took >= self.end_bound_s
        return [f"slow: the others ended {took:.2f} s after a rank was killed"] if is_slow else []

    def _free_nodes(self) -> None:
        """Slurm keeps the nodes for an ``srun`` that was killed, for all that it knows."""
        deadline = time.monotonic() + LAST_S
        while time.monotonic() < deadline:
            subprocess.run(["scancel", "--quiet", "--full", "--user", "root"], env=self.environ, check=False)
            queued = subprocess.run(["squeue", "--noheader"], env=self.environ, capture_output=True, check=True).stdout
            if not queued.strip():
                return
            time.sleep(0.1)
        raise RuntimeError(f"Slurm has not ended {queued.decode()}")


def wrong_of(folder: Path, expected: Files) -> Iterator[str]:
    """Files that a manifest names and that are not whole."""
    for node in sorted(folder.iterdir()) if folder.is_dir() else ():
        for name in named(node):
            path = node / name
            if not path.is_file() or path.read_bytes() != expected.get(name):
                yield f"wrong: {name} is named, and is not whole"


def begun(folder: Path) -> list[int]:
    """The ranks that have written down that they begin."""
    return [line["pid"] for node in folder.iterdir() for line in journal(node) if line.get("event") == "start"]


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def end_all(process: subprocess.Popen[str], folder: Path) -> None:
    """Leave nothing behind that would disturb the next staging."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + HUNG_S
    while (left := [pid for pid in begun(folder) if is_running(pid)]) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()


def carry_out(
    trials: int, seed: int, jobs: int, environ: dict[str, str], folder: Path, *, srun: bool,
    end_bound_s: float = END_BOUND_S, show: bool = True,
) -> Outcome:  # fmt: skip
    """Run ``trials``, ``jobs`` at a time; slow is what takes ``end_bound_s`` or more to end after a rank was killed."""
    campaign, started = Campaign(folder, seed, environ, srun, end_bound_s), time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for done, _ in enumerate(pool.map(campaign.run, range(trials)), 1):
            if show and done % 20 == 0:
                left = (time.monotonic() - started) / done * (trials - done)
                found = f"{len(campaign.outcome.problems)} problems"
                print(f"{done} of {trials} trials, {found}, {left:.0f} s left", file=sys.stderr, flush=True)
    return campaign.outcome


@contextlib.contextmanager
def environment(srun: bool, scratch: Path) -> Iterator[dict[str, str]]:
    """What the stagings start with; with ``srun`` two nodes of a Slurm of its own on this machine."""
    with contextlib.ExitStack() as daemons:
        environ = dict(ENVIRON)
        if srun:
            from tests.slurm.conftest import locked, start_munge
            from tests.slurm.daemons import start_slurm

            use = daemons.enter_context(locked("munge-in-use", 1))
            start_munge(daemons, use)
            environ = start_slurm(scratch, daemons).environ | {"PYTHONPATH": ENVIRON["PYTHONPATH"]}
        yield environ


def main() -> int:
    """Run a campaign and print what it found; exit code 1 where a trial has a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), metavar="S", help="default: drawn")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trials at a time")
    parser.add_argument("--srun", action="store_true", help="some of them on two nodes of a real Slurm; needs root")
    parser.add_argument(
        "--end-bound-s", type=float, default=END_BOUND_S, metavar="S",
        help="count it as slow where ranks take so long to end after one was killed; raise it where other work keeps "
        "the cores busy (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was found as JSON")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(dir=place) as folder,
        tempfile.TemporaryDirectory() as scratch,
        environment(args.srun, Path(scratch)) as environ,
    ):
        outcome = carry_out(
            args.trials, args.seed, args.jobs, environ, Path(folder), srun=args.srun, end_bound_s=args.end_bound_s
        )
    found = {"seed": args.seed, **outcome.as_dict()}
    if args.report is not None:
        args.report.write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
