"""A folder with the program ``hpcbench``, for shells and other tools that start it by its name."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment_with_hpcbench(folder: Path) -> dict[str, str]:
    """Variables of a process that finds ``hpcbench``, of this repository and Python; its home is ``folder``."""
    program = folder / "bin" / "hpcbench"
    program.parent.mkdir()
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    start = f"PYTHONPATH={shlex.quote(paths)} exec {shlex.quote(sys.executable)} -m hpcbench"
    program.write_text(f'#!/bin/sh\n{start} "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
