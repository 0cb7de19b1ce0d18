"""Writes wheels of a few hundred bytes; needs the standard library alone, as a build backend does."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_wheel(
    folder: Path, name: str, version: str, requires: Sequence[str] = (), files: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
) -> Path:  # fmt: skip
    """Write a wheel, by default with one module of its name that knows its version."""
    stem = f"{name}-{version}"
    extras = sorted(set(re.findall(r"extra == '(\w+)'", " ".join(requires))))
    lines = [f"Requires-Dist: {each}\n" for each in requires] + [f"Provides-Extra: {each}\n" for each in extras]
    inside = {
        **(files or {f"{name}.py": f"__version__ = {version!r}\n"}),
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{''.join(lines)}",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},sha256={digest(text)},{len(text)}\n" for path, text in inside.items())
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for entry, text in {**inside, f"{stem}.dist-info/RECORD": record}.items():
            archive.writestr(entry, text)
    return path


def digest(text: str) -> str:
    """As ``RECORD`` has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
