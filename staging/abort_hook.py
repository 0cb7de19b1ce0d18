"""Calls a hook before an abort ends this process, so that a staging can record why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class AbortHook(Protocol):
    """An object that calls ``on_abort`` with the reason before it ends this process, as ``AbortWatcher`` does."""

    on_abort: Callable[[str], None] | None


@contextmanager
def told_of_abort(watcher: AbortHook | None, tell: Callable[[str], None]) -> Iterator[None]:
    """Within this context, an abort calls ``tell`` before the ``on_abort`` that ``watcher`` had before."""
    if watcher is None:
        yield
        return
    then = watcher.on_abort

    def on_abort(reason: str) -> None:
        tell(reason)
        if then is not None:
            then(reason)

    watcher.on_abort = on_abort
    try:
        yield
    finally:
        watcher.on_abort = then
