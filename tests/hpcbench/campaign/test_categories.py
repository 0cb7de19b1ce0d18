"""What each category refuses, and how it says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.campaign.categories import broken, category_of, rule_for, scenario_of, value_of
from hpcbench.campaign.entry import Entry, global_batch_of, ladder, run_config
from hpcbench.campaign.rules import SettingRule
from staging.errors import InputError
from tests.hpcbench.campaign.made_up import entry_of, shipped

NERSC, ESIF, MLPERF = "nersc10-deepcam", "esif-hpc-4", "mlperf-hpc-3.0"


def refused(entry: Entry) -> str:
    """What is said of an entry."""
    with pytest.raises(InputError) as error:
        run_config(entry)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("campaign", "scenario", "category", "setting", "value", "said"),
    [
        (NERSC, "deepcam", "baseline", "optim.lr", "0.01", "--optim.lr 0.01: category baseline of nersc10-deepcam "
         "fixes optim.lr at 0.0055 (rule: LAMB, start rate 0.0055"),
        (NERSC, "deepcam", "baseline", "schedule.milestones", "[700]", "fixes schedule.milestones at [800]"),
        (NERSC, "deepcam", "optimized", "train.accumulation", "16", "(rule: gradient accumulation 1, in all"),
        (NERSC, "deepcam", "optimized", "train.checkpoint_every", "1", "(rule: no checkpoints, in all categories)"),
        (NERSC, "deepcam", "optimized", "train.batchnorm_group_size", "4", "(rule: batch-norm group 1"),
        (NERSC, "deepcam", "optimized", "train.target", "0.5", "fixes train.target at 0.8"),
        (NERSC, "deepcam", "optimized", "model.middle_blocks", "8", "fixes model.middle_blocks at 16"),
        (NERSC, "deepcam", "baseline", "train.precision", "bf16-mixed", "allows train.precision 32-true"),
        (NERSC, "deepcam", "baseline", "train.local_batch_size", "2", "it follows from the global batch"),
        (ESIF, "s1", "baseline", "train.local_batch_size", "8", "fixes the local batch at 12"),
        (NERSC, "deepcam", "baseline", "parallel.reduce_dtype", "bfloat16",
         "allows parallel.reduce_dtype gradient (rule: the suite's options set no mixed precision"),
        (NERSC, "deepcam", "ported", "parallel.reduce_dtype", "float16", "allows parallel.reduce_dtype gradient (rule"),
        (NERSC, "deepcam", "optimized", "parallel.simulated_ranks", "4", "--parallel.simulated_ranks 4: no run with it "
         "counts in nersc10-deepcam (its times are not of real nodes); leave it out"),
        (NERSC, "deepcam", "optimized", "train.max_steps", "5", "--train.max_steps 5: no run with it counts in "
         "nersc10-deepcam (the rules say when a run ends); leave it out"),
        (ESIF, "s1", "optimized", "optim.name", "nvlamb", "fixes optim.name at adamw"),
        (ESIF, "s2", "ported", "optim.lr", "0.001", "fixes optim.lr at 0.0005"),
        (MLPERF, "cosmoflow", "closed", "optim.name", "lars", "allows optim.name sgd (rule: opt_name is sgd)"),
        (MLPERF, "cosmoflow", "closed", "optim.momentum", "0.8", "fixes optim.momentum at 0.9"),
        (MLPERF, "cosmoflow", "closed", "model.base_channels", "64", "fixes model.base_channels at 32"),
        (MLPERF, "cosmoflow", "open", "model.base_channels", "64", "fixes model.base_channels at 32"),
        (MLPERF, "deepcam", "closed", "optim.name", "sgd", "allows optim.name adam or adamw or nvlamb"),
        (MLPERF, "deepcam", "closed", "optim.eps", "1e-8", "fixes optim.eps at 1e-06"),
        (MLPERF, "deepcam", "closed", "schedule.shape", "polynomial", "allows schedule.shape multistep or cosine"),
        (MLPERF, "deepcam", "closed", "data.last_batch", "keep", "fixes data.last_batch at drop"),
        (NERSC, "deepcam", "baseline", "train.tf32", "true", "allows train.tf32 null or false (rule: the suite's "
         "options set no mixed precision, and the reference code then trains in float32); leave it out, or take "
         "--category optimized"),
        (ESIF, "s1", "optimized", "model.middle_blocks", "8", "fixes model.middle_blocks at 16"),
        (ESIF, "s2", "ported", "data.last_batch", "keep", "fixes data.last_batch at drop (rule: what no rule frees"),
        (MLPERF, "deepcam", "closed", "submission.division", "open", "--submission.division open: category closed of "
         "mlperf-hpc-3.0 fixes submission.division at closed (rule: its logs are of one division); leave it out, or "
         "take --category open"),
        (MLPERF, "cosmoflow", "open", "submission.division", "closed", "fixes submission.division at open"),
        (MLPERF, "deepcam", "closed", "train.evaluations_per_epoch", "2", "fixes train.evaluations_per_epoch at 1"),
    ],
)  # fmt: skip
def test_a_category_refuses_what_it_fixes(
    campaign: str, scenario: str, category: str, setting: str, value: str, said: str
) -> None:
    settings = {setting: value}
    if value == "polynomial":
        settings["schedule.t_max"] = "100"
    assert said in refused(entry_of(shipped(campaign), scenario, category, settings=settings))


@pytest.mark.parametrize(
    ("campaign", "scenario", "category", "settings"),
    [
        (NERSC, "deepcam", "baseline", {"parallel.threads": "4", "data.workers": "8", "data.root": "/d"}),
        (NERSC, "deepcam", "optimized", {"optim.lr": "0.01", "train.compile": "true", "train.precision": "16-mixed"}),
        (NERSC, "deepcam", "optimized", {"parallel.reduce_dtype": "bfloat16"}),
        (ESIF, "s2", "optimized", {"optim.name": "nvlamb", "optim.lr": "0.004", "schedule.warmup": "200"}),
        (NERSC, "deepcam", "baseline", {"train.tf32": "false"}),
        (NERSC, "deepcam", "optimized", {"train.tf32": "true"}),
        (MLPERF, "deepcam", "closed", {"train.precision": "32-true", "train.tf32": "true"}),
        (MLPERF, "deepcam", "open", {"train.tf32": "true"}),
        (MLPERF, "cosmoflow", "open", {"train.tf32": "false"}),
        (ESIF, "s1", "baseline", {"train.tf32": "true"}),
        (ESIF, "s2", "optimized", {"model.middle_blocks": "8", "data.last_batch": "keep", "train.tf32": "true"}),
        (ESIF, "s1", "baseline", {"data.workers": "4", "train.local_batch_size": "12"}),
        (MLPERF, "cosmoflow", "closed", {"optim.lr": "0.03", "model.dropout": "0.5", "optim.weight_decay": "0"}),
        (MLPERF, "deepcam", "closed", {"optim.name": "adamw", "train.accumulation": "4", "data.format": "npy"}),
        (MLPERF, "cosmoflow", "open", {"optim.name": "lars", "optim.momentum": "0.8"}),
    ],
)
def test_what_is_free_stays_free(campaign: str, scenario: str, category: str, settings: dict[str, str]) -> None:
    run_config(entry_of(shipped(campaign), scenario, category, settings=settings))


def test_the_refusal_names_a_category_that_allows_it() -> None:
    said = refused(entry_of(shipped(NERSC), "deepcam", "baseline", settings={"optim.lr": "0.01"}))
    assert said.endswith("leave it out, or take --category ported or optimized")
    said = refused(entry_of(shipped(NERSC), "deepcam", "baseline", settings={"train.checkpoint_every": "1"}))
    assert said.endswith("leave it out")


def test_a_limit_of_steps_in_a_file_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("train:\n  max_steps: 5\n")
    entry = entry_of(shipped(NERSC), "deepcam", "optimized", files=(tmp_path / "own.yaml",))
    assert "--train.max_steps 5: no run with it counts" in refused(entry)


@pytest.mark.parametrize(
    ("campaign", "scenario", "category", "setting", "value", "said"),
    [
        (ESIF, "s2", "baseline", "optim.lr", "0.01", "optim.lr 0.01: category baseline of esif-hpc-4 fixes optim.lr"),
        (ESIF, "s2", "optimized", "optim.lr", "0.01", ""),
        (ESIF, "s2", "optimized", "optim.betas", "[0.8, 0.9]", ""),
        (ESIF, "s2", "optimized", "optim.name", "nvlamb", ""),
        (ESIF, "s2", "baseline", "optim.betas", "[0.8, 0.9]", "fixes optim.betas at [0.9, 0.999]"),
        (ESIF, "s2", "baseline", "train.precision", "bf16-mixed", ""),
        (ESIF, "s2", "optimized", "train.target", "0.5", "train.target 0.5: category optimized of esif-hpc-4 fixes"),
        (ESIF, "s2", "optimized", "train.max_epochs", "3", "(rule: when a run ends is part of the metric)"),
        (ESIF, "s1", "baseline", "train.local_batch_size", "3", "train.local_batch_size 3: esif-hpc-4 fixes the local"),
        (ESIF, "s1", "baseline", "train.local_batch_size", "12", ""),
        (ESIF, "s2", "baseline", "train.local_batch_size", "12", "train.local_batch_size 12: in scenario s2"),
        (ESIF, "s2", "optimized", "train.seed", "7", "train.seed is for the campaign to draw, from the clock; leave"),
        (NERSC, "deepcam", "optimized", "optim.lr", "0.01", ""),
        (MLPERF, "deepcam", "closed", "optim.name", "sgd", "allows optim.name adam or adamw or nvlamb"),
    ],
)  # fmt: skip
def test_a_file_counts_as_the_command_line(
    tmp_path: Path, campaign: str, scenario: str, category: str, setting: str, value: str, said: str
) -> None:
    """Fixed, free and end-of-run settings: refused in the same words, or trained with."""
    path, (group, key) = tmp_path / "own.yaml", setting.split(".")
    path.write_text(f"{group}:\n  {key}: {value}\n")
    typed = entry_of(shipped(campaign), scenario, category, settings={setting: value})
    filed = entry_of(shipped(campaign), scenario, category, files=(path,))
    if said:
        assert said in refused(filed)
        assert refused(filed) == refused(typed).replace(f"--{setting}", f"{path}: {setting}")
        return
    assert run_config(filed) == run_config(typed)
    assert str(value_of(run_config(filed), setting)) == value.replace("[", "(").replace("]", ")")


def test_the_command_line_comes_after_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("optim:\n  lr: 0.01\n  betas: [0.8, 0.9]\n")
    chosen = {"files": (tmp_path / "own.yaml",), "settings": {"optim.lr": "0.003"}}
    optim = run_config(entry_of(shipped(ESIF), "s2", "optimized", **chosen)).optim
    assert (optim.lr, optim.betas) == (0.003, (0.8, 0.9))


def test_a_rule_may_name_the_type_of_sums() -> None:
    campaign = shipped(NERSC)
    free = SettingRule(("parallel.reduce_dtype",), "free", "sums may be of any type")
    scenario = replace(campaign.scenarios[0], rules=(*campaign.scenarios[0].rules, free))
    settings = {"parallel.reduce_dtype": "bfloat16"}
    run_config(entry_of(replace(campaign, scenarios=(scenario,)), "deepcam", "baseline", settings=settings))


@pytest.mark.parametrize("category", ["closed", "open"])
@pytest.mark.parametrize("chosen", [{}, {"small": True}, {"preset": "mlperf-512"}])
def test_a_run_is_of_the_division_of_its_category(category: str, chosen: dict[str, Any]) -> None:
    """The presets of published recipes say closed, ``smoke`` says nothing."""
    config = run_config(entry_of(shipped(MLPERF), "cosmoflow", category, **chosen))
    assert config.submission.division == category


def test_a_category_without_a_division_leaves_it_open() -> None:
    run_config(entry_of(shipped(NERSC), "deepcam", "baseline", settings={"submission.division": "open"}))


def test_a_rule_may_name_tf32_but_a_group_leaves_it_to_the_precision() -> None:
    campaign, settings = shipped(NERSC), {"train.tf32": "true"}
    for setting in ("train", "train.tf32"):
        rule = SettingRule((setting,), "free", "free")
        scenario = replace(campaign.scenarios[0], rules=(*campaign.scenarios[0].rules, rule))
        entry = entry_of(replace(campaign, scenarios=(scenario,)), "deepcam", "baseline", settings=settings)
        if setting == "train":
            assert "allows train.tf32 null or false" in refused(entry)
        else:
            run_config(entry)


@given(st.lists(st.floats(0, 1), max_size=4))
def test_factors_of_the_closed_division_lie_between_0_and_1(factors: list[float]) -> None:
    closed = category_of(shipped(MLPERF), "closed")
    rule = rule_for(scenario_of(shipped(MLPERF), "cosmoflow"), closed, "schedule.factors")
    assert rule is not None
    assert (broken(rule, factors) == "") == all(0 < factor < 1 for factor in factors)


def test_a_factor_of_1_is_refused() -> None:
    settings = {"schedule.factors": "[0.5, 0.25, 0.125, 1.0]"}
    said = refused(entry_of(shipped(MLPERF), "cosmoflow", "closed", settings=settings))
    assert "allows schedule.factors above 0 below 1 (rule: opt_learning_rate_decay_factor is between 0 and 1)" in said


def test_a_rehearsal_refuses_alike() -> None:
    said = refused(entry_of(shipped(NERSC), "deepcam", "baseline", small=True, settings={"optim.lr": "0.01"}))
    assert "fixes optim.lr at 0.004" in said


def test_batches_that_rules_leave_open_and_those_they_fix() -> None:
    closed = entry_of(shipped(MLPERF), "deepcam", "closed")
    assert global_batch_of(closed, run_config(closed)) == 128, "that of the preset's recipe"
    chosen = entry_of(shipped(MLPERF), "deepcam", "closed", global_batch=512)
    assert global_batch_of(chosen, run_config(chosen)) == 512
    assert global_batch_of(entry_of(shipped(ESIF), "s1", "baseline"), run_config(closed)) is None
    assert "fixes the global batch at 2,048" in refused(
        entry_of(shipped(NERSC), "deepcam", "baseline", global_batch=64)
    )
    assert "fixes the local batch at 12" in refused(entry_of(shipped(ESIF), "s1", "baseline", global_batch=64))


def test_names_that_are_none() -> None:
    with pytest.raises(InputError, match="campaign nersc10-deepcam has no category 'optimised'; did you mean 'optim"):
        category_of(shipped(NERSC), "optimised")
    with pytest.raises(InputError, match="campaign esif-hpc-4 has no scenario 's3'; did you mean 's"):
        scenario_of(shipped(ESIF), "s3")


def test_the_ladder_of_sizes() -> None:
    scenario = scenario_of(shipped(ESIF), "s1")
    assert ladder(scenario, (2,)) == (2, 8, 16)
    assert ladder(scenario, (8, 16)) == (8, 16), "a part of it"
    with pytest.raises(InputError, match="--nodes 2,6: scenario s1 asks for N, 4N, 8N nodes; give N alone"):
        ladder(scenario, (2, 6))
    assert ladder(scenario_of(shipped(NERSC), "deepcam"), (256, 512)) == (256, 512)
