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
    """Link to all of ``package``: files, packages, and what it has in folders that it shares with other packages."""
    files = [file.parts for file in package.files or [] if file.parts[0] not in ("..", "__pycache__")]
    assert files, f"{package.metadata['Name']} does not say what it consists of"
    whole = {parts[0] for parts in files if len(parts) == 1 or parts[1] == "__init__.py" or "-info" in parts[0]}
    for top in {parts[:1] if parts[0] in whole else parts[:2] for parts in files}:
        link = target.joinpath(*top)
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(Path(str(package.locate_file("/".join(top)))))
