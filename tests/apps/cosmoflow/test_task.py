"""CosmoFlow's task: input transform, symmetries of the cube, loss, scores, decay and logged keys."""

from math import log

import pytest
import torch

from apps.cosmoflow.config import PARAMETERS, Config
from apps.cosmoflow.model import build_model
from apps.cosmoflow.task import SYMMETRIES, CosmoFlowTask, augmented, build_task
from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.train.randomness import sample_keys


def counts(batch: int = 3, size: int = 4) -> torch.Tensor:
    """Counts as a dataset gives them: (batch, channels, d, h, w) int16, stored with the channel last."""
    generator = torch.Generator().manual_seed(1)
    stored = torch.randint(0, 50, (batch, size, size, size, 4), generator=generator, dtype=torch.int16)
    return stored.permute(0, 4, 1, 2, 3)


def tasks(**data: object) -> CosmoFlowTask:
    config = Config()
    for name, value in data.items():
        setattr(config.data, name, value)
    return build_task(config)


def test_input_is_the_logarithm_of_one_plus_count() -> None:
    stored = counts()
    inputs, targets = tasks().prepare(stored, torch.zeros(3, 4), None)
    assert inputs.dtype == targets.dtype == torch.float32
    assert float(inputs[1, 2, 3, 0, 1]) == pytest.approx(log(1 + int(stored[1, 2, 3, 0, 1])))
    torch.testing.assert_close(inputs.double(), torch.log(1 + stored.double()), rtol=1e-6, atol=1e-7)


def test_input_without_logarithm_is_divided_by_the_mean_of_the_sample() -> None:
    stored = counts()
    inputs, _ = tasks(apply_log=False).prepare(stored, torch.zeros(3, 4), None)
    expected = stored.double() / stored.double().mean(dim=(1, 2, 3, 4), keepdim=True)
    torch.testing.assert_close(inputs.double(), expected, rtol=1e-6, atol=1e-7)


def test_each_channel_is_standardized_by_what_the_configuration_says() -> None:
    stored = counts()
    channels = stored.shape[1]
    mean, std = [0.1 * channel for channel in range(1, channels + 1)], [2.0 + channel for channel in range(channels)]
    inputs, _ = tasks(input_mean=mean, input_std=std).prepare(stored, torch.zeros(3, 4), None)
    for channel in range(channels):
        expected = (torch.log(1 + stored[:, channel].double()) - mean[channel]) / std[channel]
        torch.testing.assert_close(inputs[:, channel].double(), expected, rtol=1e-6, atol=1e-6)
    assert inputs.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("apply_log", [False, True])
@pytest.mark.parametrize("dtype", [torch.int16, torch.float32])
def test_preparing_keeps_channels_last_and_its_input(augment: bool, apply_log: bool, dtype: torch.dtype) -> None:
    stored = counts().to(dtype)
    before = stored.clone()
    inputs, _ = tasks(augment=augment, apply_log=apply_log).prepare(stored, torch.zeros(3, 4), torch.arange(3))
    assert inputs.is_contiguous(memory_format=torch.channels_last_3d)
    assert torch.equal(stored, before)


def test_the_48_symmetries_are_distinct_and_keep_every_count() -> None:
    stored = torch.arange(2 * 27).reshape(1, 2, 3, 3, 3).expand(2000, -1, -1, -1, -1).contiguous()
    turned = augmented(stored, sample_keys(1, 1, torch.arange(2000)))
    distinct = turned[:, 0].flatten(1).unique(dim=0)
    assert len(distinct) == len(SYMMETRIES) == 48
    assert torch.equal(turned.flatten(2).sort(dim=2).values, stored.flatten(2))
    # Neighbors stay neighbors: opposite corners of the cube add up to the same in every symmetry.
    assert (distinct[:, 0] + distinct[:, -1] == 26).all()
    # The channels of a sample turn together.
    assert torch.equal(turned[:, 1] - turned[:, 0], torch.full((2000, 3, 3, 3), 27))


def test_symmetries_are_about_equally_frequent() -> None:
    stored = torch.arange(8).reshape(1, 1, 2, 2, 2).expand(4800, -1, -1, -1, -1).contiguous()
    turned = augmented(stored, sample_keys(3, 1, torch.arange(4800)))
    frequencies = turned.flatten(1).unique(dim=0, return_counts=True)[1].double()
    assert len(frequencies) == 48
    # Chi-squared with 47 degrees of freedom exceeds 82.7 with probability 0.001.
    assert float(((frequencies - 100) ** 2 / 100).sum()) < 82.7


def test_symmetry_belongs_to_the_sample() -> None:
    stored, keys, order = counts(8), sample_keys(1, 1, torch.arange(8)), torch.randperm(8)
    whole = augmented(stored, keys)
    assert torch.equal(augmented(stored[order], keys[order]), whole[order])
    assert torch.equal(augmented(stored[2:5], keys[2:5]), whole[2:5])


def test_evaluation_is_never_augmented() -> None:
    stored = counts()
    inputs, _ = tasks(augment=True).prepare(stored, torch.zeros(3, 4), None)
    torch.testing.assert_close(inputs, stored.float().log1p())


def test_loss_is_the_mean_squared_error() -> None:
    task, target = tasks(), torch.zeros(2, 4)
    assert float(task.loss(torch.full((2, 4), 0.5), target)) == 0.25
    assert float(task.loss(torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 3.0]]), target)) == 10 / 8
    assert task.loss(torch.zeros(2, 4, dtype=torch.float64), target).dtype == torch.float64


def test_scores_and_metrics_of_a_hand_case() -> None:
    task = tasks()
    output = torch.tensor([[0.5, 0.0, -1.0, 0.25], [0.0, 0.0, 1.0, 0.25]])
    target = torch.tensor([[0.0, 0.0, -0.5, 0.5], [0.25, 0.0, 0.0, 0.25]])
    scores = task.score(output, target)
    assert scores.dtype == torch.float64
    assert scores.shape == (2, len(task.columns))
    columns = dict(zip(task.columns, scores.T.tolist(), strict=True))
    assert columns["error_omega_m"] == [0.5, 0.25]
    assert columns["predicted_n_s"] == [-1.0, 1.0]
    assert columns["true_h_0"] == [0.5, 0.25]
    assert task.metrics(scores) == {
        "mae": 0.3125, "mae_omega_m": 0.375, "mae_sigma_8": 0.0, "mae_n_s": 0.75, "mae_h_0": 0.125,
    }  # fmt: skip


def test_guessing_the_middle_of_uniform_labels_has_error_one_half() -> None:
    labels = torch.rand(20_000, 4, dtype=torch.float64) * 2 - 1
    task = tasks()
    assert task.metrics(task.score(torch.zeros(20_000, 4), labels))["mae"] == pytest.approx(0.5, abs=0.01)


def test_decay_has_the_gradient_of_the_published_l2_loss() -> None:
    config = Config()
    config.data.sample_size, config.model.conv_layers, config.model.base_channels = 8, 2, 2
    config.model.dropout, config.optim.weight_decay = 0.0, 0.01
    task = build_task(config)
    model, reference = (build_model(config).double() for _ in range(2))
    reference.load_state_dict(model.state_dict())
    x, target = torch.randn(2, 4, 8, 8, 8, dtype=torch.float64), torch.zeros(2, 4)
    optimizer = torch.optim.SGD(task.parameter_groups(model), lr=0.1)
    task.loss(model(x), target).backward()
    optimizer.step()
    kernels = (reference.dense1.weight, reference.dense2.weight)
    (task.loss(reference(x), target) + 0.01 * sum(kernel.square().sum() for kernel in kernels)).backward()
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs - 0.1 * theirs.grad)


def test_every_parameter_is_in_one_group() -> None:
    config = Config()
    config.data.sample_size = 32
    model = build_model(config)
    groups = build_task(config).parameter_groups(model)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())


def test_logged_keys_of_the_published_recipe() -> None:
    config = resolve(find_application("cosmoflow"), preset="mlperf")
    assert isinstance(config, Config)
    assert build_task(config).log_keys(1024) == {
        "opt_name": "sgd",
        "opt_base_learning_rate": 0.024,
        "opt_learning_rate_warmup_epochs": 6,
        "opt_learning_rate_warmup_factor": pytest.approx(4.0),
        "opt_learning_rate_decay_boundary_epochs": [19, 21, 22, 23],
        "opt_learning_rate_decay_factor": [0.5, 0.25, 0.125, 0.0625],
        "dropout": 0.0,
        "opt_weight_decay": 0.01,
    }


def test_logged_keys_of_a_schedule_in_steps_are_in_epochs() -> None:
    config = Config()
    schedule = config.schedule
    schedule.unit, schedule.shape, schedule.warmup, schedule.warmup_start_lr = "step", "multistep", 100, 0.0005
    schedule.milestones, schedule.factors = [300], [0.1]
    keys = build_task(config).log_keys(50)
    assert keys["opt_learning_rate_warmup_epochs"] == 2
    assert keys["opt_learning_rate_decay_boundary_epochs"] == [8]
    assert keys["opt_learning_rate_warmup_factor"] == 2


def test_logged_warm_up_in_steps_before_drops_in_epochs_is_in_epochs() -> None:
    config = Config()
    schedule = config.schedule
    schedule.shape, schedule.warmup, schedule.warmup_unit = "multistep", 75, "step"
    schedule.milestones, schedule.factors = [8], [0.1]
    keys = build_task(config).log_keys(50)
    assert keys["opt_learning_rate_warmup_epochs"] == 1.5
    assert keys["opt_learning_rate_decay_boundary_epochs"] == [8]


@pytest.mark.parametrize("shape", ["cosine", "polynomial", "inverse_sqrt"])
def test_a_schedule_without_drops_logs_none_and_its_name(shape: str) -> None:
    config = resolve(find_application("cosmoflow"), "mlperf", [], {"schedule.shape": shape, "schedule.t_max": "9"})
    keys = build_task(config).log_keys(50)  # type: ignore[arg-type]
    assert (keys["opt_learning_rate_decay_boundary_epochs"], keys["opt_learning_rate_decay_factor"]) == ([], [])
    assert keys["scheduler_type"] == shape


@pytest.mark.parametrize(
    ("warmup", "start", "factor"), [(0, 0.0, 1.0), (0, 0.5, 1.0), (4, 0.0, 0.0), (4, 0.00025, 4.0)]
)
def test_logged_warmup_factor(warmup: int, start: float, factor: float) -> None:
    config = Config()
    config.optim.lr, config.schedule.warmup, config.schedule.warmup_start_lr = 0.001, warmup, start
    assert build_task(config).log_keys(1)["opt_learning_rate_warmup_factor"] == factor


def test_published_preset_is_the_closed_division() -> None:
    config = resolve(find_application("cosmoflow"), preset="mlperf")
    assert isinstance(config, Config)
    assert (config.data.train_samples, config.data.validation_samples) == (524_288, 65_536)
    assert (config.train.target, config.submission.division) == (0.124, "closed")
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in build_model(config).parameters()) == 8_907_556


def test_example_is_the_central_slice() -> None:
    inputs = torch.randn(2, 4, 6, 5, 5)
    kept = tasks().example(inputs, torch.zeros(2, 4), torch.zeros(2, 4))
    assert torch.equal(kept["slice"], inputs[:, :, 3])
    assert len(PARAMETERS) == 4
