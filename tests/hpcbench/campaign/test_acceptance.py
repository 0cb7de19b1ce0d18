"""Committed values: met, missed or open, and the exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.campaign.report import report
from hpcbench.campaign.rules import Campaign, Commitment
from hpcbench.exits import DONE, TARGET_NOT_REACHED
from hpcbench.results.run_folder import RunFolder
from tests.hpcbench.campaign.made_up import UNCHANGED, make_size, shipped

pytestmark = pytest.mark.usefixtures("undrawn")
STEPS = 121_266 // 48


def committed(value: float, tolerance: float = 0.05, repeats: int = 3) -> Campaign:
    """ESIF-HPC-4 with a value that was promised for a node."""
    promise = Commitment("s1", "baseline", 1, value, tolerance, repeats)
    return replace(shipped("esif-hpc-4"), acceptance=(promise,))


def runs(*step_s: float, **changes: Any) -> list[dict[str, Any]]:
    """Replicates with these seconds per step."""
    return [{"local": 12, "epochs": 5, "epoch_s": each * STEPS, **changes} for each in step_s]


@pytest.mark.parametrize(
    ("value", "tolerance", "times", "code", "said"),
    [
        (0.73, 0.0, (0.73, 0.70, 0.75), DONE, "met: s1, baseline, 1 node: 0.7300 s, committed 0.7300 s + 0 % (+0.0 %)"),
        (0.70, 0.05, (0.73, 0.70, 0.75), DONE, "met: s1, baseline, 1 node: 0.7300 s, committed 0.7000 s + 5 %"),
        (0.69, 0.05, (0.73, 0.70, 0.75), TARGET_NOT_REACHED, "missed: s1, baseline, 1 node: 0.7300 s"),
        (0.73, 0.05, (0.73, 0.70), TARGET_NOT_REACHED, "open: s1, baseline, 1 node: 2 of 3 valid runs"),
    ],
)  # fmt: skip
def test_what_was_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: float, tolerance: float, times: tuple[float, ...],
    code: int, said: str,
) -> None:  # fmt: skip
    folder = make_size(tmp_path / "c", committed(value, tolerance), "s1", "baseline", 1, runs(*times))
    assert report(folder) == code
    assert said in capsys.readouterr().out
    assert f"<b>{said.partition(':')[0]}</b>" in folder.page.read_text()


def test_runs_that_converge_faster_than_the_reference_miss_what_was_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All five are valid by themselves, and their figure is none: more of them would not help."""
    promise = Commitment("deepcam", "closed", 16, 6.0, 0.05, 5)
    campaign = replace(shipped("mlperf-hpc-3.0"), acceptance=(promise,))
    fast = [{"local": 2, "epochs": 5, "epoch_s": 60.0}] * 5
    folder = make_size(tmp_path / "c", campaign, "deepcam", "closed", 16, fast)
    assert report(folder) == TARGET_NOT_REACHED
    printed = " ".join(capsys.readouterr().out.split())
    assert "missed: deepcam, closed, 16 nodes: convergence: 5 epochs, the reference 6.944" in printed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"installation": {**UNCHANGED, "unchanged": False, "differing": 1, "names": ["changed: hpcbench/x.py"]}},
         "but 1 file differs: changed: hpcbench/x.py"),
        ({"installation": {}}, "nothing tells whether the installed packages are the released ones"),
        ({"simulated_nodes": 4}, "ranks or nodes were simulated: times are not theirs"),
        ({"simulated_ranks": 2}, "ranks or nodes were simulated: times are not theirs"),
        ({"train_samples": 512}, "512 training samples instead of 121,266"),
        ({"epochs": 4}, "4 epochs where 5 count"),
        ({"local": 4}, "local batch 4 instead of 12"),
        ({"settings": {"optim.lr": "0.01"}}, "optim.lr 0.01, while the category fixes optim.lr at 0.0005"),
        ({"settings": {"train.precision": "64-true"}}, "train.precision 64-true, while the category allows"),
    ],
)  # fmt: skip
def test_runs_that_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], said: str
) -> None:
    own = runs(0.7, 0.7, 0.7)
    own[1] |= changes
    folder = make_size(tmp_path / "c", committed(0.73), "s1", "baseline", 1, own)
    assert report(folder) == TARGET_NOT_REACHED
    out = " ".join(capsys.readouterr().out.split())
    assert "n0001-r2 does not count: " in out
    assert said in out
    assert "open: s1, baseline, 1 node: 2 of 3 valid runs" in out


def test_a_run_on_other_nodes_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a folder that was put in the place of another."""
    folder = make_size(tmp_path / "c", committed(0.70), "s1", "baseline", 1, runs(0.7, 0.7, 0.7))
    first = RunFolder(next((tmp_path / "c").rglob("n0001-r1")))
    first.write_summary(replace(first.read_summary(), nodes=2))
    assert report(folder) == TARGET_NOT_REACHED
    said = " ".join(capsys.readouterr().out.split())
    assert "n0001-r1 does not count: 2 nodes instead of 1" in said
    assert "open: s1, baseline, 1 node: 2 of 3 valid runs" in said


@pytest.mark.parametrize(("epoch", "counts"), [(0, False), (15.5, False), (16, True)])
def test_epochs_that_count_are_in_one_piece(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], epoch: float, counts: bool
) -> None:
    """The log of a run that was resumed within its first epoch begins in the middle of it."""
    own = [{"local": 2, "epochs": 20, "epoch_s": 15.0}]
    folder = make_size(tmp_path / "c", shipped("nersc10-deepcam"), "deepcam", "baseline", 256, own)
    run = RunFolder(next((tmp_path / "c").rglob("n0256-r1")))
    run.write_summary(replace(run.read_summary(), resumed=1))
    head, *lines = run.epochs.read_text().splitlines()
    run.epochs.write_text("\n".join([f"{head},eval_s", *(f"{line},0.0" for line in lines)]) + "\n")
    event = {"key": "resumed", "value": "mllog-part1.txt", "time_ms": 1, "metadata": {"epoch_num": epoch}}
    run.mllog.write_text(f"{run.mllog.read_text()}:::MLLOG {json.dumps(event)}\n")
    report(folder)
    said = " ".join(capsys.readouterr().out.split())
    assert ("n0256-r1 does not count: it was resumed within the 16 epochs that count" in said) is not counts
    assert ("240.0 s (median of 1)" in said) is counts


def test_changed_packages_count_where_the_category_allows_changed_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = runs(0.7, 0.7, 0.7, installation={**UNCHANGED, "unchanged": False, "differing": 2, "names": ["a.py", "b.py"]})
    folder = make_size(tmp_path / "c", shipped("esif-hpc-4"), "s1", "optimized", 1, own)
    assert report(folder) == DONE
    assert "optimized, 1 node: 0.7000 s (median of 3)" in capsys.readouterr().out


def test_seeds_that_two_runs_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [{"local": 2, "epochs": 7, "epoch_s": 60.0, "seed": seed} for seed in (1, 2, 3, 4, 4)]
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam", "open", 16, own)
    report(folder)
    assert "does not count: seed 4 is another run's, too" in capsys.readouterr().out


def test_runs_of_one_size_have_one_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the rules leave it open, too: a mean over two batches is the time of neither."""
    own = [{"local": local, "epochs": epochs, "epoch_s": 60.0, "seed": seed}
           for seed, (local, epochs) in enumerate(((4, 9), (2, 7), (2, 7), (2, 7), (2, 7)))]  # fmt: skip
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam", "closed", 16, own)
    report(folder)
    said = " ".join(capsys.readouterr().out.split())
    assert "r1 does not count: global batch 256, and 128 of the other runs" in said
    assert "7.000 min (olympic of 5, 1 of 5 runs not valid)" in said
    assert "convergence: 7 epochs, the reference 6.944" in said, "the reference is that of batch 128"


def test_a_log_that_is_copied_with_another_seed_is_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [{"local": 2, "epochs": 7, "epoch_s": 60.0, "seed": seed} for seed in (1, 2, 3, 4, 5)]
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam", "open", 16, own)
    first, second, *_ = sorted((tmp_path / "c").rglob("mllog.txt"))
    copy = first.read_text().replace('"key": "seed", "value": 1,', '"key": "seed", "value": 2,')
    assert copy != first.read_text()
    second.write_text(copy)
    report(folder)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{second.parent.name} does not count: its log is that of {first.parent.name}" in said
    assert said.count("does not count: ") == 1


def test_sums_of_reduced_precision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NERSC-10's baseline trains in float32, so that it may not sum gradients in 16 bits."""
    run = {"local": 2, "epochs": 22, "epoch_s": 15.0, "settings": {"parallel.reduce_dtype": "bfloat16"}}
    folder = make_size(tmp_path / "c", shipped("nersc10-deepcam"), "deepcam", "baseline", 256, [run])
    report(folder)
    said = " ".join(capsys.readouterr().out.split())
    assert "does not count: parallel.reduce_dtype bfloat16, while the category allows parallel.reduce_dtype" in said


def test_packages_of_no_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit = {"basis": "commit", "unchanged": True, "commit": "0123456789abcdef", "tag": None, "differing": 0}
    own = runs(0.7, 0.7, 0.7, installation=commit)
    folder = make_size(tmp_path / "c", shipped("esif-hpc-4"), "s1", "baseline", 1, own)
    assert report(folder) == DONE
    said = " ".join(capsys.readouterr().out.split())
    assert "Packages: commit 0123456789ab, unchanged; commit 0123456789ab has no release tag (v*)." in said
    assert "0.7000 s (median of 3)" in said, "they count"
