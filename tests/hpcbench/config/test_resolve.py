"""Configurations: precedence of sources, types, and one-line errors with the nearest right name."""

from pathlib import Path

import pytest

from hpcbench.application import find_application
from hpcbench.config.resolve import as_tree, known_keys, resolve
from staging.errors import InputError

COSMOFLOW = find_application("cosmoflow")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_below_preset_below_files_below_overrides(tmp_path: Path) -> None:
    first = write(tmp_path / "a.yaml", "optim: {lr: 0.5, momentum: 0.5}\ntrain: {max_epochs: 77}")
    second = write(tmp_path / "b.yaml", "optim: {lr: 0.25}")
    config = resolve(COSMOFLOW, "smoke", [first, second], {"optim.momentum": "0.75"})
    assert config.optim.lr == 0.25
    assert config.optim.momentum == 0.75
    assert config.train.max_epochs == 77
    assert config.data.sample_size == 16
    assert config.optim.eps == 1e-6
    assert config.preset == "smoke"


def test_values_get_the_type_of_their_field() -> None:
    config = resolve(
        COSMOFLOW,
        None,
        [],
        {"optim.lr": "1e-3", "train.compile": "true", "simulate.redshifts": "[1, 2, 3, 0]", "train.target": "null"},
    )
    assert config.optim.lr == 0.001
    assert config.train.compile is True
    assert config.simulate.redshifts == [1.0, 2.0, 3.0, 0.0]
    assert config.train.target is None


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"optim.lrr": "1"}, ["optim.lrr", "did you mean 'optim.lr'"]),
        ({"optmi.lr": "1"}, ["optmi.lr", "did you mean 'optim.lr'"]),
        ({"optim.lr": "fast"}, ["optim.lr", "(fast) must be of type float"]),
        ({"train.precision": "fp8"}, ["train.precision", "fp8", "bf16-mixed"]),
        ({"optim": "sgd"}, ["'optim' is a group"]),
        ({"train.max_epochs": "0"}, ["train.max_epochs (0) must be at least 1"]),
        ({"optim.betas": "[0.9, 1.0]"}, ["optim.betas", "below 1"]),
        ({"optim.momentum": "1"}, ["optim.momentum", "below 1"]),
        ({"data.sample_size": "100"}, ["data.sample_size (100) must be a multiple of 32", "model.conv_layers"]),
        ({"simulate.universe_size": "192"}, ["simulate.universe_size (192)", "multiple of data.sample_size (128)"]),
        ({"data.channels": "3"}, ["simulate.redshifts has 4", "data.channels is 3"]),
        ({"model.dropout": "1.0"}, ["model.dropout (1.0)"]),
        ({"schedule.shape": "multistep"}, ["schedule.milestones"]),
        ({"schedule.shape": "cosine"}, ["schedule.t_max (0)"]),
        ({"schedule.milestones": "[1, 2]", "schedule.factors": "[0.1]"}, ["one factor per milestone"]),
        ({"schedule.milestones": "[2, 1]", "schedule.factors": "[0.1, 0.2]"}, ["must grow"]),
        ({"schedule.warmup": "3", "schedule.warmup_start_lr": "9"}, ["schedule.warmup_start_lr (9.0)", "optim.lr"]),
        ({"train.cuda_graph": "true"}, ["data.last_batch drop"]),
        (
            {"submission.ruleset": "1.0.0", "staging.destination": "x", "staging.timed": "false"},
            ["staging.timed", "1.0.0"],
        ),
    ],
)
def test_bad_settings_are_one_line_that_names_them(overrides: dict[str, str], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        resolve(COSMOFLOW, None, [], overrides)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"data.height": "100"}, ["data.height (100)", "multiple of 16"]),
        (
            {"data.height": "16", "data.width": "16", "train.local_batch_size": "1"},
            ["batch norm", "train.local_batch_size"],
        ),
        ({"data.channels": "[0, 16]"}, ["16", "0 to 15"]),
        ({"data.channels": "[3, 3]"}, ["each once"]),
    ],
)
def test_bad_settings_of_the_climate_application(overrides: dict[str, str], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        resolve(find_application("deepcam"), None, [], overrides)
    for word in words:
        assert word in str(caught.value)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'cosmoflow'"):
        find_application("cosmoflw")
    with pytest.raises(InputError, match="did you mean 'smoke'"):
        resolve(COSMOFLOW, "smok")


@pytest.mark.parametrize(
    ("text", "word"), [("a: [", "not valid YAML"), ("- 1", "holds a list"), ("nope: 1", "unknown key 'nope'")]
)
def test_bad_files_are_named(tmp_path: Path, text: str, word: str) -> None:
    path = write(tmp_path / "bad.yaml", text)
    with pytest.raises(InputError, match=word) as caught:
        resolve(COSMOFLOW, None, [path])
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.yaml: cannot read"):
        resolve(COSMOFLOW, None, [tmp_path / "gone.yaml"])


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam"])
def test_a_written_configuration_reads_back_equal(name: str, tmp_path: Path) -> None:
    import yaml

    application = find_application(name)
    for preset in application.presets():
        config = resolve(application, preset)
        path = write(tmp_path / "config.yaml", yaml.safe_dump(as_tree(config)))
        assert resolve(application, None, [path]) == config


def test_every_setting_is_described() -> None:
    from hpcbench.cli.settings import descriptions

    for name in ("cosmoflow", "deepcam"):
        kind = find_application(name).config_class()
        meanings = descriptions(kind)
        for key, _ in known_keys(kind):
            if key not in ("preset",):
                assert meanings[key], key
