"""A characterisation and kernels alone on an accelerator: every kernel has a time, and no roof is exceeded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from hpcbench.application import find_application
from hpcbench.characterisation.characterize import Wanted, characterize, kernels_alone
from hpcbench.characterisation.file import read_characterisation, write_characterisation
from hpcbench.characterisation.model import Characterisation
from hpcbench.characterisation.roofline import step_roof
from hpcbench.characterisation.roofs import has_tensor_float, sixteen_bit
from hpcbench.config.resolve import resolve
from hpcbench.train.ranks import connect_ranks
from staging.ranks.launch import detect

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ON_PROCESSOR = [("cosmoflow", "bf16-mixed"), ("deepcam", "32-true")]
"""What is tried without an accelerator, too."""


def characterised(app: str, seconds: float, settings: dict[str, object], *storage: Path) -> Characterisation:
    """What `hpcbench characterize` finds; without its page, which needs packages that the machine may lack."""
    application = find_application(app)
    config = resolve(application, "smoke", overrides=settings)
    with connect_ranks(detect(os.environ), config) as ranks:
        return characterize(application, config, ranks, Wanted(seconds, storage))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("app", ["cosmoflow", "deepcam"])
def test_all_is_measured_on_the_device(
    app: str, precision: str, device: torch.device, datasets: dict[str, Path], tmp_path: Path
) -> None:
    if device.type == "cpu" and (app, precision) not in ON_PROCESSOR:
        pytest.skip("needs an accelerator: a processor takes too long")
    settings: dict[str, object] = {"data.root": str(datasets[app]), "train.precision": precision}
    found = characterised(app, 3.0, settings, tmp_path)
    assert found.host.device == device.type
    assert [(kernel.operation, kernel.shapes) for kernel in found.kernels if not kernel.alone_s] == []
    products = {roof.name for roof in found.roofs if roof.resource == "compute"}
    assert products >= {"float32", *sixteen_bit(device)}
    assert ("tf32" in products) == has_tensor_float(device)
    assert all(found.roof(part) is not None for part in ("memory", "launch", "read", "write"))
    (steps,) = found.steps
    assert 0 < steps.least_s <= steps.median_s <= steps.most_s
    roof = step_roof(found)
    assert roof is not None
    assert steps.utilisation == pytest.approx([rate / roof.value for rate in steps.flop_per_s])
    assert 0 < steps.utilisation[0] < 1
    reading = found.input.reading
    assert reading is not None
    assert reading.prepare_s > 0
    check_profile(found, device)
    assert read_characterisation(write_characterisation(found, tmp_path / "found.json")) == found


def check_profile(found: Characterisation, device: torch.device) -> None:
    """Its operations are those of the device, and so is the memory that a step took."""
    assert found.profile["convolution"] > 0
    assert 0 < sum(each.seconds for each in found.longest) <= 1.001 * sum(found.profile.values())
    if device.type == "cpu":
        return
    # Ranges and operations of the host are no kernels of the device.
    assert not [each.name for each in found.longest if each.name.startswith(("aten::", "Optimizer.", "ProfilerStep"))]
    taken = found.footprint
    assert taken.measured_peak is not None
    assert found.host.memory_bytes is not None
    # When the backward pass begins, parameters and what the forward pass saved are there at the same time.
    assert taken.parameters + taken.saved < taken.measured_peak < found.host.memory_bytes


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_kernels_are_timed_in_every_precision(precision: str, device: torch.device) -> None:
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", overrides={"train.precision": precision})
    with connect_ranks(detect(os.environ), config) as ranks:
        assert ranks.device.type == device.type
        found = kernels_alone(application, config, ranks, 1.0)
    assert [(kernel.operation, kernel.shapes) for kernel in found.kernels if not kernel.alone_s] == []
    assert found.kernels[-1].kind == "optimizer"
    assert found.steps == ()
