"""The published reference rows come out of made-up runs with their times, and what follows from them by calculation."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hpcbench.campaign.categories import scenario_of
from hpcbench.campaign.content import read_content, text_of
from hpcbench.campaign.folder import CampaignFolder
from hpcbench.campaign.report import report
from hpcbench.campaign.response import ResponseRow, row_of_reference
from hpcbench.exits import DONE
from hpcbench.results.not_verified import NOT_VERIFIED
from tests.hpcbench.campaign.made_up import make_size, shipped

SAMPLES = 121_266


def rows(folder: CampaignFolder, scenario: str) -> list[ResponseRow]:
    """The rows of a scenario."""
    found = {each.name: own for each, _, own in read_content(folder, folder.open()).scenarios}
    return list(found[scenario])


def results(folder: CampaignFolder, scenario: str) -> list[ResponseRow]:
    """The rows of its sizes, smallest first."""
    return [row for row in rows(folder, scenario) if row.kind == "result"]


@pytest.mark.parametrize(
    ("category", "nodes", "seconds", "rate"),
    [("baseline", 256, 240.0, 7.895), ("baseline", 512, 204.0, 4.644), ("optimized", 512, 99.2, 9.55)],
)
def test_perlmutters_rows(tmp_path: Path, category: str, nodes: int, seconds: float, rate: float) -> None:
    run = {"local": 2048 // (4 * nodes), "epochs": 22, "epoch_s": seconds / 16 - 0.5, "evaluation_s": 0.5, "best": 0.81}
    folder = make_size(tmp_path / "c", shipped("nersc10-deepcam"), "deepcam", category, nodes, [run])
    (own,) = results(folder, "deepcam")
    assert own.cells["seconds"] == pytest.approx(seconds, abs=1e-3)
    assert own.cells["samples_per_s_per_accelerator"] == pytest.approx(rate, abs=5e-4)
    assert 16 * SAMPLES / seconds / (4 * nodes) == pytest.approx(rate, abs=5e-4)
    published = {(row.cells["category"], row.cells["nodes"]): row for row in rows(folder, "deepcam")
                 if row.kind == "reference"}[category, nodes]  # fmt: skip
    for column in ("seconds", "samples_per_s_per_accelerator", "accelerators", "local_batch"):
        assert own.cells[column] == pytest.approx(published.cells[column], rel=1e-5)
    assert "does not count" not in text_of(read_content(folder, folder.open()))


@pytest.mark.parametrize(("nodes", "step_s", "rate"), [(1, 0.732, 16.4), (4, 0.749, 16.0), (8, 0.756, 15.9)])
def test_kestrels_rows_of_scenario_1(tmp_path: Path, nodes: int, step_s: float, rate: float) -> None:
    steps = SAMPLES // (48 * nodes)
    times = [0.9 * step_s, step_s, 1.3 * step_s]
    runs = [{"local": 12, "epochs": 5, "epoch_s": each * steps} for each in times]
    folder = make_size(tmp_path / "c", shipped("esif-hpc-4"), "s1", "baseline", nodes, runs)
    (own,) = results(folder, "s1")
    assert own.cells["seconds_per_step"] == pytest.approx(step_s, rel=1e-9), "the median of three replicates"
    assert own.cells["samples_per_s_per_accelerator"] == pytest.approx(rate, abs=0.05)
    assert own.cells["valid"] == "3/3"
    references = [row_of_reference(scenario_of(shipped("esif-hpc-4"), "s1"), each)
                  for each in scenario_of(shipped("esif-hpc-4"), "s1").references]  # fmt: skip
    published = {row.cells["nodes"]: row.cells["samples_per_s_per_accelerator"] for row in references}
    assert published[nodes] == pytest.approx(rate, abs=0.05)


@pytest.mark.parametrize(("nodes", "local", "minutes", "epochs"), [(16, 16, 118.12, 49), (32, 8, 68.63, 48)])
def test_kestrels_rows_of_scenario_2(tmp_path: Path, nodes: int, local: int, minutes: float, epochs: int) -> None:
    epoch_s = 60 * minutes / epochs
    run = {"local": local, "epochs": epochs, "epoch_s": epoch_s - 3, "evaluation_s": 3.0, "staging_s": 700.0}
    folder = make_size(tmp_path / "c", shipped("esif-hpc-4"), "s2", "baseline", nodes, [run] * 3)
    (own,) = results(folder, "s2")
    assert own.cells["minutes"] == pytest.approx(minutes, abs=1e-3), "without start and staging"
    assert (own.cells["epochs"], own.cells["local_batch"], own.cells["accelerators"]) == (epochs, local, 4 * nodes)
    assert (own.cells["optimizer"], own.cells["scheduler"], own.cells["start_rate"]) == ("adamw", "cosine", 0.0005)
    assert own.cells["minutes_per_epoch"] == pytest.approx((epoch_s - 3) / 60, abs=1e-4)


def test_what_the_rules_recipe_costs(tmp_path: Path) -> None:
    run = {"local": 16, "epochs": 49, "epoch_s": 144.0}
    folder = make_size(tmp_path / "c", shipped("esif-hpc-4"), "s2", "baseline", 16, [run] * 3)
    text = " ".join(text_of(read_content(folder, folder.open())).split())
    assert (
        "At batch 1,024 AdamW takes 48 to 49 epochs (Kestrel, 4 x H100 a node); the "
        "published recipe of LAMB (mlperf-1024, RCP 3.0) needs 13.0: 3.7 to 3.8 times the training."
    ) in text


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        ([10, 11, 12, 13, 40], 12.0),
        ([10, 11, 12, 13, None], 12.0),
        ([10, 11, 12, None, None], None),
        ([10, 11, 12, 13], None),
    ],
)
def test_time_to_train_is_an_olympic_mean(tmp_path: Path, minutes: list[int | None], expected: float | None) -> None:
    runs = [
        {"local": 2, "epochs": 7, "epoch_s": 60 * (each or 50) / 7,
         **({} if each else {"status": "target_not_reached", "best": 0.7})} for each in minutes
    ]  # fmt: skip
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam", "open", 16, runs)
    (own,) = results(folder, "deepcam")
    assert own.cells["minutes"] == (None if expected is None else pytest.approx(expected, abs=1e-4))


def test_closed_epochs_below_the_reference_are_normalised(tmp_path: Path) -> None:
    campaign = shipped("mlperf-hpc-3.0")
    run = {"local": 2, "epoch_s": 60.0}
    folder = make_size(tmp_path / "c", campaign, "deepcam", "closed", 16, [{**run, "epochs": 6}] * 2
                       + [{**run, "epochs": 7}] * 3)  # fmt: skip
    (own,) = results(folder, "deepcam")
    olympic = (6 + 7 + 7) / 3
    assert own.cells["minutes"] == pytest.approx(olympic * (6.9444 / olympic), abs=1e-3), "to the reference's epochs"
    fast = make_size(tmp_path / "f", campaign, "deepcam", "closed", 16, [{**run, "epochs": 5}] * 5)
    (own,) = results(fast, "deepcam")
    assert own.cells["minutes"] is None, "too fast to be the reference's training"
    assert "too fast" in text_of(read_content(fast, fast.open()))


def test_a_diverged_run_is_the_slowest_for_the_reference_test_too(tmp_path: Path) -> None:
    run = {"local": 2, "epoch_s": 60.0}
    diverged = {**run, "epochs": 5, "status": "aborted", "cause": "diverged", "best": 0.1}
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam", "closed", 16,
                       [*({**run, "epochs": epochs} for epochs in (6, 6, 7, 8)), diverged])  # fmt: skip
    (own,) = results(folder, "deepcam")
    assert own.cells["minutes"] == pytest.approx((6 + 7 + 8) / 3, abs=1e-4), "as many epochs as the reference: factor 1"
    assert "convergence: 7 epochs, the reference 6.944" in text_of(read_content(folder, folder.open()))


def test_throughput_prunes_instances_that_did_not_converge_and_is_not_normalised(tmp_path: Path) -> None:
    run = {"local": 2, "epoch_s": 60.0}
    lost = {**run, "epochs": 9, "status": "target_not_reached", "best": 0.7}
    runs = [{**run, "epochs": 6}] * 3 + [{**run, "epochs": 7}] * 7 + [lost] * 2
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam-throughput", "closed", 192, runs, 16)
    (own,) = results(folder, "deepcam-throughput")
    assert own.cells["minutes"] == pytest.approx(7, abs=1e-4)
    assert own.cells["models"] == 10
    assert "convergence: 6.75 epochs, the reference 6.944, least accepted 6.309: accepted\n" in text_of(
        read_content(folder, folder.open())
    )


def test_one_of_two_instances_with_a_seed_counts_for_a_throughput(tmp_path: Path) -> None:
    run = {"local": 2, "epoch_s": 60.0}
    lost = {**run, "epochs": 9, "status": "target_not_reached", "best": 0.7, "seed": 3}
    alike = [lost, {**run, "epochs": 7, "seed": 3}, {**run, "epochs": 8, "seed": 3}]
    runs = [*({**run, "epochs": 7, "seed": 10 + number} for number in range(9)), *alike]
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam-throughput", "closed", 192, runs, 16)
    (own,) = results(folder, "deepcam-throughput")
    assert (own.cells["models"], own.cells["minutes"]) == (10, pytest.approx(7, abs=1e-4))


def test_throughput_counts_from_the_first_start_to_the_last_stop(tmp_path: Path) -> None:
    runs = [{"local": 2, "epochs": 7, "epoch_s": 60.0, "start_s": 10.0 * number} for number in range(5)]
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam-throughput", "open", 80, runs, 16)
    (own,) = results(folder, "deepcam-throughput")
    assert own.cells["minutes"] == pytest.approx(7 + 40 / 60, abs=1e-4)
    assert (own.cells["models"], own.cells["accelerators"]) == (5, 320)


def test_the_files_of_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"local": 2, "epochs": 22, "epoch_s": 15.0}
    folder = make_size(tmp_path / "c", shipped("nersc10-deepcam"), "deepcam", "baseline", 256, [run])
    assert report(folder) == DONE
    said = capsys.readouterr().out
    page, table = folder.page.read_text(), list(csv.DictReader(folder.response.open()))
    assert [row["row"] for row in table] == ["run", "result", "reference", "reference", "reference"]
    assert [row["verified"] for row in table] == [NOT_VERIFIED] * 2 + [""] * 3
    assert f">filled marks: {NOT_VERIFIED}</text>" in page, "on the plot itself"
    assert float(table[1]["seconds"]) == pytest.approx(240.0, abs=1e-3)
    assert float(table[4]["samples_per_s_per_accelerator"]) == pytest.approx(9.55, abs=5e-4)
    for text in (said, page):
        assert "Result not verified by MLCommons Association" in text
        assert "rehearsal" not in text.lower()
    assert max(map(len, said.splitlines())) <= max(100, len(str(folder.page)) + 6)
    assert "Perlmutter" in page
    assert "<svg" in page
