"""DeepCAM's task: normalization, analytic values of the loss, overlap of hand cases, logged keys."""

from pathlib import Path

import pytest
import torch

from apps.deepcam.config import Config
from apps.deepcam.model import build_model
from apps.deepcam.statistics import STATISTICS_FILE, array_statistics, write_statistics
from apps.deepcam.task import CLASS_WEIGHTS, DeepCAMTask, build_task
from hpcbench.application import find_application
from hpcbench.config.resolve import resolve

MINIMUM = torch.arange(16, dtype=torch.float32) - 5
MAXIMUM = MINIMUM + torch.arange(1, 17, dtype=torch.float32)


def loaded(channels: list[int] | None = None) -> DeepCAMTask:
    config = Config()
    config.data.channels = channels or list(range(16))
    task = build_task(config)
    task.set_range(MINIMUM, MAXIMUM)
    return task


def fields(batch: int = 2, height: int = 3, width: int = 4) -> torch.Tensor:
    """Fields as a dataset gives them: (batch, channels, h, w) float32, stored with the channel last, within range."""
    shares = torch.rand(batch, height, width, 16, generator=torch.Generator().manual_seed(1))
    return (MINIMUM + shares * (MAXIMUM - MINIMUM)).permute(0, 3, 1, 2)


def test_fields_are_scaled_by_the_range_of_the_training_set() -> None:
    stored = fields()
    stored[0, :, 0, 0], stored[0, :, 0, 1] = MINIMUM, MAXIMUM
    before = stored.clone()
    inputs, labels = loaded().prepare(stored, torch.ones(2, 3, 4), None)
    assert (inputs[0, :, 0, 0] == 0).all()
    assert (inputs[0, :, 0, 1] == 1).all()
    expected = (stored - MINIMUM[:, None, None]) / (MAXIMUM - MINIMUM)[:, None, None]
    torch.testing.assert_close(inputs, expected)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert labels.dtype == torch.int64
    assert torch.equal(stored, before)


def test_chosen_channels_are_scaled_by_their_own_range() -> None:
    stored = fields()[:, [3, 1]]
    inputs, _ = loaded([3, 1]).prepare(stored, torch.ones(2, 3, 4), None)
    assert torch.equal(inputs, loaded().prepare(fields(), torch.ones(2, 3, 4), None)[0][:, [3, 1]])


def test_published_class_weights() -> None:
    assert list(CLASS_WEIGHTS) == pytest.approx([1.00173, 2.61461, 1.71642], abs=5e-6)


@pytest.mark.parametrize(("label", "loss"), [(0, 1.1005), (1, 2.8724), (2, 1.8857)])
def test_loss_on_uniform_logits(label: int, loss: float) -> None:
    logits = torch.zeros(2, 3, 4, 5, dtype=torch.float64)
    assert float(loaded().loss(logits, torch.full((2, 4, 5), label))) == pytest.approx(loss, abs=5e-5)


def test_loss_is_the_plain_mean_of_weighted_terms() -> None:
    logits = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    labels = torch.randint(0, 3, (2, 4, 5))
    terms = [
        -CLASS_WEIGHTS[label] * float(logits[n, label, h, w] - logits[n, :, h, w].exp().sum().log())
        for (n, h, w) in torch.cartesian_prod(torch.arange(2), torch.arange(4), torch.arange(5)).tolist()
        for label in [int(labels[n, h, w])]
    ]
    assert float(loaded().loss(logits, labels)) == pytest.approx(sum(terms) / len(terms), rel=1e-12)


def one_hot(classes: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(classes, 3).permute(0, 3, 1, 2).float()


def test_overlap_of_hand_cases() -> None:
    task = loaded()
    labels = torch.zeros(3, 2, 4, dtype=torch.int64)
    predicted = labels.clone()
    # All background, predicted so; then the only cyclone pixel missed; then half of a river found.
    labels[1, 0, 0] = 1
    labels[2, 0, :] = 2
    predicted[2, 0, :2] = 2
    scores = task.score(one_hot(predicted), labels)
    assert scores.dtype == torch.float64
    assert scores.shape == (3, len(task.columns))
    columns = dict(zip(task.columns, scores.T.tolist(), strict=True))
    assert columns["tp_background"] == [8, 7, 4]
    assert columns["fp_background"] == [0, 1, 2]
    assert columns["fn_tropical_cyclone"] == [0, 1, 0]
    assert columns["fn_atmospheric_river"] == [0, 0, 2]
    metrics = task.metrics(scores)
    assert metrics["iou"] == pytest.approx((1 + (7 / 8 + 0 + 1) / 3 + (4 / 6 + 1 + 1 / 2) / 3) / 3)
    assert metrics["share_tropical_cyclone"] == pytest.approx(1 / 3)
    assert metrics["share_atmospheric_river"] == pytest.approx(1 / 3)
    assert metrics["iou_present_atmospheric_river"] == pytest.approx(1 / 2)


def test_logged_keys_of_the_published_recipe() -> None:
    config = resolve(find_application("deepcam"), preset="mlperf")
    assert isinstance(config, Config)
    assert build_task(config).log_keys(947) == {
        "gradient_accumulation_frequency": 1,
        "batchnorm_group_size": 1,
        "opt_name": "LAMB",
        "opt_lr": 0.00155,
        "opt_betas": [0.9, 0.999],
        "opt_eps": 1e-6,
        "opt_weight_decay": 0.01,
        "opt_bias_correction": True,
        "opt_grad_averaging": True,
        "opt_max_grad_norm": 1.0,
        "scheduler_type": "cosine_annealing",
        "scheduler_lr_warmup_steps": 0,
        "scheduler_lr_warmup_factor": 1.0,
        "scheduler_t_max": 9000,
        "scheduler_eta_min": 0.0,
    }


def test_logged_keys_of_a_cosine_in_epochs_are_in_steps() -> None:
    config = Config()
    schedule = config.schedule
    schedule.unit, schedule.shape, schedule.t_max, schedule.eta_min = "epoch", "cosine", 10, 1e-5
    schedule.warmup, schedule.warmup_start_lr, config.optim.lr, config.optim.name = 2, 0.001, 0.004, "adam"
    keys = build_task(config).log_keys(50)
    assert (keys["scheduler_type"], keys["scheduler_t_max"], keys["scheduler_eta_min"]) == (
        "cosine_annealing",
        500,
        1e-5,
    )
    assert (keys["scheduler_lr_warmup_steps"], keys["opt_name"]) == (100, "Adam")
    # The checker wants a factor of at least 1; the product is the peak.
    assert (keys["opt_lr"], keys["scheduler_lr_warmup_factor"]) == (pytest.approx(0.001), pytest.approx(4))


def test_logged_milestones_in_epochs_count_from_the_end_of_the_warmup() -> None:
    config = Config()
    schedule = config.schedule
    schedule.unit, schedule.shape, schedule.warmup = "epoch", "multistep", 2
    schedule.milestones, schedule.factors = [6], [0.5]
    keys = build_task(config).log_keys(50)
    assert (keys["scheduler_milestones"], keys["scheduler_decay_rate"]) == ([200], 0.5)


def test_logged_warm_up_in_epochs_before_drops_in_steps_is_in_steps() -> None:
    config = Config()
    schedule = config.schedule
    schedule.unit, schedule.shape, schedule.warmup, schedule.warmup_unit = "step", "multistep", 2, "epoch"
    schedule.milestones, schedule.factors = [60], [0.5]
    keys = build_task(config).log_keys(50)
    assert (keys["scheduler_lr_warmup_steps"], keys["scheduler_milestones"]) == (100, [60])


def test_a_polynomial_is_logged_by_a_name_that_the_closed_division_lacks() -> None:
    config = Config()
    schedule = config.schedule
    schedule.shape, schedule.t_max, schedule.power, schedule.eta_min = "polynomial", 10, 2.0, 1e-5
    schedule.milestones, schedule.factors = [60], [0.5]
    keys = build_task(config).log_keys(50)
    assert (keys["scheduler_type"], keys["scheduler_t_max"], keys["scheduler_power"]) == ("polynomial", 500, 2.0)
    assert keys["scheduler_eta_min"] == 1e-5
    assert "scheduler_milestones" not in keys
    schedule.shape = "inverse_sqrt"
    keys = build_task(config).log_keys(50)
    assert (keys["scheduler_type"], keys["scheduler_t_max"]) == ("inverse_sqrt", 500)
    assert "scheduler_power" not in keys
    schedule.shape = "constant"
    keys = build_task(config).log_keys(50)
    assert (keys["scheduler_milestones"], keys["scheduler_decay_rate"]) == ([], 1.0)


def test_published_preset_is_the_closed_division() -> None:
    config = resolve(find_application("deepcam"), preset="mlperf")
    assert isinstance(config, Config)
    assert (config.data.train_samples, config.data.validation_samples) == (121_266, 15_158)
    assert (config.train.target, config.submission.division) == (0.82, "closed")
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in build_model(config).parameters()) == 56_454_720


def test_examples_are_in_physical_units_and_thinned_out() -> None:
    task = loaded()
    stored = fields(1, 4, 800)
    labels = torch.randint(0, 3, (1, 4, 800))
    inputs, target = task.prepare(stored, labels, None)
    kept = task.example(inputs, one_hot(labels), target)
    assert {value.shape for value in kept.values()} == {(1, 2, 267)}
    torch.testing.assert_close(kept["TMQ"], stored[:, 0, ::3, ::3], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kept["PSL"], stored[:, 7, ::3, ::3], rtol=1e-5, atol=1e-5)
    wind = torch.hypot(stored[:, 3, ::3, ::3], stored[:, 4, ::3, ::3])
    torch.testing.assert_close(kept["wind"], wind, rtol=1e-5, atol=1e-5)
    assert kept["label"].dtype == kept["prediction"].dtype == torch.uint8
    assert torch.equal(kept["prediction"], labels[:, ::3, ::3].to(torch.uint8))


def test_examples_leave_out_what_the_model_does_not_see() -> None:
    task = loaded([7, 3])
    inputs, target = task.prepare(fields()[:, [7, 3]], torch.zeros(2, 3, 4), None)
    assert set(task.example(inputs, one_hot(target), target)) == {"label", "prediction", "PSL"}


def test_the_range_is_read_from_the_dataset(tmp_path: Path) -> None:
    stored = fields(1)
    write_statistics(tmp_path / STATISTICS_FILE, array_statistics(stored[0].permute(1, 2, 0).numpy()))
    config = Config()
    config.data.root = str(tmp_path)
    task = build_task(config)
    task.load(config)
    inputs, _ = task.prepare(stored, torch.zeros(1, 3, 4), None)
    assert (inputs.amin(dim=(0, 2, 3)) == 0).all()
    assert (inputs.amax(dim=(0, 2, 3)) == 1).all()
