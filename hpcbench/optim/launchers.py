"""Whether Triton can build the launchers of its kernels here; imports neither Triton nor torch."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path

COMPILER_PATHS = ("CPATH", "C_INCLUDE_PATH")
"""Variables with further folders in which a C compiler looks for headers."""


@cache
def builds_launchers() -> bool:
    """Whether there is what a launcher is built with: a C compiler, and the headers of this Python.

    The Python of a Linux distribution often lacks these; its package of development files has them.
    """
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return compiler is not None and has_headers(include_folder(), os.environ)


def include_folder() -> Path:
    """Where the headers of this Python belong, as Triton has it."""
    scheme = sysconfig.get_default_scheme()
    # Debian's own scheme is for what users install.
    return Path(sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme))


def has_headers(include: Path, environ: Mapping[str, str]) -> bool:
    """Whether ``Python.h`` is in ``include``, or where the compiler also looks."""
    further = [Path(folder) for name in COMPILER_PATHS for folder in environ.get(name, "").split(":") if folder]
    return any((folder / "Python.h").is_file() for folder in (include, *further))
