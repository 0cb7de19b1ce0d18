"""What the shipped records of published rounds say, beside figures that were found by other code from the logs."""

from __future__ import annotations

from statistics import median

import pytest

from hpcbench.analysis.analysis import Analysis, Question, analyze
from hpcbench.analysis.findings import comparison_notes, repeated, variation_sentences
from hpcbench.analysis.variation_rows import middle
from hpcbench.batch.machine import known_machines
from hpcbench.mlperf.published import published_entries, published_runs

OF_ONE_TRAJECTORY = (
    "v1.0 HelmholtzAI juwelsbooster_gpu_n1024_mxnet1.9",
    "v1.0 HelmholtzAI juwelsbooster_gpu_n512_mxnet1.9",
)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze(published_runs(), known_machines(), Question())


@pytest.mark.parametrize(
    ("application", "entry", "percent"),
    [
        ("deepcam", "v1.0 HelmholtzAI juwelsbooster_gpu_n3072_pytorch1.10_22x128, throughput", 47.6),
        ("deepcam", "v1.0 HelmholtzAI horeka_gpu_n512_pytorch1.10", 33),
        ("deepcam", "v1.0 NVIDIA dgxa100_n512_ngc21.09_pytorch, throughput", 31),
        ("cosmoflow", "v1.0 NVIDIA dgxa100_n512_ngc21.09_mxnet, throughput", 24),
    ],
)
def test_staging_is_a_large_share_of_some_runs(
    analysis: Analysis, application: str, entry: str, percent: float
) -> None:
    """Medians over runs there, means here: two points apart at most."""
    (row,) = (each for each in analysis.staging if (each.application, each.entry) == (application, entry))
    assert 100 * (row.share or 0) == pytest.approx(percent, abs=2.1)


def test_spread_between_runs_of_an_entry(analysis: Analysis) -> None:
    """Medians over submissions: 0.064, 0.057, 0.024, and 90 % of the variance by epochs, adjusted 87 %."""
    rows = [row for row in analysis.variation if not row.same_as]
    assert middle(rows, "time_sd") == pytest.approx(0.064, abs=0.003)
    assert middle(rows, "epochs_sd") == pytest.approx(0.057, abs=0.004)
    assert middle(rows, "epoch_s_sd") == pytest.approx(0.024, abs=0.003)
    assert middle(rows, "explained") == pytest.approx(0.87, abs=0.02)
    squares = [1 - (1 - row.explained) * (row.trajectories - 2) / (row.trajectories - 1)
               for row in rows if row.explained is not None]  # fmt: skip
    assert median(squares) == pytest.approx(0.90, abs=0.02)
    (said,) = variation_sentences(analysis.variation)
    assert f"(medians over {len(rows)} entries), ln(epochs)" in said
    vary, told = ([getattr(row, name) is not None for row in rows].count(True) for name in ("epochs_sd", "explained"))
    assert f"ln(epochs) of {middle(rows, 'epochs_sd'):.3f} (over {vary});" in said
    assert f"in the median of the {told} whose epochs vary" in said
    assert told < len(rows)


def test_phases_close(analysis: Analysis) -> None:
    """The rest of CosmoFlow and DeepCAM runs from v1.0 on is 0.16 % in the median and 0.57 % at the 90th percentile."""
    shares = sorted(
        abs(run.rest_s) / run.time_to_train_s for entry in analysis.entries for run in entry.runs
        if run.round != "v0.7" and run.rest_s is not None and run.time_to_train_s
    )  # fmt: skip
    assert shares[len(shares) // 2] == pytest.approx(0.0016, abs=0.0002)
    assert shares[9 * len(shares) // 10] == pytest.approx(0.0057, abs=0.0005)
    assert shares[-1] < 0.03


def test_ten_runs_of_one_trajectory_count_once(analysis: Analysis) -> None:
    rows = {row.entry: row for row in analysis.convergence if row.application == "cosmoflow"}
    assert [(rows[name].trajectories, rows[name].identical) for name in OF_ONE_TRAJECTORY] == [(1, 9), (1, 9)]
    assert [rows[name].epochs for name in OF_ONE_TRAJECTORY] == [69, 43]
    spread = {row.entry: row for row in analysis.variation if row.application == "cosmoflow"}
    assert [spread[name].explained for name in OF_ONE_TRAJECTORY] == [None, None]


def test_scores_are_the_olympic_means_of_the_entries(analysis: Analysis) -> None:
    wanted = {
        (each.application, each.round, each.organization, each.system): each.time_to_train_s
        for each in published_entries() if each.mode == "time to train"
    }  # fmt: skip
    found = [entry for ranking in analysis.rankings if ranking.mode == "time to train" for entry in ranking.entries]
    assert len(found) == 41
    for entry in found:
        run = entry.first
        told = wanted[run.application or "", run.round or "", run.organization or "", run.system or ""]
        assert entry.score_s == pytest.approx(told, abs=0.01), entry.name


def test_resubmitted_runs_are_told(analysis: Analysis) -> None:
    """TACC's CosmoFlow of v2.0 is that of v1.0."""
    assert {name: other.name for name, other in repeated(analysis.entries).items()} == {
        ("cosmoflow", "v2.0 tacc longhorn-tf"): "v1.0 TACC longhorn-tf"
    }


def test_an_entry_without_a_score_is_left_out_of_the_ranking(analysis: Analysis) -> None:
    """Ten runs that end without a status."""
    (left,) = (entry for ranking in analysis.rankings for entry in ranking.without)
    assert left.name == "v0.7 Fujitsu abci_2048xV100_tensorflow_open"
    assert left.why_not == "run_stop has no status"


def test_model_flops_are_below_the_peak(analysis: Analysis) -> None:
    """NVIDIA's DeepCAM at 16 A100: 37 samples/s x 1.964 TFLOP over 312 TFLOP/s is 23 %."""
    known = [row.of_peak for row in analysis.compute if row.of_peak is not None]
    assert len(known) > 35
    assert 0 < min(known) < max(known) < 0.5
    (row,) = (
        each for each in analysis.compute if each.entry == "v1.0 NVIDIA dgxa100_n512_ngc21.09_pytorch, throughput"
    )
    assert row.machine == "Selene (NVIDIA)"
    assert row.of_peak == pytest.approx(37.2 * 1.964 / 312, rel=0.005)


def test_rounds_that_do_not_compare_are_told(analysis: Analysis) -> None:
    notes = comparison_notes(analysis.rankings)
    assert notes[0].startswith(
        "CosmoFlow, time to train: the base can be compared with 2 of 21 entries; 19 of rounds that"
    )
    assert "11 with other training samples" in notes[0]
