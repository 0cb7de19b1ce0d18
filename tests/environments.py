"""Virtual environments for tests that need hpcbench in one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]


def make_environment(folder: Path) -> Path:
    """A virtual environment that has hpcbench, and finds all else that it needs where this Python does."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for name in ("hpcbench", "staging", "apps"):
        shutil.copytree(ROOT / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    tool = packages / "hpcbench" / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    return folder


NOT_IN_A_RANK = (
    "__editable__*", "pandas*", "matplotlib*", "scipy*", "tensorboard*", "numba*", "llvmlite*", "mypy*",
    "material*", "babel*", "__pycache__",
)  # fmt: skip
"""Large packages that no rank imports, and what leads to a checkout."""


def make_whole_environment(folder: Path) -> Path:
    """A virtual environment with hpcbench that finds all that a rank needs in itself, as links to files."""
    make_environment(folder)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "others.pth").unlink()
    unneeded = () if torch.version.cuda else ("nvidia*",)  # DALI alone; PyTorch for accelerators has libraries there
    leave = shutil.ignore_patterns(*NOT_IN_A_RANK, *unneeded, "hpcbench", "staging", "apps")
    own = Path(sysconfig.get_path("purelib"))
    shutil.copytree(
        own, packages, copy_function=os.symlink, dirs_exist_ok=True,
        ignore=lambda path, names: leave(path, names) if Path(path) == own else set(),
    )  # fmt: skip
    return folder
