"""Delays at random steps of real trainings are in the right columns of ``ranks.csv``, and nothing else is."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcbench.cli.main import main
from hpcbench.phase_names import MESSAGE_KINDS, PHASES, STEP_PHASES
from hpcbench.results.run_folder import RunFolder

from .delays import EXAMPLES, WARM_UP, Delay

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]

PROGRAM = Path(__file__).with_name("programs") / "delayed_trainings.py"
STEPS, COLD, PARTS = 8, 3, (4, 8)
"""Steps, those of them that do not count, and those that end a part of an epoch, where losses are summed."""
SETTINGS = (
    "--preset", "smoke", "--seed", "5", "--parallel.threads", "1", "--data.workers", "0", "--train.baselines", "false",
    "--train.page", "false", "--train.checkpoint_every", "0", "--train.target", "null", "--train.local_batch_size", "1",
    "--train.precision", "32-true", "--train.evaluations_per_epoch", "3", "--train.max_steps", str(STEPS),
    "--measure.warmup_steps", str(COLD),
)  # fmt: skip
SIZES = ("--simulate.train_samples", "24", "--simulate.validation_samples", "2")
COSMOFLOW, DEEPCAM = ("train", "cosmoflow"), ("train", "deepcam", "--model.width_factor", "0.125")
"""Without and with batch norm."""
NOISE = ("--train.noise_scale_every", "1")
MESHES = {
    "one process": (1, COSMOFLOW),
    "simulated ranks": (1, (*COSMOFLOW, "--parallel.simulated_ranks", "2")),
    "data": (2, COSMOFLOW),
    "batch norm groups": (2, (*DEEPCAM, "--train.batchnorm_group_size", "2")),
    "spatial 2": (2, (*DEEPCAM, "--parallel.spatial", "2")),
    "sharded": (2, (*COSMOFLOW, "--parallel.shard_states", "true", "--optim.name", "nvlamb")),
    "noise scale of parts": (2, (*COSMOFLOW, *NOISE)),
    "noise scale, split": (2, (*DEEPCAM, "--parallel.spatial", "2", "--train.accumulation", "2", *NOISE)),
    "four ranks": (4, (*DEEPCAM, "--parallel.spatial", "2")),
}
"""How many ranks train, and what."""
WORK = {"in input": "input_wait", "in forward": "compute", "in optimizer": "optimizer"}
"""The phase in which a rank is slow."""
KINDS = {
    "data": ["gradients", "losses"], "batch norm groups": ["batch_norm"],
    "spatial 2": ["halo", "batch_norm", "gradients"], "sharded": ["sharding", "norms"],
    "noise scale of parts": ["noise_rows"], "noise scale, split": ["noise_scale"], "four ranks": ["halo", "gradients"],
}  # fmt: skip
"""Messages that a rank is late for, or that take it longer."""
COLUMN = {"norms": "sharding", "noise_rows": "noise_scale"}
"""The column of a kind whose name is another."""
LATE_IN = {"losses": "", "noise_rows": "", "norms": "optimizer"}
"""The phase before messages of a kind where it is not ``compute``; between two steps it has no name."""
OUTSIDE = {"init": WARM_UP, "finalize": EXAMPLES}
"""What makes passes that belong to no step, by the phase that they are."""
BOTH_PASSES = ("halo", "batch_norm", "sharding")
"""Messages of the forward pass and of the backward pass."""

WITHOUT = {"input": PARTS, "sharding": (PARTS[0] + 1,)}
"""Steps that do without. A batch is read while the step before its own counts, unless an evaluation comes between;
after that one the parameters are together, and the next step has none to gather."""


@dataclass(frozen=True)
class Case:
    """A run, and where one of its ranks is delayed: in steps, or in a phase ``outside``; ``launched`` by mpiexec."""

    mesh: str
    place: str
    launched: bool = False
    outside: str = ""

    @property
    def kind(self) -> str:
        """The kind of message, or of work."""
        return self.place.split()[1]

    @property
    def columns(self) -> set[str]:
        """What grows on the rank that is delayed, beside the wall time."""
        if self.place in WORK:
            return {WORK[self.place]}
        if self.place.startswith("before"):
            return {LATE_IN.get(self.kind, "compute")} - {""}
        return {"communication", COLUMN.get(self.kind, self.kind)}

    def __str__(self) -> str:
        outside = f", {self.outside}" if self.outside else ""
        return f"{'mpiexec, ' if self.launched else ''}{self.mesh}: {self.place}{outside}"


CASES = [
    *(Case(mesh, place) for mesh in ("one process", "simulated ranks", "data") for place in WORK),
    *(Case(mesh, f"{when} {kind}") for mesh, kinds in KINDS.items() for kind in kinds for when in ("before", "in")),
]
OUTSIDE_CASES = [
    *(Case("spatial 2", place, outside=phase) for place in ("before halo", "in halo") for phase in OUTSIDE),
    Case("sharded", "in sharding", outside="init"),
]
LAUNCHED = Case("spatial 2", "in halo", launched=True)


@dataclass(frozen=True)
class Run:
    """What a run is asked for, and its folder."""

    case: Case
    folder: Path
    slow: int
    """The rank that is delayed."""
    delays: list[Delay]
    words: list[str]

    def as_asked(self) -> dict[str, Any]:
        """As the program takes it."""
        delays, ranks = [asdict(each) for each in self.delays], MESHES[self.case.mesh][0]
        asked = {"ranks": ranks, "rank": self.slow, "place": self.case.place, "delays": delays, "words": self.words}
        return {"folder": str(self.folder), **asked}


def drawn(case: Case, folder: Path, data: Path) -> Run:
    """A run with delays in a cold step and two others, or where losses are summed."""
    draw = random.Random(f"{os.environ['HPCBENCH_SEED']} {case}")
    ranks, words = MESHES[case.mesh]
    warm = [step for step in range(COLD + 1, STEPS + 1) if step not in WITHOUT.get(case.kind, ())]
    steps = list(PARTS) if case.kind in ("losses", "noise_rows") else [COLD - 1, *draw.sample(warm, 2)]
    passes = [False, True] if case.kind in BOTH_PASSES else [case.place == "before gradients"]
    draw.shuffle(passes)
    if case.outside:
        steps, passes = [OUTSIDE[case.outside]], [False]
    delays = [
        Delay(step, backward, draw.random(), draw.uniform(0.5, 2.0))
        for step, backward in zip(steps, (passes * len(steps))[-len(steps) :], strict=True)
    ]
    np.zeros(1 + 2 * ranks).tofile(folder.with_suffix(".clock"))
    arguments = [*words, "--data.root", str(data / words[1]), *SETTINGS]
    return Run(case, folder, draw.randrange(ranks), delays, arguments)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small set of each application."""
    root = tmp_path_factory.mktemp("data")
    for app in ("cosmoflow", "deepcam"):
        words = ["data", "simulate", app, "--preset", "smoke", "--out", str(root / app), "--processes", "1", *SIZES]
        assert main(words) == 0
    return root


def train(runs: list[Run], base: Path, *before: str) -> None:
    """Do the runs, behind the words of a launcher or in ranks as ``--parallel.devices`` starts them."""
    asked = base / "asked.json"
    asked.write_text(json.dumps([each.as_asked() for each in runs]))
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [*before, sys.executable, str(PROGRAM), str(asked)], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Case, Run]:
    """All cases but that of mpiexec."""
    base = tmp_path_factory.mktemp("runs")
    made = {case: drawn(case, base / str(number), data) for number, case in enumerate((*CASES, *OUTSIDE_CASES))}
    train(list(made.values()), base)
    return made


def asked_and_done(run: Run) -> list[float]:
    """The seconds of the delays of a run, all of which were made."""
    done = [json.loads(path.read_text()) for path in sorted(run.folder.glob("delays-*.json"))]
    asked = [each.seconds for each in sorted(run.delays, key=lambda each: each.step)]
    assert done == [asked if rank == run.slow else [] for rank in range(len(done))]
    return asked


def check(run: Run) -> None:
    """Every column has what was injected, and nothing else: the clock moves in delays alone."""
    asked = asked_and_done(run)
    warm_s = sum(each.seconds for each in run.delays if each.step > COLD)
    for row in RunFolder.open(run.folder).read_ranks().to_dict("records"):
        assert (row["steps"], warm_s >= 0.5) == (STEPS - COLD, True)
        more = {"wall", *(run.case.columns if row["rank"] == run.slow else {"waiting"})}
        for name in ("wall", *STEP_PHASES, *MESSAGE_KINDS):
            for column, seconds in ((f"{name}_s", warm_s), (f"run_{name}_s", sum(asked))):
                assert row[column] == pytest.approx(seconds if name in more else 0, abs=1e-6), (row["rank"], column)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_delay_is_in_its_column_and_makes_the_others_wait(case: Case, runs: dict[Case, Run]) -> None:
    check(runs[case])


@pytest.mark.parametrize("case", OUTSIDE_CASES, ids=str)
def test_a_delay_outside_of_steps_is_in_the_phase_around_it(case: Case, runs: dict[Case, Run]) -> None:
    run = runs[case]
    (seconds,), folder = asked_and_done(run), RunFolder.open(run.folder)
    found = folder.read_summary().phases_s
    assert found == pytest.approx({name: seconds if name == case.outside else 0 for name in PHASES}, abs=1e-6)
    if case.outside != "init":
        return
    for row in folder.read_ranks().to_dict("records"):
        for name in ("wall", *PHASES, *MESSAGE_KINDS):
            assert row[f"run_{name}_s"] == pytest.approx(seconds if name in ("wall", "init") else 0, abs=1e-6), name
        assert [row[f"{name}_s"] for name in STEP_PHASES] == pytest.approx([0] * len(STEP_PHASES), abs=1e-6)


@pytest.mark.mpi
def test_a_delay_between_ranks_of_mpiexec(mpiexec: str, data: Path, tmp_path: Path) -> None:
    run = drawn(LAUNCHED, tmp_path / "run", data)
    train([run], tmp_path, mpiexec, "-n", "2")
    check(run)
