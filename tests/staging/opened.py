"""Destinations for sinks, opened where a test names them."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from staging.storage.destination_folder import DestinationFolder


def opened(path: Path) -> DestinationFolder:
    """The folder, made if it is missing, and open as long as somebody has it."""
    path.mkdir(parents=True, exist_ok=True)
    folder = DestinationFolder(path)
    weakref.finalize(folder, close_all, folder._folders)
    return folder


def close_all(descriptors: dict[str, int]) -> None:
    """Close what is still open."""
    while descriptors:
        os.close(descriptors.popitem()[1])
