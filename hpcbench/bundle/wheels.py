"""Wheels: what one needs, and stand-ins for the packages that a site has itself."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from staging.errors import InputError


@dataclass(frozen=True)
class Wheel:
    """A wheel and the part of its metadata that decides what must be installed with it."""

    path: Path
    name: str
    """Canonical: lower case, words joined by ``-``."""
    version: Version
    requirements: tuple[Requirement, ...]

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return self.path.stat().st_size


def read_wheel(path: Path) -> Wheel:
    """The metadata of a wheel. Raises ``InputError`` if it has no readable metadata."""
    try:
        with zipfile.ZipFile(path) as archive:
            entry = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            fields = HeaderParser().parsestr(archive.read(entry).decode())
        needs = tuple(Requirement(text) for text in fields.get_all("Requires-Dist", []))
        return Wheel(path, canonicalize_name(fields["Name"]), Version(fields["Version"]), needs)
    except (StopIteration, KeyError, TypeError, ValueError, InvalidRequirement, InvalidVersion, zipfile.BadZipFile):
        raise InputError(f"{path}: no wheel with metadata that can be read; fetch it again") from None


def read_wheels(folder: Path) -> dict[str, Wheel]:
    """All wheels of a folder by canonical name."""
    wheels = [read_wheel(path) for path in sorted(folder.glob("*.whl"))]
    return {wheel.name: wheel for wheel in wheels}


def write_stand_in(folder: Path, name: str, version: str) -> Path:
    """Write a wheel that has a name and a version, and neither files nor dependencies.

    With it, a resolver treats the package as installed, and fetches neither it nor anything that it alone needs.
    """
    stem = f"{name}-{version}"
    files = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={record_digest(text)},{len(text)}\n" for path, text in files.items())
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in {**files, f"{stem}.dist-info/RECORD": f"{record}{stem}.dist-info/RECORD,,\n"}.items():
            archive.writestr(inside, text)
    return path


def record_digest(text: str) -> str:
    """SHA-256 as the ``RECORD`` of a wheel has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
