"""``hpcbench`` with a pause of ``PACE_S`` seconds after each optimizer step, so that a run is as long as needed."""

from __future__ import annotations

import os
import sys
import time

from hpcbench.cli.main import main
from hpcbench.train.loop import Trainer

step = Trainer.finish_step


def paced(trainer: Trainer, samples: int) -> None:
    """The step, and the pause."""
    step(trainer, samples)
    time.sleep(float(os.environ["PACE_S"]))


Trainer.finish_step = paced  # type: ignore[method-assign]
sys.exit(main())
