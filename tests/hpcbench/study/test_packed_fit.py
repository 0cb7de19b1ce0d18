"""What the runs of a convergence study ask of a node that they share, known before their jobs are submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.planning.rank_memory import rank_memory

pytestmark = pytest.mark.usefixtures("forked_processes")

MATRIX = ["--optimizers", "adamw,sgd", "--seeds", "1", "--dry-run"]
SITE = "title: a cluster\nscheduler: slurm\nlauncher: srun\nnode: {{cores: {cores}, memory_gib: {memory_gib}}}\n"


def show(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, site: str, *words: str, application: str = "cosmoflow"
) -> tuple[int, str]:
    """The exit code of a dry run whose dataset is on another machine, and what it printed."""
    study = ["study", "convergence", application, "--site", site, "--study-dir", str(tmp_path / "study"), *MATRIX]
    code = main([*study, "--data.root", "/pscratch/nowhere", *words])
    shown = capsys.readouterr()
    assert not (tmp_path / "study").exists()
    return code, " ".join((shown.out + shown.err).split())


PERLMUTTER = ("--account", "m1234", "--preset", "mlperf", "--batch-sizes")


def test_recipes_staging_and_the_memory_of_the_optimizer_that_needs_most_are_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, shown = show(capsys, tmp_path, "perlmutter-gpu", *PERLMUTTER, "32,48,128")
    assert code == 0, shown
    assert "4 side by side on a node, 16 cores and 1 GPU each" in shown
    assert "recipe published for batch 32 (mlperf-32), 128 (mlperf-128) staging none;" in shown
    config = resolve(find_application("cosmoflow"), "mlperf", None, {"optim.name": "adamw"})
    need = rank_memory(find_application("cosmoflow"), config, 1, 1)
    assert need is not None
    assert f"memory {need / 2**30:.2f} GiB for a rank" in shown, "adamw keeps two tensors for each weight, sgd one"
    assert "of the 40.0 GiB of an accelerator" in shown


@pytest.mark.slow
def test_more_memory_than_an_accelerator_has_is_refused_with_what_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = (*PERLMUTTER, "128,256", "--train.local_batch_size", "32")
    code, shown = show(capsys, tmp_path, "perlmutter-gpu", *words, application="deepcam")
    assert code == 2
    assert shown.startswith("hpcbench: error: a rank needs ")
    assert "more than the 40.0 GiB of an accelerator; what fits: --train.local_batch_size 8;" in shown


@pytest.mark.parametrize(("memory_gib", "code", "words"), [
    (12, 0, "of the 3.00 GiB of a rank's share of its node's memory"),
    (8, 0, "memory warning: 1.75 GiB for a rank"),
    (6, 2, "what fits: --train.local_batch_size 2; --runs-per-job below 4;"),
])  # fmt: skip
def test_runs_side_by_side_share_the_memory_of_a_node(
    memory_gib: int, code: int, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Four runs of CosmoFlow at its published size, each of 1.75 GiB with AdamW, kernels and heap among it."""
    site = tmp_path / "cluster.yaml"
    site.write_text(SITE.format(cores=8, memory_gib=memory_gib))
    found, shown = show(capsys, tmp_path, str(site), "--preset", "mlperf", "--batch-sizes", "32,64")
    assert (found, words in shown) == (code, True), shown


def test_a_batch_above_the_samples_that_are_asked_for_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    few = ("--data.train_samples", "64", "--data.validation_samples", "64")
    code, shown = show(capsys, tmp_path, "perlmutter-gpu", *PERLMUTTER, "32,128", *few)
    assert code == 2
    assert "--batch-sizes: 128 is more than the 64 training samples" in shown
