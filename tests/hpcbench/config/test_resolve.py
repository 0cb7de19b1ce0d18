"""Configurations: precedence of sources, types, and one-line errors with the nearest right name."""

from pathlib import Path

import pytest

from hpcbench.application import Application, find_application
from hpcbench.config.resolve import as_tree, config_class, known_keys, preset_named, resolve
from staging.errors import InputError

COSMOFLOW = find_application("cosmoflow")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_below_preset_below_files_below_overrides(tmp_path: Path) -> None:
    first = write(tmp_path / "a.yaml", "optim: {lr: 0.5, max_grad_norm: 0.5}\ntrain: {max_epochs: 77}")
    second = write(tmp_path / "b.yaml", "optim: {lr: 0.25}")
    config = resolve(COSMOFLOW, "smoke", [first, second], {"optim.max_grad_norm": "0.75"})
    assert config.optim.lr == 0.25
    assert config.optim.max_grad_norm == 0.75
    assert config.train.max_epochs == 77
    assert config.data.sample_size == 16
    assert config.optim.eps is None
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


def test_another_optimizer_unsets_the_options_of_the_one_before_but_not_its_own(tmp_path: Path) -> None:
    file = tmp_path / "adam.yaml"
    file.write_text("optim: {name: adamw, betas: [0.8, 0.9], lr: 0.25}\n")
    config = resolve(COSMOFLOW, "mlperf", [file], {"optim.eps": "0.5", "optim.name": "lamb"})
    optim = config.optim
    assert (optim.name, optim.eps, optim.betas, optim.momentum, optim.lr) == ("lamb", 0.5, None, None, 0.25)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"optim.lrr": "1"}, ["optim.lrr", "did you mean 'optim.lr'"]),
        ({"optmi.lr": "1"}, ["optmi.lr", "did you mean 'optim.lr'"]),
        ({"optim.lr": "fast"}, ["optim.lr", "(fast) must be a number"]),
        ({"train.precision": "fp8"}, ["train.precision", "fp8", "bf16-mixed"]),
        ({"optim": "sgd"}, ["'optim' is a group"]),
        ({"train.max_epochs": "0"}, ["train.max_epochs (0) must be at least 1"]),
        ({"optim.name": "adam", "optim.betas": "[0.9, 1.0]"}, ["optim.betas", "below 1"]),
        ({"optim.betas": "[0.9, 0.99]"}, ["optim.betas is no option of sgd, which has momentum, nesterov,"]),
        ({"optim.name": "lamd"}, ["unknown optimizer optim.name 'lamd'; did you mean 'lamb'?"]),
        ({"optim.name": "lars", "optim.trust_bounds": "[2, 1]"}, ["optim.trust_bounds ([2.0, 1.0]) must be two"]),
        ({"optim.name": "lamb", "optim.max_grad_norm": "-1"}, ["optim.max_grad_norm (-1.0) must be at least 0"]),
        ({"optim.momentum": "1"}, ["optim.momentum", "below 1"]),
        ({"data.sample_size": "100"}, ["data.sample_size (100) must be a multiple of 32", "model.conv_layers"]),
        ({"simulate.universe_size": "192"}, ["simulate.universe_size (192)", "multiple of data.sample_size (128)"]),
        ({"data.channels": "3"}, ["simulate.redshifts has 4", "data.channels is 3"]),
        ({"data.input_mean": "[1, 2]", "data.input_std": "[1, 2]"}, ["have 2 and 2 values but data.channels is 4"]),
        (
            {"data.input_std": "[1, 2, 3, 4]"},
            ["data.input_mean and data.input_std have 0 and 4 values", "per channel"],
        ),
        ({"data.input_std": "[1, 0, 1, 1]"}, ["data.input_std[1] (0.0) must be above 0"]),
        ({"model.base_channels": "1024"}, ["model.base_channels (1024) makes 16384 channels in the last of 5 blocks"]),
        ({"model.dropout": "1.0"}, ["model.dropout (1.0)"]),
        ({"schedule.shape": "multistep"}, ["schedule.milestones"]),
        ({"schedule.shape": "cosine"}, ["schedule.t_max (0)"]),
        ({"schedule.milestones": "[1, 2]", "schedule.factors": "[0.1]"}, ["one factor per milestone"]),
        ({"schedule.milestones": "[2, 1]", "schedule.factors": "[0.1, 0.2]"}, ["must grow"]),
        ({"schedule.warmup": "3", "schedule.warmup_start_lr": "9"}, ["schedule.warmup_start_lr (9.0)", "optim.lr"]),
        ({"schedule.warmup": "-1"}, ["schedule.warmup (-1) must be at least 0"]),
        ({"schedule.warmup_start_lr": "-1"}, ["schedule.warmup_start_lr (-1.0) must be at least 0"]),
        ({"schedule.warmup_unit": "hour"}, ["schedule.warmup_unit", "hour"]),
        ({"schedule.shape": "polynomial"}, ["schedule.t_max (0) must be at least 1 for schedule.shape polynomial"]),
        ({"schedule.shape": "inverse_sqrt"}, ["schedule.t_max (0) must be at least 1 for schedule.shape inverse_sqrt"]),
        (
            {"schedule.shape": "inverse_sqrt", "schedule.t_max": "9", "schedule.reference_quirks": "true"},
            ["schedule.reference_quirks does not go with schedule.shape inverse_sqrt"],
        ),
        ({"schedule.power": "0"}, ["schedule.power (0.0) must be above 0"]),
        ({"schedule.eta_min": "-1"}, ["schedule.eta_min (-1.0) must be at least 0"]),
        (
            {"schedule.shape": "cosine", "schedule.t_max": "9", "schedule.eta_min": "9"},
            ["schedule.eta_min (9.0) must be at most the peak, optim.lr (0.001)"],
        ),
        (
            {"schedule.shape": "polynomial", "schedule.t_max": "9", "schedule.reference_quirks": "true"},
            ["schedule.reference_quirks does not go with schedule.shape polynomial"],
        ),
        (
            {"schedule.warmup": "3", "schedule.warmup_unit": "step", "schedule.reference_quirks": "true"},
            ["schedule.reference_quirks does not go with schedule.warmup_unit step beside schedule.unit epoch"],
        ),
        (
            {"schedule.unit": "step", "schedule.reference_quirks": "true"},
            ["schedule.reference_quirks does not go with schedule.shape constant in schedule.unit step"],
        ),
        ({"optim.scaling": "cubic"}, ["optim.scaling", "cubic", "linear"]),
        ({"optim.scaling": "linear"}, ["optim.scaling linear needs optim.base_batch_size"]),
        ({"optim.base_batch_size": "0"}, ["optim.base_batch_size (0) must be at least 1"]),
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


def test_a_preset_that_a_file_names_gives_its_values_and_not_only_its_name(tmp_path: Path) -> None:
    """A run would else be called by a preset whose values it does not have."""
    file, other = tmp_path / "mine.yaml", tmp_path / "other.yaml"
    file.write_text("preset: laptop\ntrain: {max_epochs: 3}\n")
    other.write_text("preset: node\n")
    assert preset_named([file], None) == preset_named([file], "laptop") == "laptop"
    assert preset_named([], None) == "smoke"
    mine = resolve(COSMOFLOW, "laptop", [file])
    assert mine == resolve(COSMOFLOW, "laptop", None, {"train.max_epochs": 3})
    cases = [("smoke", [file], "mine.yaml names preset 'laptop', and 'smoke' is"),
             ("laptop", [file, other], "other.yaml names preset 'node', and 'laptop' is")]  # fmt: skip
    for preset, files, said in cases:
        with pytest.raises(InputError, match=f"{said} asked for besides; leave out one of them"):
            resolve(COSMOFLOW, preset, files)
    other.write_text("preset: [laptop]\n")
    with pytest.raises(InputError, match=r"other.yaml: preset must be a name, not \[laptop\]"):
        resolve(COSMOFLOW, "laptop", [other])


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
        kind = config_class(find_application(name))
        meanings = descriptions(kind)
        for key, _ in known_keys(kind):
            if key not in ("preset",):
                assert meanings[key], key


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application with presets that extend one another, well and badly."""
    configs = tmp_path / "family" / "configs"
    configs.mkdir(parents=True)
    (tmp_path / "family" / "__init__.py").touch()
    texts = {
        "base": "optim: {lr: 0.5, max_grad_norm: 0.5}\nschedule: {milestones: [1, 2], factors: [0.5, 0.1]}",
        "child": "extends: base\noptim: {lr: 0.25}\nschedule: {milestones: [3], factors: [0.2]}",
        "grandchild": "extends: child\ntrain: {max_epochs: 77}",
        "orphan": "extends: bass",
        "many": "extends: [base, child]",
        "narcissus": "extends: narcissus",
        "hen": "extends: egg",
        "egg": "extends: hen",
        "slip": "extends: base\noptim: {lrr: 1}",
        "heir": "extends: slip",
    }
    for name, text in texts.items():
        write(configs / f"{name}.yaml", text)
    monkeypatch.syspath_prepend(tmp_path)
    return Application(name="family", title="none", benchmark="family", package="family")


def test_a_preset_stands_on_those_that_it_extends(family: Application) -> None:
    config = resolve(family, "grandchild")
    assert (config.optim.lr, config.optim.max_grad_norm, config.train.max_epochs) == (0.25, 0.5, 77)
    assert (config.schedule.milestones, config.schedule.factors) == ([3], [0.2])
    assert config.preset == "grandchild"


@pytest.mark.parametrize(
    ("preset", "line"),
    [
        ("orphan", "family has no preset 'bass', which preset 'orphan' extends; did you mean 'base'?"),
        ("many", "family has no preset '[base, child]', which preset 'many' extends; known: "),
        ("narcissus", "presets of family extend one another: narcissus -> narcissus; end the circle"),
        ("hen", "presets of family extend one another: hen -> egg -> hen; end the circle"),
        ("heir", "preset 'slip': unknown key 'optim.lrr'; did you mean 'optim.lr'?"),
    ],
)
def test_bad_extension_is_one_line(family: Application, preset: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve(family, preset)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_file_cannot_extend_a_preset(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", "extends: smoke")
    with pytest.raises(InputError, match=r"mine\.yaml: 'extends' is for presets; leave it out and give --preset smoke"):
        resolve(COSMOFLOW, None, [path])


def test_scaling_lets_the_warm_up_start_above_the_base_rate() -> None:
    """Whether it lies above the peak is known only with the batch."""
    values = {"optim.scaling": "linear", "optim.base_batch_size": "64", "schedule.warmup": "3"}
    assert resolve(COSMOFLOW, None, [], {**values, "schedule.warmup_start_lr": "0.1"}).schedule.warmup_start_lr == 0.1
