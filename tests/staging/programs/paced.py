"""``python -m staging`` with a pause before each piece is written and with small batches: faults meet it midway.

``PACE_S`` is the pause in seconds, ``PACE_FILES`` the number of files in a batch.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import Any

import staging.stage
from staging.__main__ import main
from staging.ledger.durable_batch import DurableBatch
from staging.moving.writing import PieceWriter

write = PieceWriter.write


def write_later(self: PieceWriter, *words: Any) -> None:
    time.sleep(float(os.environ.get("PACE_S", "0.02")))
    write(self, *words)


if __name__ == "__main__":
    setattr(PieceWriter, "write", write_later)  # noqa: B010
    setattr(staging.stage, "DurableBatch", partial(DurableBatch, files=int(os.environ.get("PACE_FILES", "10"))))  # noqa: B010
    sys.exit(main())
