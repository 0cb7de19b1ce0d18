"""``hpcbench`` with a pause of ``PACE_S`` seconds after each optimizer step, so that a run is as long as needed."""

from __future__ import annotations

import os
import sys
import time

from hpcbench.cli.main import main
from hpcbench.train import loop

step = loop.optimizer_step


def paced(*arguments: object) -> None:
    """The step, and the pause."""
    step(*arguments)  # type: ignore[arg-type]
    time.sleep(float(os.environ["PACE_S"]))


loop.optimizer_step = paced
sys.exit(main())
