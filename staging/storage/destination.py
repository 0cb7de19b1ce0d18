"""Where a staging goes on a node: the folder that a template means, and the kind of storage it is on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from staging.errors import InputError
from staging.storage.space import MEMORY_FILESYSTEMS, existing_parent, mount_of

Tier = Literal["memory", "nvme", "other"]
FIELDS = ("node", "rank")
_PART = re.compile(r"\$\{(?P<braced>\w+)\}|\$(?P<plain>\w+)|\{(?P<field>[^{}]*)\}|(?P<stray>[{}])")


@dataclass(frozen=True)
class Storage:
    """The storage that a folder is on."""

    tier: Tier
    filesystem: str
    """Type, as the kernel names it."""


def expand(template: str, node: str, rank: int, environ: Mapping[str, str]) -> Path:
    """The absolute folder that ``template`` stands for on ``node``.

    ``{node}``, ``{rank}``, ``$NAME``, ``${NAME}`` and a leading ``~`` are filled in, once each: text that was filled in
    is not expanded again, and no shell is involved. Raises ``InputError`` for a variable that is not set, for any
    other field in braces, and for an empty result.
    """

    def fill(match: re.Match[str]) -> str:
        variable = match["braced"] or match["plain"]
        if variable:
            return _variable(variable, template, environ)
        if match["field"] == "node":
            return node
        if match["field"] == "rank":
            return str(rank)
        fields = " and ".join(f"{{{field}}}" for field in FIELDS)
        raise InputError(f"destination {template!r} holds {match[0]!r}; the fields are {fields}")

    home = _variable("HOME", template, environ) if re.match(r"~(/|$)", template) else ""
    filled = home + _PART.sub(fill, template[1:] if home else template)
    if not filled:
        raise InputError(f"destination {template!r} is empty on node {node}; name a folder")
    return Path(os.path.abspath(filled))  # noqa: PTH100, as Path.absolute keeps '..'


def storage(folder: Path, sys: Path = Path("/sys")) -> Storage:
    """The storage of ``folder``, which need not exist yet; ``sys`` is where the kernel shows its devices.

    ``nvme`` is an NVMe disk, or a volume or array of NVMe disks only.
    """
    existing = existing_parent(folder)
    device, filesystem = mount_of(existing)
    if filesystem in MEMORY_FILESYSTEMS:
        return Storage("memory", filesystem)
    number = existing.stat().st_dev
    shown = sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    if not shown.exists() and device.startswith("/dev/"):  # btrfs and others have no device number of their own
        shown = sys / "class" / "block" / os.path.basename(os.path.realpath(device))  # noqa: PTH119
    return Storage("nvme" if shown.exists() and _is_nvme(shown) else "other", filesystem)


def _variable(name: str, template: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise InputError(f"destination {template!r} needs ${name}, which is not set; set it or write the folder out")
    return environ[name]


def _is_nvme(device: Path) -> bool:
    real = Path(os.path.realpath(device))
    below = list((real / "slaves").glob("*"))
    if below:
        return all(_is_nvme(part) for part in below)
    return any(part.startswith("nvme") for part in real.parts)
