"""Retries input and output after errors that may be transient."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MAY_PASS = frozenset({
    errno.EIO, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE, errno.ENETDOWN,
    errno.ENETUNREACH, errno.ENOLCK, errno.ECONNRESET, errno.EHOSTDOWN,
})  # fmt: skip
"""Errors of shared filesystems under load, or while one of their servers is replaced."""

FIRST_WAIT_S = 0.05


def retrying(action: Callable[[], T], retries: int, count: Callable[[], None] = lambda: None) -> T:
    """What ``action`` returns, retried up to ``retries`` times after an ``OSError`` that may be transient.

    The wait doubles before each retry. ``count`` is called for each.
    """
    wait = FIRST_WAIT_S
    for _ in range(retries):
        try:
            return action()
        except OSError as error:
            if error.errno not in MAY_PASS:
                raise
        count()
        time.sleep(wait)
        wait *= 2
    return action()
