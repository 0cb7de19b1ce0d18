"""Recipes out of logs: those of every convergence point train at the published rate in every step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.mlperf.find_logs import location_of
from hpcbench.mlperf.read_log import read_log
from hpcbench.optim.recipes import RECIPES, Recipe
from hpcbench.optim.schedule import learning_rate
from hpcbench.submission.borrowed_recipe import batch_settings, read_recipe, recipe_lines
from staging.errors import InputError
from tests.hpcbench.optim.test_recipe_presets import RATES, SAMPLES, point_of, preset_name, preset_of, torch_rates

LOGS = Path(__file__).parents[2] / "data" / "logs"
POINTS = [recipe for recipe in RECIPES if recipe.point]
WriteLog = Callable[..., Path]


@pytest.fixture
def write_log(tmp_path: Path) -> WriteLog:
    """Writes a log of ``values``; ``file`` is the source file that its lines name."""

    def write(values: dict[str, Any], file: str = "train.py") -> Path:
        path = tmp_path / "result_1.txt"
        lines = [
            {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": key, "value": value,
             "metadata": {"file": file, "lineno": 7}}
            for key, value in values.items()
        ]  # fmt: skip
        path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
        return path

    return write


def logged(recipe: Recipe) -> dict[str, Any]:
    """The lines of a run of a convergence point."""
    values = dict(point_of(recipe)["Hyperparams"])
    if "batchnorm_groupsize" in values:
        values["batchnorm_group_size"] = values.pop("batchnorm_groupsize")
    names = {"submission_benchmark": recipe.application, "global_batch_size": recipe.global_batch_size}
    return {**names, "opt_name": recipe.optimizer, **values}


def borrowed(path: Path, application: str, **given: str) -> RunConfig:
    recipe = read_recipe(path, application, given)
    settings = {**recipe.settings, **batch_settings(recipe, 8, given), **given}
    return resolve(find_application(application), "smoke", overrides=settings)


def rates(config: RunConfig, application: str, batch: int, epochs: int) -> list[float]:
    """The rate of every step of DeepCAM, and of the first and last step of every epoch of CosmoFlow."""
    per_epoch = SAMPLES[application] // batch
    all_steps = range(epochs * per_epoch)
    ends = [step for step in all_steps if step % per_epoch in (0, per_epoch - 1)]
    steps = all_steps if application == "deepcam" else ends
    return [learning_rate(config.schedule, config.optim.lr, step, per_epoch) for step in steps]


@pytest.mark.parametrize("recipe", POINTS, ids=preset_name)
def test_a_published_recipe_trains_at_its_rate_in_every_step(recipe: Recipe, write_log: WriteLog) -> None:
    batch, application = recipe.global_batch_size, recipe.application
    values = logged(recipe)
    config = borrowed(write_log(values), application)
    per_epoch = SAMPLES[application] // batch
    epochs = max(point_of(recipe)["Epochs to converge"])
    expected = (
        [rate for rate in RATES[recipe.preset] for _ in ("first", "last")]
        if application == "cosmoflow"
        else torch_rates(point_of(recipe)["Hyperparams"], epochs * per_epoch)
    )
    assert rates(config, application, batch, epochs) == pytest.approx(expected, rel=1e-9)
    assert config.optim.weight_decay == recipe.weight_decay
    assert getattr(config.model, "dropout", 0.0) == recipe.dropout
    assert config.train.local_batch_size * config.train.accumulation * 8 == batch
    if application == "deepcam":
        usual = preset_of(recipe)
        assert (config.optim.name, config.optim.max_grad_norm) == ("nvlamb", 1.0)
        assert (config.optim.betas, config.optim.eps) == (usual.optim.betas, usual.optim.eps)


@pytest.mark.parametrize("recipe", RECIPES, ids=preset_name)
def test_what_a_run_of_ours_logs_comes_back_as_its_schedule(recipe: Recipe, write_log: WriteLog) -> None:
    config = preset_of(recipe)
    per_epoch = SAMPLES[recipe.application] // recipe.global_batch_size
    keys = find_application(recipe.application).module("task").build_task(config).log_keys(per_epoch)
    names = {"submission_benchmark": recipe.application, "global_batch_size": recipe.global_batch_size}
    back = borrowed(write_log({**names, **keys}, "hpcbench/train/setup.py"), recipe.application)
    assert rates(back, recipe.application, recipe.global_batch_size, 3) == pytest.approx(
        rates(config, recipe.application, recipe.global_batch_size, 3), rel=1e-9
    )
    assert back.schedule.milestones == config.schedule.milestones
    assert back.schedule.factors == pytest.approx(config.schedule.factors)


@pytest.mark.slow
def test_a_log_of_a_published_round(capsys: pytest.CaptureFixture[str]) -> None:
    """NVIDIA's DeepCAM of v1.0: LAMB at 0.0055 after 400 steps, batch norm over groups of two ranks."""
    log = LOGS / "v1.0-nvidia-deepcam.txt"
    config = borrowed(log, "deepcam")
    assert (config.optim.lr, config.schedule.warmup, config.schedule.milestones) == (0.0055, 400, [800])
    assert (config.schedule.warmup_start_lr, config.schedule.factors) == (0.0, [0.1])
    assert (config.train.batchnorm_group_size, config.train.local_batch_size) == (2, 256)
    assert read_recipe(log, "deepcam", {}).norm_samples == 2
    assert read_log(location_of(log)).recipe["opt_lr"] == config.optim.lr
    words = ["submit", "deepcam", "--site", "generic-slurm", "--nodes", "2", "--cores-per-rank", "4", "--dry-run"]
    assert main([*words, "--recipe-from", str(log), "--train.local_batch_size", "4"]) == 0
    script, told = capsys.readouterr()
    assert "--optim.lr=0.0055" in script
    assert "--recipe-from" not in script
    assert "--train.accumulation=256" in script
    assert "note: batch norm sees" not in told  # the user decided the local batch
    # The script names the folder on each node that shards need, with a borrowed recipe, too.
    assert main([*words, "--recipe-from", str(log), "--staging.placement", "shard"]) == 0
    assert "--staging.placement=shard" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_with_a_recipe_of_a_published_round_logs_the_same_recipe(tmp_path: Path) -> None:
    """NVIDIA's CosmoFlow of v1.0, batch 1,024, by the documented command: one step of two epochs each."""
    log, data, run = LOGS / "v1.0-nvidia-cosmoflow.txt", tmp_path / "data", tmp_path / "run"
    few = ["--simulate.train_samples", "1024", "--simulate.validation_samples", "4"]
    assert main(["data", "simulate", "cosmoflow", "--preset", "smoke", *few, "--out", str(data)]) == 0
    short = ["--train.max_epochs", "2", "--train.target", "null", "--train.baselines", "false"]
    words = ["train", "cosmoflow", "--recipe-from", str(log), "--data.root", str(data), "--run-dir", str(run)]
    assert main([*words, *short]) == 0
    theirs, ours = (read_log(location_of(path)) for path in (log, run / "mllog.txt"))
    assert theirs.global_batch_size == ours.global_batch_size == 1024
    # Without warm-up its factor says nothing; the published log has 12, ours 1.
    assert ours.recipe | {"opt_learning_rate_warmup_factor": 12} == theirs.recipe


def test_batch_norm_over_other_samples_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    log = LOGS / "v1.0-nvidia-deepcam.txt"
    assert main(["train", "deepcam", "--list", "--recipe-from", str(log)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"recipe of {log} (")
    assert "note: batch norm sees 4,096 samples here, 2 in the log" in printed
    assert "--optim.lr 0.0055\n" in printed


def test_what_the_user_decides_changes_nothing_that_the_log_says() -> None:
    log = LOGS / "v1.0-nvidia-deepcam.txt"  # 2,048 samples, of which two share their statistics
    for given in ({"train.accumulation": "4"}, {"optim.base_batch_size": "64", "optim.scaling": "linear"}):
        recipe = read_recipe(log, "deepcam", given)
        assert (recipe.global_batch_size, recipe.norm_samples) == (2048, 2)
    given = {"train.batchnorm_group_size": "4"}
    recipe = read_recipe(log, "deepcam", given)
    (note,) = recipe_lines(recipe, batch_settings(recipe, 1024, given), given)[-1:]
    assert note == "  note: batch norm sees 8 samples here, 2 in the log"


COSMOFLOW: dict[str, Any] = {
    "submission_benchmark": "cosmoflow", "global_batch_size": 96, "opt_name": "sgd", "opt_base_learning_rate": 0.02,
    "opt_learning_rate_warmup_epochs": 3, "opt_learning_rate_warmup_factor": 4,
    "opt_learning_rate_decay_boundary_epochs": [10], "opt_learning_rate_decay_factor": 0.3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "given", "start", "peak"),
    [
        ({"opt_base_learning_rate": 0.004}, {}, 0.001, 0.004),  # begins where the reference does: the peak
        ({"opt_base_learning_rate": 0.001}, {}, 0.001, 0.004),  # is where the reference begins: the start
        ({"opt_learning_rate_warmup_factor": 0.125}, {}, 0.0025, 0.02),  # as Fujitsu's logs of v0.7
        ({}, {"optim.lr": "0.02"}, 0.005, 0.02),
        ({}, {"optim.lr": "0.08"}, 0.02, 0.08),
        ({"opt_learning_rate_warmup_epochs": 0}, {}, 0.0, 0.02),
        ({"global_batch_size": 512, "opt_base_learning_rate": 0.024, "opt_learning_rate_warmup_epochs": 6}, {},
         0.006, 0.024),  # as Fugaku's of v1.0, whose convergence point logs the start
    ],
)  # fmt: skip
def test_what_a_logged_base_rate_is(
    changes: dict[str, Any], given: dict[str, str], start: float, peak: float, write_log: WriteLog
) -> None:
    config = borrowed(write_log({**COSMOFLOW, **changes}), "cosmoflow", **given)
    assert (config.schedule.warmup_start_lr, config.optim.lr) == pytest.approx((start, peak))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "may be the peak or the start of the warm-up; give --optim.lr 0.02 or --optim.lr 0.08"),
        ({"opt_name": "SGDWD"}, "opt_name (SGDWD) must be sgd or SGD"),
        ({"opt_learning_rate_warmup_epochs": 0.5}, "(0.5) must be a whole number of at least 0; give"),
        ({"opt_learning_rate_warmup_epochs": 0, "opt_learning_rate_decay_boundary_epochs": [8, 9]},
         "opt_learning_rate_decay_factor 0.3 alone leaves the drops after the first open"),
        ({"opt_learning_rate_warmup_epochs": 0, "opt_learning_rate_decay_factor": [0.5, 0.2]},
         "2 decay factors for 1 boundary epochs"),
        ({"opt_learning_rate_warmup_epochs": 0, "opt_learning_rate_decay_boundary_epochs": [9, 8]},
         "must be whole numbers that rise"),
        ({"submission_benchmark": "deepcam"}, "is a log of deepcam; give one of cosmoflow"),
        ({"global_batch_size": None}, "global_batch_size (null) must be a number"),
        ({"opt_learning_rate_warmup_epochs": 0, "scheduler_type": "cosine"}, "whose length CosmoFlow's logs tell"),
        ({"opt_learning_rate_warmup_epochs": 0, "opt_learning_rate_decay_factor": ["x"]}, "must be numbers"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_one_line(
    changes: dict[str, Any], said: str, write_log: WriteLog, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_log({**COSMOFLOW, **changes})
    assert main(["train", "cosmoflow", "--list", "--recipe-from", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert "--recipe-from" in error


def test_keys_of_v07_are_missed_by_name() -> None:
    with pytest.raises(InputError, match=r"v0\.7-fujitsu-deepcam\.txt: has no opt_betas; give --optim\.betas"):
        read_recipe(LOGS / "v0.7-fujitsu-deepcam.txt", "deepcam", {})


def test_ranks_that_do_not_share_the_batch(write_log: WriteLog) -> None:
    recipe = read_recipe(write_log({**COSMOFLOW, "opt_base_learning_rate": 0.004}), "cosmoflow", {})
    assert batch_settings(recipe, 8, {}) == {"train.local_batch_size": "12", "train.accumulation": "1"}
    assert batch_settings(recipe, 8, {"train.local_batch_size": "4"}) == {"train.accumulation": "3"}
    with pytest.raises(InputError, match="global batch of 96 does not divide over 7 ranks x 1 micro-batch"):
        batch_settings(recipe, 7, {})


def test_no_log_and_many(tmp_path: Path) -> None:
    (tmp_path / "result_1.txt").write_text("nothing\n")
    with pytest.raises(InputError, match="holds no line of an official log"):
        read_recipe(tmp_path, "cosmoflow", {})
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result_1.txt").write_text("nothing\n")
    with pytest.raises(InputError, match="logs in 3 folders; give one log, or the folder of one"):
        read_recipe(tmp_path, "cosmoflow", {})
    with pytest.raises(InputError, match="recipes can be taken from logs of cosmoflow and deepcam, not of mine"):
        read_recipe(LOGS / "v1.0-nvidia-deepcam.txt", "mine", {})
