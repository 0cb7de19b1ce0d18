"""A training step never waits for the device: torch raises where it would."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.train.interrupt import Interrupts
from hpcbench.train.loop import forward_backward, optimizer_step, training_batches
from hpcbench.train.open import open_run
from hpcbench.train.ranks import connect_ranks
from staging.ranks.launch import Launch
from staging.spans import Spans

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

FIRST = 3
"""Steps in which libraries, the optimizer's state and constants of the task find their place."""


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("app", ["cosmoflow", "deepcam"])
def test_no_step_waits(
    app: str, precision: str, device: torch.device, datasets: dict[str, Path], tmp_path: Path
) -> None:
    module = torch.get_device_module(device)
    if not hasattr(module, "set_sync_debug_mode"):
        pytest.skip(f"needs an accelerator whose torch module tells of waiting, not {device.type}")
    application = find_application(app)
    settings = {"data.root": str(datasets[app]), "train.precision": precision, "train.local_batch_size": "4"}
    if app == "cosmoflow":
        settings |= {"model.dropout": "0.5", "data.augment": "true"}
    config = resolve(application, "smoke", [], settings)
    with Interrupts() as interrupts, connect_ranks(Launch(), config) as ranks:
        run = open_run(application, config, ranks, Spans(), interrupts, tmp_path / "run", resume=False)
        run.task.load()
        # Reading and copying to the device is another phase, and may wait.
        batches = list(training_batches(run, 1))
        assert len(batches) == 6
        try:
            for number, (inputs, targets, indices) in enumerate(batches):
                module.set_sync_debug_mode("error" if number >= FIRST else "default")
                run.step_loss += forward_backward(run, inputs, targets, indices, 1, len(indices), True)
                optimizer_step(run, len(indices))
        finally:
            module.set_sync_debug_mode("default")
        run.flush_losses()
    assert len(run.state.epoch_losses) == 6
