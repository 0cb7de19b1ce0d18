"""Waits until a socket or pipe can be read, whatever its number: ``select.select`` refuses those from 1,024 on."""

from __future__ import annotations

import math
import select


def is_readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or the other end is gone, within ``seconds``."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(math.ceil(seconds * 1000)))
