"""Let libraries ask where they were called from without a search of the filesystem.

torch registers some 360 operators while it is imported, and asks ``inspect`` for the module and the source line of each
caller; the logger of MLPerf asks for every line that it writes. ``inspect`` then resolves the path of every loaded
module, with a call for each folder above it, and reads the text around the line; both callers drop the text. On a
filesystem that all ranks share, these were two thirds of a rank's calls before it trains (``benchmarks/start.py``
counts them).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from inspect import getframeinfo, getmodule
from types import FrameType, ModuleType


@contextmanager
def cheap_frame_lookups() -> Iterator[None]:
    """In this context, ``inspect`` takes a frame's module from the frame alone, and gives no text around its line.

    Keep the context short: it affects all threads of the process.
    """
    inspect.getmodule, inspect.getframeinfo = module_of, partial(getframeinfo, context=0)
    try:
        yield
    finally:
        inspect.getmodule, inspect.getframeinfo = getmodule, getframeinfo


def module_of(object: object, _filename: str | None = None) -> ModuleType | None:
    """As ``inspect.getmodule``, but finds the module of a frame by the name in the frame's globals."""
    if isinstance(object, FrameType):
        return sys.modules.get(object.f_globals.get("__name__", ""))
    return getmodule(object, _filename)
