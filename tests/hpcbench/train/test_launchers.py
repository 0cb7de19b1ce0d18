"""One training, started in every way: the same losses and metrics; and launched ranks that fail, fail together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from hpcbench.cli.main import main
from hpcbench.results.checkpoint_files import complete
from hpcbench.results.run_folder import RunFolder
from tests.open_mpi import OpenMpi

pytestmark = pytest.mark.slow

FIXED = ["--parallel.threads", "1", "--train.baselines", "false", "--train.page", "false", "--seed", "5",
         "--train.precision", "64-true", "--train.max_epochs", "2", "--train.target", "null",
         "--model.dropout", "0.5", "--data.augment"]  # fmt: skip
DELAYED_EXIT = Path(__file__).parents[2] / "staging" / "programs" / "delayed_exit.py"
Launch = Callable[..., "Ended"]


@dataclass(frozen=True)
class Ended:
    """What launched ranks left: exit code, standard error, and seconds."""

    code: int
    errors: str
    seconds: float

    @property
    def said(self) -> list[str]:
        """The suite's own lines."""
        return [line for line in self.errors.splitlines() if line.startswith("hpcbench: ")]


def command(app: str, data: Path, folder: Path, *settings: str) -> list[str]:
    """The command line of a run."""
    return ["train", app, "--preset", "smoke", "--data.root", str(data), "--run-dir", str(folder), *settings]


def launched(before: list[str], words: list[str]) -> Ended:
    """Run ``hpcbench words`` behind the words of a launcher, and wait."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    done = subprocess.run(
        [*before, "-m", "hpcbench", *words], env=environ, capture_output=True, text=True, timeout=180, check=False
    )
    return Ended(done.returncode, done.stderr, time.monotonic() - started)


def launcher(name: str, request: pytest.FixtureRequest) -> tuple[list[str], list[str]]:
    """What starts two ranks: words before ``-m hpcbench`` and settings after it."""
    if name == "devices":
        return [sys.executable], ["--parallel.devices", "2"]
    if name == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"], []
    if name == "mpirun":
        return [*request.getfixturevalue("open_mpi").command, "-np", "2", sys.executable], []
    return [request.getfixturevalue("mpiexec"), "-n", "2", sys.executable], []


LAUNCHED = ["torchrun", pytest.param("mpiexec", marks=pytest.mark.mpi)]
LAUNCHERS = ["devices", *LAUNCHED, pytest.param("mpirun", marks=pytest.mark.mpi)]
SOURCES = {"devices": "torchrun", "torchrun": "torchrun", "mpiexec": "PMI", "mpirun": "PMIX"}
"""The last one is Open MPI's."""


def losses(folder: Path) -> list[float]:
    return [float(loss) for loss in RunFolder.open(folder).read_steps()["loss"]]


def metrics(folder: Path) -> dict[str, float]:
    return RunFolder.open(folder).read_summary().metrics


@pytest.fixture(scope="module")
def one_process(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of one process with a global batch of 8."""
    folder = tmp_path_factory.mktemp("one") / "run"
    assert main(command("cosmoflow", cosmos, folder, *FIXED, "--train.local_batch_size", "8")) == 0
    return folder


@pytest.fixture(scope="module")
def two_ranks(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on the two ranks of ``--parallel.devices 2``."""
    folder = tmp_path_factory.mktemp("two") / "run"
    words = command("cosmoflow", cosmos, folder, *FIXED, "--train.local_batch_size", "4", "--parallel.devices", "2")
    assert (ended := launched([sys.executable], words)).code == 0, ended.errors
    return folder


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_trains_as_one_process_does(
    name: str, cosmos: Path, one_process: Path, two_ranks: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    before, settings = launcher(name, request)
    folder = two_ranks
    if name != "devices":
        folder = tmp_path / "run"
        words = command("cosmoflow", cosmos, folder, *FIXED, "--train.local_batch_size", "4", *settings)
        assert (ended := launched(before, words)).code == 0, ended.errors
    np.testing.assert_allclose(losses(folder), losses(one_process), rtol=1e-12)
    assert metrics(folder) == pytest.approx(metrics(one_process), rel=1e-12)
    assert losses(folder) == losses(two_ranks)
    assert metrics(folder) == metrics(two_ranks)
    summary = RunFolder.open(folder).read_summary()
    assert (summary.world_size, summary.nodes, summary.ranks_per_node, summary.threads) == (2, 1, 2, 1)
    record = json.loads((folder / "environment.json").read_text())
    assert (record["ranks"], record["launched_by"]) == (2, SOURCES[name])


@pytest.mark.parametrize(
    ("name", "setting", "value", "code"),
    [
        ("torchrun", "train.target", "1e9", 0),
        *(
            pytest.param("mpiexec", *each, marks=pytest.mark.mpi)
            for each in (("train.target", "1e9", 0), ("train.target", "1e-9", 3), ("parallel.simulated_nodes", "5", 2))
        ),
    ],
)
def test_ranks_end_before_the_interpreter_is_torn_down(
    name: str, setting: str, value: str, code: int, cosmos: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Threads of gloo that outlive it kill the process, once in some hundred ends."""
    before, settings = launcher(name, request)
    program = tmp_path / "program.py"
    program.write_text(
        "import atexit, sys\nfrom hpcbench.cli.main import main\natexit.register(print, 'torn down')\n"
        "sys.exit(main())\n"
    )
    words = command("cosmoflow", cosmos, tmp_path / "run", *FIXED, "--train.max_epochs", "1", *settings)
    words = [*words, "--train.local_batch_size", "4", f"--{setting}", value]
    done = subprocess.run([*before, str(program), *words], env={**os.environ, "OMP_NUM_THREADS": "1"},
                          capture_output=True, text=True, timeout=180, check=False)  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "torn down" not in done.stdout


@pytest.fixture(scope="module")
def climate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 training and 5 validation samples of 48 x 64 x 16."""
    root = tmp_path_factory.mktemp("data") / "deepcam"
    words = ["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(root), "--processes", "1"]
    assert main([*words, "--simulate.train_samples", "8", "--simulate.validation_samples", "5"]) == 0
    return root


def test_launchers_agree_where_batch_norm_is_local_to_ranks(
    climate: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Batch statistics of two ranks are not those of one process, but do not depend on who started the ranks."""
    fixed = [word for word in FIXED if word not in ("--model.dropout", "0.5", "--data.augment")]
    for name in ("devices", "torchrun"):
        before, settings = launcher(name, request)
        words = command("deepcam", climate, tmp_path / name, *fixed, "--train.local_batch_size", "2", *settings)
        assert (ended := launched(before, words)).code == 0, ended.errors
    assert losses(tmp_path / "devices") == losses(tmp_path / "torchrun")
    assert metrics(tmp_path / "devices") == metrics(tmp_path / "torchrun")
    assert len(losses(tmp_path / "devices")) == 4
    scores = np.load(tmp_path / "devices" / "scores.npz", allow_pickle=False)["scores"].reshape(5, 3, 3)
    # True positives and false negatives of all classes are all pixels of a sample.
    assert (scores[:, :, [0, 2]].sum(axis=(1, 2)) == 48 * 64).all()


def signalled(before: list[str], cosmos: Path, run: Path) -> tuple[int, str]:
    """Exit code and output of two ranks whose launcher gets SIGTERM after their first checkpoint."""
    settings = ["--train.max_epochs", "1000", "--train.local_batch_size", "1", "--parallel.threads", "1"]
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "hpcbench", *command("cosmoflow", cosmos, run, *settings)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not complete(run / "checkpoints"):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.mpi
def test_a_signal_to_mpiexec_ends_the_run_in_order(cosmos: Path, tmp_path: Path, mpiexec: str) -> None:
    code, output = signalled([mpiexec, "-n", "2"], cosmos, tmp_path / "run")
    assert code == 128 + signal.SIGTERM, output
    folder = RunFolder.open(tmp_path / "run")
    # Rank 0 tells of its own signal, or of another rank's, whichever it learns first.
    assert folder.read_summary().reason in ("signal SIGTERM", "rank 1: Aborted: signal SIGTERM")
    assert last_event(folder) == ("run_stop", "aborted")


@pytest.mark.mpi
def test_a_signal_at_which_mpirun_kills_its_ranks_leaves_a_run_that_goes_on(
    cosmos: Path, tmp_path: Path, open_mpi: OpenMpi
) -> None:
    """Open MPI's launcher does not wait for them, and its exit code is 1."""
    run = tmp_path / "run"
    code, output = signalled([*open_mpi.command, "-np", "2"], cosmos, run)
    assert code not in (0, 2, 3), output
    epochs = max(json.loads(path.read_text())["epoch"] for path in (run / "checkpoints").glob("*.json"))
    one_more = ("--resume", "--train.max_epochs", str(epochs + 1), "--train.target", "null")
    ended = launched([*open_mpi.command, "-np", "2", sys.executable], command("cosmoflow", cosmos, run, *one_more))
    assert ended.code == 0, ended.errors
    summary = RunFolder.open(run).read_summary()
    assert (summary.epochs, summary.resumed) == (epochs + 1, 1)


def last_event(folder: RunFolder) -> tuple[str, str]:
    """Key and status of the last line of the official log."""
    last = json.loads(folder.mllog.read_text().splitlines()[-1].removeprefix(":::MLLOG "))
    return last["key"], last["metadata"]["status"]


@pytest.mark.mpi
def test_a_rank_that_exits_later_than_others_does_not_spoil_the_run(mpiexec: str, cosmos: Path, tmp_path: Path) -> None:
    words = command("cosmoflow", cosmos, tmp_path / "run", *FIXED)
    late = [sys.executable, str(DELAYED_EXIT), "0.5"]
    done = launched([mpiexec, "-n", "2", *late], words)
    assert (done.code, done.errors.splitlines().count("left")) == (0, 2), done.errors
