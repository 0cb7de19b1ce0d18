"""Virtual environments for tests that need hpcbench in one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

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
