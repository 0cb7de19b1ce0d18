"""Small real runs that end in every way: at their target or last epoch, by a signal, killed and resumed, in ranks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hpcbench.cli.main import main
from tests.hpcbench.train.rank_processes import RankProcesses

from .page_applications import PAGES
from .page_meters import prepare

SETTINGS = [
    "--preset", "smoke", "--seed", "5", "--optim.lr", "0.003", "--train.max_epochs", "2",
    "--parallel.threads", "1", "--measure.warmup_steps", "2", "--train.local_batch_size", "4",
]  # fmt: skip
STEPS, COLD = 12, 2
"""Optimizer steps of most runs, and those at the start of each attempt that are not measured."""
EASY = ["--train.target", "10"]
"""Of CosmoFlow: any first evaluation meets it."""
PROBE = ["--measure.probe", "true"]
ENDING = """
import os, signal, sys, threading, time
from hpcbench.cli.main import main
from hpcbench.train import checkpoint_io
from hpcbench.train.loop import Trainer
step, number, written = int(sys.argv[1]), getattr(signal, sys.argv[2]), sys.argv[3] == "written"
def write_marker(*words, write=checkpoint_io.write_marker):
    time.sleep(0.2 if written else 600)  # the loop goes on meanwhile
    write(*words)
checkpoint_io.write_marker = write_marker
def finish_step(self, samples, finish=Trainer.finish_step):
    finish(self, samples)
    if self.state.step == step:
        for writer in threading.enumerate():
            writer.name != "checkpoint" or not written or writer.join()
        os.kill(os.getpid(), number)
Trainer.finish_step = finish_step
sys.exit(main(sys.argv[4:]))
"""
"""A training that gets a signal after an optimizer step: when the checkpoint before it is on the disk ("written"), or
while it is being written."""


@dataclass(frozen=True)
class RealRun:
    """A run folder, and when its processes worked on it, as an observer outside saw it."""

    folder: Path
    began: float
    ended: float


class RealRuns:
    """Makes each run of ``application`` when it is first asked for; those that ``reached`` is in the name of reach it.

    Their epochs have six steps. Those that ``fork`` makes cost a process that has torch already.
    """

    def __init__(self, root: Path, application: str) -> None:
        self.root, self.made = root, dict[str, RealRun]()
        self.application, self.settings = application, [*SETTINGS, "--train.target", str(PAGES[application].target)]
        small = ["--simulate.train_samples", "24", "--simulate.validation_samples", "10", "--processes", "1"]
        data = ["data", "simulate", application, "--preset", "smoke", "--out", str(root / "data"), *small]
        assert main(data) == 0

    def __getitem__(self, name: str) -> RealRun:
        if name not in self.made:
            folder, began = self.root / name, time.time()
            # Ended by the signal within an epoch; the first two are then killed within the next.
            if name in ("resumed", "killed_writing", "reached_resumed"):
                before = self["signal"]
                shutil.copytree(before.folder, folder)
                began = before.began
            getattr(self, name)(folder)
            self.made[name] = RealRun(folder, began, time.time())
        return self.made[name]

    def fresh(self, folder: Path) -> None:
        self.train(folder, *self.settings, *PROBE)

    def signal(self, folder: Path) -> None:
        self.train(folder, *self.settings, before=["-c", ENDING, "3", "SIGTERM", "written"], code=128 + signal.SIGTERM)

    def resumed(self, folder: Path) -> None:
        self.killed(folder, "written")

    def killed_writing(self, folder: Path) -> None:
        self.killed(folder, "under way")

    def killed(self, folder: Path, checkpoint: str) -> None:
        """Resumed, killed, and resumed to its end."""
        kill = ["-c", ENDING, "8", "SIGKILL", checkpoint]
        self.train(folder, "--resume", "--preset", "smoke", before=kill, code=-signal.SIGKILL)
        self.train(folder, "--resume", "--preset", "smoke")

    def diverged(self, folder: Path) -> None:
        # The largest rate that a configuration may hold, times the largest factor.
        wild = ("--optim.lr", "1e4", "--schedule.shape", "multistep", "--schedule.milestones", "[0]")
        self.train(folder, *self.settings, *wild, "--schedule.factors", "[1e4]", code=1)
        assert main(["report", str(folder)]) == 0

    def spatial(self, folder: Path) -> None:
        self.train(folder, *self.settings, *PROBE, "--parallel.spatial", "2", ranks=2)

    def sharded(self, folder: Path) -> None:
        self.train(folder, *self.settings, "--train.local_batch_size", "2", "--parallel.shard_states", "true", ranks=2)

    def simulated(self, folder: Path) -> None:
        self.train(folder, *self.settings, "--train.local_batch_size", "2", "--parallel.simulated_ranks", "3")

    def staged(self, folder: Path) -> None:
        self.train(folder, *self.settings, "--staging.destination", str(self.root / "node"))

    def noise_scale(self, folder: Path) -> None:
        self.train(folder, *self.settings, "--train.noise_scale_every", "1", "--train.accumulation", "2")

    def mesh(self, folder: Path) -> None:
        self.train(folder, *self.settings, *PROBE, "--parallel.spatial", "2", ranks=4)

    def resumed_ranks(self, folder: Path) -> None:
        stop = ["-c", ENDING, "5", "SIGTERM", "written"]
        settings = (*self.settings, *PROBE, "--train.local_batch_size", "2")
        self.train(folder, *settings, before=stop, ranks=2, code=128 + signal.SIGTERM)
        self.train(folder, "--resume", "--preset", "smoke", ranks=2)

    def reached(self, folder: Path) -> None:
        """The best that the same training comes to, so that the target is not met before."""
        page = PAGES[self.application]
        scores = pd.read_csv(self["fresh"].folder / "epochs.csv", dtype=str)[page.metric].map(float)
        self.fork(folder, *self.settings, "--train.target", repr(page.best(scores)), code=0)

    def reached_within(self, folder: Path) -> None:
        self.fork(folder, *self.settings, *EASY, "--train.evaluations_per_epoch", "2", code=0)

    def reached_resumed(self, folder: Path) -> None:
        self.fork(folder, "--resume", "--preset", "smoke", *EASY, code=0)

    def signal_later(self, folder: Path) -> None:
        self.fork(folder, *self.settings, end=(8, "SIGUSR1"))

    def diverged_later(self, folder: Path) -> None:
        """At the rate of the others for an epoch, then at the one of ``diverged``."""
        wild = ("--optim.lr", "1e4", "--schedule.shape", "multistep", "--schedule.milestones", "[0, 1]")
        self.fork(folder, *self.settings, *wild, "--schedule.factors", "[3e-7, 1e4]", code=1)
        assert main(["report", str(folder)]) == 0

    def spatial_signal(self, folder: Path) -> None:
        self.fork(folder, *self.settings, "--parallel.spatial", "2", ranks=2, end=(3, "SIGTERM"))

    def spatial_later(self, folder: Path) -> None:
        self.fork(folder, *self.settings, "--parallel.spatial", "2", ranks=2, end=(8, "SIGTERM"), busy=(25.0, 75.0))

    def sharded_signal(self, folder: Path) -> None:
        shards = ("--train.local_batch_size", "2", "--parallel.shard_states", "true")
        self.fork(folder, *self.settings, *shards, ranks=2, end=(3, "SIGUSR1"))

    def sharded_later(self, folder: Path) -> None:
        shards = ("--train.local_batch_size", "2", "--parallel.shard_states", "true")
        self.fork(folder, *self.settings, *shards, ranks=2, end=(8, "SIGTERM"))

    def spatial_resumed(self, folder: Path) -> None:
        self.interrupted(folder, "--parallel.spatial", "2", ranks=2)

    def sharded_resumed(self, folder: Path) -> None:
        self.interrupted(folder, "--train.local_batch_size", "2", "--parallel.shard_states", "true", ranks=2)

    def simulated_resumed(self, folder: Path) -> None:
        self.interrupted(folder, "--train.local_batch_size", "2", "--parallel.simulated_ranks", "2")

    def interrupted(self, folder: Path, *settings: str, ranks: int = 1) -> None:
        """Ended by a signal after a step that is drawn, the last one among them, and resumed."""
        step = random.Random(f"{os.environ['HPCBENCH_SEED']} {folder.name}").randint(1, STEPS)
        print(f"{folder.name}: a signal after step {step}")
        self.fork(folder, *self.settings, *settings, ranks=ranks, end=(step, "SIGTERM"))
        self.fork(folder, "--resume", "--preset", "smoke", ranks=ranks)

    def metered(self, folder: Path) -> None:
        self.fork(folder, *self.settings, busy=(25.0,))

    def metered_signal(self, folder: Path) -> None:
        self.fork(folder, *self.settings, end=(3, "SIGTERM"), busy=(25.0,))

    def metered_resumed(self, folder: Path) -> None:
        """Resumed where ``metered_signal`` ended, killed within the next epoch, and resumed to its end."""
        shutil.copytree(self["metered_signal"].folder, folder)
        self.fork(folder, "--resume", "--preset", "smoke", end=(8, "SIGKILL"), busy=(75.0,))
        self.fork(folder, "--resume", "--preset", "smoke", busy=(75.0,))

    def metered_ranks(self, folder: Path) -> None:
        self.fork(folder, *self.settings, "--train.local_batch_size", "2", ranks=2, busy=(25.0, 75.0))

    def fork(
        self, folder: Path, *settings: str, ranks: int = 1, code: int = 3, end: tuple[int, str] | None = None,
        busy: tuple[float, ...] = (),
    ) -> None:  # fmt: skip
        """Train in ranks of ours; where ``prepare`` is told to ``end`` them, they end by that signal."""
        if end is not None:
            code = -signal.SIGKILL if end[1] == "SIGKILL" else 128 + signal.Signals[end[1]]
        words = ["train", self.application, "--data.root", str(self.root / "data"), "--run-dir", str(folder), *settings]
        processes = RankProcesses(ranks, [words], (f"{prepare.__module__}:{prepare.__name__}", [end, busy]))
        said, _ = processes.communicate()
        assert processes.returncode == code, said

    def train(
        self, folder: Path, *settings: str, before: list[str] | None = None, ranks: int = 1, code: int = 3
    ) -> None:
        """Train in processes of their own, which end with ``code``: 3 where the target is not reached."""
        launcher = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks)] if ranks > 1 else []
        words = ["train", self.application, "--data.root", str(self.root / "data"), "--run-dir", str(folder), *settings]
        done = subprocess.run(
            [*launcher, sys.executable, *(before or ["-m", "hpcbench"]), *words],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
