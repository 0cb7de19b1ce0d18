"""A package index in a folder, and a source tree that builds at once, for bundles that take seconds."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from tests.hpcbench.bundle.wheel_writer import write_wheel

DEPENDENCIES = (
    "torch>=2.6", "numpy>=1.26", "mpi4py>=4.0", "packaging>=23.0", "plotter>=1.0",
    "backport>=1; python_version < '3.12'", "forward>=1; python_version >= '3.13'",
    "arm_only>=1; platform_machine == 'aarch64'",
)  # fmt: skip
EXTRAS = {"fast": ("compiler>=1",), "local": ("torch>=2.11", "mpich>=4.2"), "lost": ("nowhere>=3",)}
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def write_index(folder: Path) -> Path:
    """Wheels that meet ``DEPENDENCIES``, and traps: a torch with needs of its own, newer versions that do not fit."""
    folder.mkdir()
    copy_wheel(folder, "packaging")
    write_wheel(folder, "torch", "2.6", ["nvidia-driver>=12"])
    write_wheel(folder, "torch", "2.9", ["nvidia-driver>=12"])
    write_wheel(folder, "numpy", "1.26")
    write_wheel(folder, "mpi4py", "4.1.2")
    write_wheel(folder, "plotter", "1.4", ["numpy<2.7,>=1.21", "fonts[web]>=2"])
    write_wheel(folder, "plotter", "2.0", ["numpy>=2.5"])
    write_wheel(folder, "fonts", "2.3", ["client>=1; extra == 'web'", "painter>=1; extra == 'print'"])
    for name in ("client", "painter", "backport", "forward", "arm_only", "compiler"):
        write_wheel(folder, name, "1.0")
    return folder


def copy_wheel(folder: Path, name: str) -> Path:
    """Make a wheel of a pure package that is installed here."""
    here = distribution(name)
    path = folder / f"{name}-{here.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in here.files or ():
            if "__pycache__" not in file.parts and ".." not in file.parts:
                archive.write(str(here.locate_file(file)), file.as_posix())
    return path


def write_source(folder: Path) -> Path:
    """A source tree of ``hpcbench-ml`` 9.1 whose backend needs nothing."""
    (folder / "hpcbench").mkdir(parents=True)
    for name in ("tiny_backend.py", "wheel_writer.py"):
        shutil.copyfile(Path(__file__).with_name(name), folder / "hpcbench" / name)
    groups = "".join(f"{extra} = {json.dumps(texts)}\n" for extra, texts in EXTRAS.items())
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "tiny_backend"\nbackend-path = ["hpcbench"]\n'
        f'[project]\nname = "hpcbench-ml"\nversion = "9.1"\ndependencies = {json.dumps(DEPENDENCIES)}\n'
        f"[project.optional-dependencies]\n{groups}",
        encoding="utf-8",
    )
    (folder / "runs").mkdir()
    (folder / "runs" / "summary.json").write_text("{}", encoding="utf-8")
    return folder
