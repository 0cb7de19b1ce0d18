"""A training step never waits for the device: torch raises where it would."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.train.ranks import connect_ranks
from hpcbench.train.setup import set_up
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import Launch
from staging.ranks.signals import Interrupts

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

FIRST = 3
"""Steps in which libraries, the optimizer's state and constants of the task find their place."""


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("app", ["cosmoflow", "deepcam"])
def test_no_step_waits(
    app: str,
    precision: str,
    no_waiting: Callable[[], AbstractContextManager[None]],
    datasets: dict[str, Path],
    tmp_path: Path,
) -> None:
    application = find_application(app)
    settings = {"data.root": str(datasets[app]), "train.precision": precision, "train.local_batch_size": "4"}
    if app == "cosmoflow":
        settings |= {"model.dropout": "0.5", "data.augment": "true"}
    config = resolve(application, "smoke", [], settings)
    with Interrupts() as interrupts, connect_ranks(Launch(), config) as ranks:
        trainer = set_up(application, config, ranks, PhaseTimer(), interrupts, tmp_path / "run", resume=False)
        trainer.run.task.load(config)
        # Reading and copying to the device is another phase, and may wait.
        batches = list(trainer.data.training_batches(1))
        assert len(batches) == 6
        for number, batch in enumerate(batches):
            with no_waiting() if number >= FIRST else nullcontext():
                trainer.step.accumulate(batch, trainer.data.training_loader, 1, number + 1, 1.0, last=True)
                trainer.finish_step(len(batch.indices))
        trainer.flush()
    assert len(trainer.state.epoch_losses) == 6
