"""DALI's batches arrive on a CUDA device, or on the processor, and equal those of the torch loader."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.data.dali_samples import has_dali, index_file
from hpcbench.data.loader import BatchLoader, open_loader
from hpcbench.data.sampler import epoch_order, rank_batches
from hpcbench.train.build import open_data
from tests.gpu.run_losses import losses

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not has_dali(), reason='needs NVIDIA DALI (pip install "hpcbench-ml[dali]")'),
]

SETS = [
    pytest.param("cosmoflow", {"data.compression": "none"}, id="TFRecord"),
    pytest.param("cosmoflow", {"data.format": "npy"}, id="npy of counts"),
    pytest.param("deepcam", {"data.format": "npy"}, id="npy of fields"),
]


@pytest.fixture
def place(device: torch.device) -> torch.device:
    """The accelerator, where it is one that DALI knows, or the processor."""
    if device.type not in ("cuda", "cpu"):
        pytest.skip(f"needs a CUDA device, DALI knows none of type {device.type}")
    return device


def simulate(app: str, root: Path, settings: dict[str, str]) -> list[str]:
    """A dataset with indices; returns the words that say what it is."""
    words = [word for key, value in settings.items() for word in (f"--{key}", value)]
    sizes = ["--simulate.train_samples", "26", "--simulate.validation_samples", "10", "--processes", "4"]
    assert main(["data", "simulate", app, "--preset", "smoke", "--out", str(root), *sizes, *words]) == 0
    for path in root.glob("*/*.tfrecord"):
        index_file(path).write_text(f"0 {path.stat().st_size}\n")
    return [*words, "--data.root", str(root)]


@pytest.mark.parametrize(("app", "settings"), SETS)
def test_batches_on_the_device_equal_those_of_the_torch_loader(
    app: str, settings: dict[str, str], place: torch.device, tmp_path: Path
) -> None:
    simulate(app, tmp_path, settings)
    application = find_application(app)
    config = resolve(application, "smoke", [], {**settings, "data.root": str(tmp_path), "data.loader": "dali"})
    training, _ = open_data(application, config)
    loader = open_loader(application, config, "train", training, 4, place)
    for epoch in (1, 2):
        batches = rank_batches(epoch_order(26, 3, epoch), 0, 1, 4, "keep")
        expected = BatchLoader(training, 0, pin=False).load(batches)
        kept = []
        for (inputs, targets), (right_inputs, right_targets) in zip(loader.load(batches), expected, strict=True):
            assert inputs.device.type == targets.device.type == place.type
            assert inputs.stride() == right_inputs.stride()
            # Work on the device that is still under way when DALI makes the next batches.
            kept.append((inputs.double().sum() - right_inputs.to(place).double().sum(), inputs, right_inputs))
            assert torch.equal(targets.cpu(), right_targets)
        for difference, inputs, right_inputs in kept:
            assert difference.item() == 0
            assert torch.equal(inputs.cpu(), right_inputs)


@pytest.mark.parametrize(("app", "settings"), SETS)
def test_training_is_the_same_with_both_loaders(
    app: str, settings: dict[str, str], place: torch.device, tmp_path: Path
) -> None:
    words = simulate(app, tmp_path / "data", settings)
    fixed = ["--train.precision", "32-true", "--train.max_epochs", "2", "--train.target", "null", "--seed", "5",
             "--train.baselines", "false", "--train.page", "false", "--optim.name", "sgd",
             "--optim.lr", "0.001"]  # fmt: skip
    found = []
    for loader in ("torch", "dali"):
        run = ["--data.loader", loader, "--run-dir", str(tmp_path / loader)]
        assert main(["train", app, "--preset", "smoke", *words, *fixed, *run]) == 0
        found.append(losses(tmp_path / loader))
    # Sums on the device may be taken in another order from run to run.
    assert found[1] == pytest.approx(found[0], rel=1e-4)
