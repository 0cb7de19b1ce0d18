"""Reference results of MLPerf HPC's rules: those of the published entries, with the system of each row named."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.campaign.categories import scenario_of
from hpcbench.campaign.content import read_content, text_of
from hpcbench.campaign.cost import cost_lines
from hpcbench.campaign.response import rows_of_references
from hpcbench.campaign.rules import Reference, Scenario
from hpcbench.mlperf.published import PublishedEntry, published_entries
from tests.hpcbench.campaign.made_up import make_size, shipped

MLPERF = shipped("mlperf-hpc-3.0")
NAMES = ("cosmoflow", "cosmoflow-throughput", "deepcam", "deepcam-throughput")


def entry_of(scenario: Scenario, reference: Reference) -> PublishedEntry:
    """The published entry that a reference names: round, organization, system."""
    mode = "throughput" if scenario.throughput else "time to train"
    name = tuple(reference.system.split(", "))
    (entry,) = [each for each in published_entries() if (each.round, each.organization, each.system) == name
                and (each.application, each.mode) == (scenario.application, mode)]  # fmt: skip
    return entry


@pytest.mark.parametrize("name", NAMES)
def test_references_are_the_published_entries(name: str) -> None:
    scenario = scenario_of(MLPERF, name)
    for reference in scenario.references:
        entry = entry_of(scenario, reference)
        seconds = entry.all_models_s if scenario.throughput else entry.time_to_train_s
        assert reference.value == pytest.approx(float(seconds or 0) / 60, abs=6e-4)
        assert (reference.category, reference.global_batch) == (entry.division, entry.global_batch_size)
        assert reference.epochs == entry.epochs
        assert reference.nodes == (entry.system_nodes if scenario.throughput else entry.nodes)
        assert reference.accelerators_per_node * (entry.nodes or 0) == entry.accelerators
        assert reference.models == (entry.runs if scenario.throughput else None)
        assert entry.train_samples == scenario.dataset.train_samples
        staged = reference.note.partition(" s of staging within the clock")[0]
        assert float(staged or 0) == pytest.approx(entry.staging_s or 0, abs=1)


@pytest.mark.parametrize("name", NAMES)
def test_each_score_of_the_rounds_with_this_dataset_is_a_reference_once(name: str) -> None:
    """Entries of v1.0 that v2.0 has again are named as of v1.0."""
    scenario = scenario_of(MLPERF, name)
    mode = "throughput" if scenario.throughput else "time to train"
    entries = [each for each in published_entries() if (each.application, each.mode) == (scenario.application, mode)]
    scores = {(each.system, each.time_to_train_s, each.all_models_s) for each in entries if each.round != "v0.7"}
    assert len(scenario.references) == len(scores) == {"cosmoflow": 10, "deepcam": 16}.get(name, len(scores))
    assert any("count staging within the time" in " ".join(note.split()) for note in scenario.notes)


def test_a_rate_follows_from_the_epochs_of_all_instances() -> None:
    rows = {row.cells["system"]: row for row in rows_of_references(scenario_of(MLPERF, "deepcam-throughput"))}
    cells = rows["v2.0, NVIDIA, dgxa100_n512_pytorch"].cells
    assert cells["samples_per_s_per_accelerator"] == pytest.approx(256 * 8 * 121_266 / (2399.197 * 4096), rel=1e-4)
    assert (cells["models"], cells["global_batch"], cells["local_batch"]) == (256, 128, 8)


def test_a_response_says_which_row_is_of_which_system(tmp_path: Path) -> None:
    run = {"local": 2, "epochs": 7, "epoch_s": 60.0}
    folder = make_size(tmp_path / "c", MLPERF, "deepcam", "closed", 16, [run] * 5)
    text = text_of(read_content(folder, folder.open()))
    assert "ref. 9: v1.0, NVIDIA, dgxa100_n256_ngc21.09_pytorch\n" in text
    assert "ref. 4: v1.0, HelmholtzAI, horeka_gpu_n512_pytorch1.10 (84 s of staging within the clock)\n" in text
    (row,) = [line.split() for line in text.splitlines() if "  ref. 9 " in line]
    assert row == ["closed", "256", "2,048", "ref.", "9", "2,048", "-", "-", "24", "-", "1.668", "14.20", "-"]
    assert max(map(len, text.splitlines())) <= 100


def test_recipes_that_no_rule_fixes_cost_nothing() -> None:
    """A published entry chose its recipe itself: its epochs are no cost of the rules."""
    scenario = scenario_of(MLPERF, "cosmoflow")
    assert cost_lines(scenario, rows_of_references(scenario)) == []
    fixed = scenario_of(shipped("esif-hpc-4"), "s2")
    assert len(cost_lines(fixed, rows_of_references(fixed))) == 1
