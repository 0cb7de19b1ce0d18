"""Carry the packages that a machine without a network lacks: downloaded as wheels elsewhere, installed beside it.

Nothing on that machine changes: the packages go to a folder of this call alone, which only its processes use.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VERSION = "0+unknown"
"""Version of a checkout that is not installed, as ``hpcbench`` calls itself there."""
CARRIED = (
    "PyYAML", "mlperf-logging", "deflate", "fastcrc", "psutil",
    "rich", "markdown-it-py", "mdurl", "pygments", "scipy", "pytest", "pluggy", "iniconfig", "packaging", "hypothesis",
    "sortedcontainers", "h5py", "lightning-fabric", "lightning-utilities",
)  # fmt: skip
"""What training, simulation and tests import besides PyTorch and NumPy, with its dependencies.

Matplotlib and pandas are not among them: without them a run leaves no page.
"""
REFUSED = ("torch", "triton", "nvidia", "cuda", "cupy", "pytorch-triton")
"""Packages that belong to the machine: a name that begins with one of these is never carried."""
LARGEST_BYTES = 60 * 2**20
PLATFORMS = [
    f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014", "_2_12", "2010", "1")
]


def download(out: Path, python: str, present: Path | None, add: list[str]) -> int:
    """Fetch the wheels for ``python`` ("3.12", Linux on x86-64) into ``out``; returns an exit code.

    ``present`` lists packages that are already there (as ``pip list --format=freeze``); ``add`` names further ones.
    """
    there = {normal(line.split("==")[0]) for line in present.read_text().splitlines()} if present else set()
    wanted = [name for name in (*CARRIED, *add) if normal(name.split("==")[0]) not in there]
    refused = [name for name in wanted if normal(name).startswith(REFUSED)]
    if refused:
        print(f"{', '.join(refused)}: the machine's own PyTorch and CUDA packages are used; leave them out")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.whl"):
        old.unlink()
    platforms = [word for platform in (*PLATFORMS, "any") for word in ("--platform", platform)]
    versions = ["--python-version", python, "--implementation", "cp"]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(out)]
    done = subprocess.run([*command, *versions, *platforms, *wanted], check=False)
    if done.returncode:
        print(f"pip could not download all of: {', '.join(wanted)}")
        return 1
    return report(out)


def report(out: Path) -> int:
    """Print the wheels in ``out`` and their size; return exit code 2 if that is too much, else 0."""
    wheels = sorted(out.glob("*.whl"), key=lambda path: -path.stat().st_size)
    total = sum(path.stat().st_size for path in wheels)
    for path in wheels:
        print(f"{path.stat().st_size / 2**20:7.2f} MiB  {path.name}")
    print(f"{total / 2**20:7.2f} MiB in {len(wheels)} wheels (at most {LARGEST_BYTES / 2**20:.0f})")
    if total > LARGEST_BYTES:
        print("too much to carry: name what the machine has with --present (pip list --format=freeze there)")
        return 2
    return 0


def install(wheels: Path | None, target: Path) -> dict[str, list[str]]:
    """Create the folder ``target`` with what this Python lacks, and with the entry points of this checkout.

    Raises ``SystemExit`` with pip's message if a wheel cannot be installed. Returns which wheels were used.
    """
    target.mkdir(parents=True, exist_ok=True)
    here = {normal(package.metadata["Name"]) for package in distributions() if package.metadata["Name"]}
    paths = sorted(wheels.glob("*.whl")) if wheels is not None else []
    missing = [path for path in paths if normal(path.name.split("-")[0]) not in here]
    if missing:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
        quiet = ["--disable-pip-version-check", "--no-cache-dir", "--target", str(target)]
        done = subprocess.run([*command, *quiet, *map(str, missing)], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"the wheels of {wheels} do not fit this Python:\n{done.stderr}")
    if normal(checkout()["name"]) not in here:
        describe_checkout(target)
    return {"installed": [path.name for path in missing], "there_already": sorted(here & set(map(normal, CARRIED)))}


def describe_checkout(target: Path) -> None:
    """Write metadata of this checkout, so that its entry points (the applications) are found without installation."""
    project = checkout()
    folder = target / f"{project['name'].replace('-', '_')}-{VERSION}.dist-info"
    folder.mkdir(exist_ok=True)
    words = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {VERSION}\n"
    (folder / "METADATA").write_text(words, encoding="utf-8")
    groups = project["entry-points"]
    lines = [
        line for group, points in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def checkout() -> dict[str, Any]:
    """Return the table ``project`` of this checkout's pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def normal(name: str) -> str:
    """Normalise a package's name as PEP 503 does for comparison."""
    return name.strip().lower().replace("_", "-").replace(".", "-")
