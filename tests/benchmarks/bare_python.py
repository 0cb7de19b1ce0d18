"""A Python with the packages of a bare machine with PyTorch, and those that are carried to it, and no others."""

from __future__ import annotations

import re
import sys
import venv
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from _accelerator.wheels import CARRIED, normal

PRESENT = ("torch", "numpy")
"""What such a machine has, with all that these need."""
NAME = re.compile(r"[A-Za-z0-9._-]+")


def make_bare_python(folder: Path) -> Path:
    """A virtual environment in ``folder`` that links to the packages of this Python; returns its interpreter."""
    venv.create(folder, with_pip=False)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for name in sorted(with_needs(PRESENT) | set(map(normal, CARRIED))):
        link(distribution(name), packages)
    return folder / "bin" / "python"


def with_needs(names: tuple[str, ...]) -> set[str]:
    """The packages with those that they need, as far as these are installed."""
    here = {normal(found.metadata["Name"]) for found in distributions() if found.metadata["Name"]}
    found: set[str] = set()
    left = [normal(name) for name in names]
    while left:
        name = left.pop()
        if name in here and name not in found:
            found.add(name)
            needs = [line for line in distribution(name).requires or [] if "extra ==" not in line]
            left += [normal(NAME.match(line)[0]) for line in needs]
    return found


def link(package: Distribution, target: Path) -> None:
    """Link to every top-level file and folder of ``package``."""
    tops = {file.parts[0] for file in package.files or [] if file.parts[0] not in ("..", "__pycache__")}
    assert tops, f"{package.metadata['Name']} does not say what it consists of"
    for top in tops:
        link = target / top
        if not link.is_symlink():
            link.symlink_to(Path(str(package.locate_file(top))))
