"""The page of a scaling study joins runs, presets and convergence: every variant by its own runs and settings."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hpcbench.results.summary import Summary
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.fit import fit_epochs
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.joined_epochs import config_of, epochs_of
from hpcbench.study.scaling.point_results import PointResult, RepeatResult, by_variant
from hpcbench.study.scaling.proposal import Campaign, Extras
from hpcbench.study.scaling.report import machine, notes, report, too_few_models
from hpcbench.study.scaling.run_matrix import all_runs
from hpcbench.study.scaling.time_to_solution import Solution
from hpcbench.study.scaling.trainings import CONVERGENCE, MEASURED, Training, trainings
from staging.errors import InputError
from tests.hpcbench.study.scaling.test_read_results import write_planned

STUDY = Scaling(
    mode="strong", application="cosmoflow", preset="smoke", site="perlmutter-gpu", nodes=(1, 2), ranks_per_node=1,
    local_batch_size=4, global_batch_size=8, cores_per_rank=16, gpus_per_rank=1, repeats=1, steps=25,
    settings={"data.root": "set", "train.max_epochs": "10"}, vary={"data.train_samples": ("64", "640")}, stages=False,
)  # fmt: skip
VALIDATION_BYTES = 16 * 1000


def reported(study: Scaling, path: Path, extras: Extras) -> list[dict[str, str]]:
    """The lines of ``proposal.csv`` of a study whose samples are files of 1,000 bytes."""
    folder = StudyFolder(path)
    with held(folder):
        folder.write(study.as_dict())
    for run in all_runs(study):
        samples = int(dict(run.point.variant).get("data.train_samples", 64))
        write_planned(
            study, run, folder.run(run.name), train_samples=samples, train_bytes=1000 * samples,
            validation_bytes=VALIDATION_BYTES, folder_bytes=5000, peak_memory_bytes=3 * 10**9, device_type="cuda",
        )  # fmt: skip
    report(study, folder, extras)
    assert max(map(len, (path / "proposal.txt").read_text().splitlines())) <= 100
    return list(csv.DictReader(io.StringIO((path / "proposal.csv").read_text())))


@pytest.mark.slow
def test_variants_of_different_sizes_have_their_own_samples_operations_and_bytes(tmp_path: Path) -> None:
    campaign = Campaign(runs=3, contingency=0.5, min_efficiency=0.9)
    lines = reported(STUDY, tmp_path, Extras(campaign=campaign))
    assert [(line["variant"], int(line["nodes"])) for line in lines] == [
        ("train_samples 64", 1), ("train_samples 64", 2), ("train_samples 640", 1), ("train_samples 640", 2),
    ]  # fmt: skip
    for line, samples in zip(lines, (64, 64, 640, 640), strict=True):
        assert float(line["samples_per_run"]) == 10 * samples
        assert float(line["flop"]) == 3 * 10 * samples * 1e9
        assert float(line["data_bytes"]) == 3 * 10 * (1000 * samples + VALIDATION_BYTES)
        assert (line["data_were"], line["memory_of"], line["runs"]) == ("read", "accelerator", "3")
        assert int(line["storage_bytes"]) == 1000 * samples + VALIDATION_BYTES + 3 * 5000
        assert float(line["gpu_hours_with_contingency"]) == pytest.approx(1.5 * float(line["gpu_hours"]))
    assert float(lines[2]["hours_per_run"]) > 2 * float(lines[0]["hours_per_run"]), "beside the start"


def row(nodes: int, variant: str, train_samples: int, **more: float) -> PointResult:
    run = RepeatResult(nodes, 8, 100.0, {}, train_samples=train_samples, **more)  # type: ignore[arg-type]
    return PointResult(nodes, variant, [run])


@pytest.mark.parametrize("key", ["placement: shard", "overlap: true", "slabs: true"])
def test_settings_of_staging_need_no_folder_once_the_runs_are_made(key: str, tmp_path: Path) -> None:
    """Whether they stand on the command line or in a file; only the job of a run has a folder to stage to."""
    name, value = key.split(": ")
    (tmp_path / "staging.yaml").write_text(f"staging:\n  {key}\n")
    split = {"parallel.spatial": "2", "measure.warmup_steps": "3"}
    on_line = replace(STUDY, stages=True, settings={**split, f"staging.{name}": value})
    in_file = replace(STUDY, stages=True, settings=split, files=(str(tmp_path / "staging.yaml"),))
    for study in (on_line, in_file):
        assert config_of(study, row(1, "a", 64).settings).measure.warmup_steps == 3


def lengths(rows: list[PointResult], solutions: dict[str, list[Solution]], to_target: bool = False) -> list[Training]:
    """Where variant ``b`` is configured for twice the epochs of any other, with two evaluations in each."""
    from hpcbench.config.schema import RunConfig

    plain = RunConfig()
    plain = replace(plain, train=replace(plain.train, max_epochs=4))
    twice = replace(plain, train=replace(plain.train, max_epochs=8, evaluations_per_epoch=2))
    variants = by_variant(rows)
    configs = {name: twice if name == "b" else plain for name in variants}
    return list(trainings(variants, solutions, configs, to_target=to_target).values())


def test_the_most_epochs_are_those_of_the_variant() -> None:
    one, two = lengths([row(1, "a", 100), row(1, "b", 300)], {})
    assert one == Training(4, 400, 4, "4 epochs, the most that the preset trains: an upper bound")
    assert two == Training(8, 2400, 16, "8 epochs, the most that the preset trains: an upper bound")


def test_epochs_of_a_convergence_study_are_passes_over_the_variant_s_own_samples() -> None:
    found = {name: [Solution(1, 1, 8, 2.5, (2, 3), 1, (1, 1), 1, (1, 1), None, None, False)] for name in "ab"}
    one, two = lengths([row(1, "a", 100), row(1, "b", 300)], found)
    assert one == Training(2.5, 250, 2.5, CONVERGENCE)
    assert two == Training(2.5, 750, 5, CONVERGENCE)


def test_a_variant_that_missed_its_target_does_not_take_the_trainings_of_another() -> None:
    rows = [row(1, "a", 100, time_s=9.0, samples_per_model=300), row(1, "b", 300, samples=2400)]
    one, two = lengths(rows, {}, to_target=True)
    assert one == Training(3, 300, 3, MEASURED)
    assert two.basis.endswith("an upper bound")


@pytest.mark.parametrize("missed", [{"models": 1, "missed": 1}, {"models": 0, "missed": 1}])
def test_trainings_of_which_some_missed_their_target_are_no_basis(missed: dict[str, int]) -> None:
    reached = row(1, "a", 100, time_s=9.0, samples_per_model=300, models=1)
    lost = replace(reached.runs[0], samples_per_model=300 if missed["models"] else None, **missed)
    (found,) = lengths([replace(reached, runs=[*reached.runs, *reached.runs, lost])], {}, to_target=True)
    assert (found.epochs, found.basis) == (4, "4 epochs, the most that the preset trains: an upper bound")


def test_the_machine_counts_ranks_and_threads() -> None:
    run = Summary("cosmoflow", "t", "smoke", device="AMD EPYC", ranks_per_node=1, threads=1)
    assert machine(run) == "AMD EPYC, 1 rank a node of 1 compute thread, 32-true"
    assert ", 2 ranks a node of 4 compute threads, " in machine(replace(run, ranks_per_node=2, threads=4))


def test_a_resumed_run_has_the_samples_of_its_training_but_no_time() -> None:
    resumed = row(1, "a", 100, samples_per_model=300)
    assert lengths([resumed], {}, to_target=True) == [Training(3, 300, 3, MEASURED)]
    summaries = [Summary("cosmoflow", "t", "smoke", resumed=number) for number in (0, 1)]
    said = "1 run was interrupted and resumed; the figures are over all attempts, without the gaps."
    assert notes(STUDY, summaries) == [said]
    left_out = " The clock runs on in a gap, so the time of such a run is left out."
    assert notes(replace(STUDY, steps=None), summaries) == [said + left_out]
    alone = left_out.replace("run is", "run that trained alone is")
    assert notes(replace(STUDY, steps=None, mode="throughput"), summaries) == [said + alone]


def test_a_peak_of_another_type_than_that_of_the_runs_is_named() -> None:
    """The probe multiplies float32 on a processor and bfloat16 on an accelerator (``node_probe``)."""
    plain, mixed = (Summary("cosmoflow", "t", "smoke", precision=name, device_type="cuda")
                    for name in ("32-true", "bf16-mixed"))  # fmt: skip
    said = "The FLOP/s utilization compares runs with a peak in another type"
    assert notes(STUDY, [plain, mixed, plain]) == [f"{said}: 32-true with bfloat16."]
    assert notes(STUDY, [mixed, replace(plain, device_type="cpu"), replace(plain, device_type="")]) == []
    assert notes(STUDY, [replace(mixed, device_type="cpu")]) == [f"{said}: bf16-mixed with float32."]


def test_the_training_of_instances_is_that_of_a_model() -> None:
    shared = replace(row(4, "a", 100, time_s=9.0, samples=900, samples_per_model=200, models=4), instances=5)
    assert lengths([shared], {}, to_target=True) == [Training(2, 200, 2, MEASURED)]


def test_numbers_are_plain(tmp_path: Path) -> None:
    lines = reported(replace(STUDY, vary={}), tmp_path, Extras())
    assert not any(np.isnan(float(line["node_hours"])) for line in lines)
    assert [line["variant"] for line in lines] == ["", ""]


def test_fewer_models_than_the_rules_publish_are_said() -> None:
    """Of CosmoFlow 10, of DeepCAM 5 (training rules, number of runs)."""
    study = replace(STUDY, mode="throughput", instance_nodes=1, global_batch_size=None, steps=None)
    rows = [row(nodes, "", 64, models=nodes) for nodes in (4, 5, 9, 10, 20)]
    least = "MLPerf HPC publishes a throughput of at least"
    assert too_few_models(study, rows) == [f"{least} 10 models; there are fewer on 4, 5, 9 nodes."]
    assert too_few_models(replace(study, application="deepcam"), rows) == [
        f"{least} 5 models; there are fewer on 4 nodes."
    ]
    assert too_few_models(study, rows[3:]) == []
    assert too_few_models(replace(study, steps=20), rows) == [], "nothing is trained to a target"
    assert too_few_models(replace(STUDY, steps=None), rows) == []


def test_a_series_without_a_fit_has_no_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = {"sgd": fit_epochs([EpochRun(batch, 0, 0.125) for batch in (8, 16, 32)])}  # all at the first evaluation
    joined = (SimpleNamespace(), SimpleNamespace(path="studies/early"))
    monkeypatch.setattr("hpcbench.study.scaling.joined_epochs.read_convergence", lambda study, folder: joined)
    monkeypatch.setattr("hpcbench.study.convergence.read_statuses", lambda study, place: {})
    monkeypatch.setattr("hpcbench.study.results.read_rows", lambda study, statuses: [])
    monkeypatch.setattr("hpcbench.study.page.fit_series", lambda rows: fits)
    why = "all runs met the target at the first evaluation"
    with pytest.raises(InputError, match=rf"studies/early has no fit of epochs.B. for optimizer sgd \({why}.*has none"):
        epochs_of(STUDY, tmp_path, "sgd")
    with pytest.raises(InputError, match=r"optimizer adamw \(it takes 3 batches .*report without: --convergence none"):
        epochs_of(STUDY, tmp_path, "adamw")
