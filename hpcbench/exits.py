"""How a run ends: exit codes, and the error of a run that had to stop."""

from __future__ import annotations

DONE = 0
ABORTED = 1
BAD_INPUT = 2
TARGET_NOT_REACHED = 3


class Aborted(Exception):  # noqa: N818 - it is an event, and not always an error
    """The run had to stop: a loss that is not finite, a full disk, a signal, another rank."""

    speaks = True
    """Whether this rank reports it; where all ranks stop for the same reason, the first one does."""

    def __init__(self, reason: str, exit_code: int = ABORTED) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
