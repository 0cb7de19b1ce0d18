"""Launched ranks: evaluation of samples that they do not divide, and failures that they meet together."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from tests.hpcbench.train.test_launchers import FIXED, command, last_event, launched, losses, metrics

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]


def test_evaluation_is_exact_where_the_ranks_do_not_divide_the_samples(cosmos: Path, tmp_path: Path) -> None:
    """Ten validation samples on three ranks, and eight training steps of three samples."""
    assert main(command("cosmoflow", cosmos, tmp_path / "one", *FIXED, "--train.local_batch_size", "3")) == 0
    words = command("cosmoflow", cosmos, tmp_path / "three", *FIXED, "--train.local_batch_size", "1")
    assert (ended := launched([sys.executable], [*words, "--parallel.devices", "3"])).code == 0, ended.errors
    np.testing.assert_allclose(losses(tmp_path / "three"), losses(tmp_path / "one"), rtol=1e-12)
    assert metrics(tmp_path / "three") == pytest.approx(metrics(tmp_path / "one"), rel=1e-12)
    scores = [np.load(tmp_path / name / "scores.npz", allow_pickle=False)["scores"] for name in ("one", "three")]
    assert len(scores[1]) == 10
    # Columns 9 to 12 are the labels of each sample, so that the order is compared too.
    assert (scores[1][:, 8:] == scores[0][:, 8:]).all()
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-9)


BAD_INPUT = [
    pytest.param(("--train.local_batch_size", "20"), "global batch of 40", id="met by all ranks together"),
    pytest.param(("--optim.lrr", "1"), "unknown key 'optim.lrr'; did you mean 'optim.lr'?", id="met before they meet"),
    pytest.param(("--sede", "1"), "unknown argument '--sede'", id="on the command line"),
]


@pytest.mark.mpi
@pytest.mark.parametrize(("settings", "words"), BAD_INPUT)
def test_bad_input_of_all_ranks_is_said_once(
    settings: tuple[str, ...], words: str, cosmos: Path, tmp_path: Path, mpiexec: str
) -> None:
    run = tmp_path / "run"
    ended = launched([mpiexec, "-n", "2", sys.executable], command("cosmoflow", cosmos, run, *settings))
    assert ended.code == 2
    assert len(ended.said) == 1
    assert ended.said[0].startswith("hpcbench: error: ")
    assert words in ended.said[0]
    assert "Traceback" not in ended.errors
    assert ended.seconds < 60
    assert not run.exists()


@pytest.mark.mpi
def test_bad_input_of_one_rank_ends_all(cosmos: Path, tmp_path: Path, mpiexec: str) -> None:
    """A configuration file that only one node has; the ranks of the other one find it missing."""
    (tmp_path / "here.yaml").write_text("train: {max_epochs: 1}\n")
    words = command("cosmoflow", cosmos, tmp_path / "run")
    program = [mpiexec]
    for name in ("here.yaml", "gone.yaml"):
        colon = [":"] if name == "gone.yaml" else []
        program += [*colon, "-n", "1", sys.executable, "-m", "hpcbench", *words, "--config", str(tmp_path / name)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=180, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("hpcbench: ")]
    assert done.returncode == 2
    assert len(said) == 1
    assert "gone.yaml: cannot read the configuration" in said[0]


def test_a_damaged_sample_that_one_rank_reads_ends_all(cosmos: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(cosmos, copy)
    victim = sorted((copy / "train").glob("*.tfrecord"))[3]
    victim.write_bytes(victim.read_bytes()[:-20])
    words = command("cosmoflow", copy, tmp_path / "run", *FIXED, "--train.local_batch_size", "1")
    ended = launched([sys.executable], [*words, "--parallel.devices", "2"])
    assert ended.code == 2
    assert victim.name in ended.errors
    assert ended.seconds < 60
    folder = RunFolder.open(tmp_path / "run")
    assert folder.read_summary().status == "aborted"
    assert victim.name in folder.read_summary().reason
    assert last_event(folder) == ("run_stop", "aborted")
