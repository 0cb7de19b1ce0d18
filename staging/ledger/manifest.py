"""The manifest of a destination: which files staging put there, from what source; readers take these and no others.

A text file, ``.staging/manifest.jsonl``, that only grows: a header with what the destination is for, then a line per
file. A file is named once it is durable, so what is named is whole, whenever the processes were killed. Besides its
CRC32C, the line of a file of more than 256 KiB has that of its first 256 KiB, of its first 512 KiB, and so on, in
hexadecimal digits (``crc32c_256k``), so that a part of it can be checked; lines of earlier versions lack it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, islice
from pathlib import Path, PurePosixPath
from typing import Any

from staging.bookkeeping import BOOKKEEPING
from staging.errors import DataError
from staging.landing.sinks import UNSET, Landed
from staging.ledger.jsonl import append_lines, find_header, is_begun, is_there, read_header, start_file
from staging.ledger.records import BLOCKS, DOUBTED, SOURCE_SIZE, Records
from staging.one_line import one_line
from staging.storage.destination_folder import is_reachable

NAME = "manifest.jsonl"
SHOWN = 500
"""The most characters of a value that a message shows."""
_QUOTE = json.JSONEncoder().encode


class Manifest:
    """The manifest below ``destination``; several processes may append to it at once."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self.path = manifest_path(destination)

    @classmethod
    def open(cls, destination: Path, identity: dict[str, Any]) -> Manifest:
        """The manifest of ``destination``, made if there is none.

        ``identity`` says in JSON values what is staged and how. Raises ``DataError`` if the destination holds a
        staging of another identity, has a manifest of another schema, or can't be written.
        """
        manifest = cls(destination)
        try:
            manifest.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                destination, f"cannot be written ({error.strerror})", "choose another destination"
            ) from None
        header = start_file(manifest.path, {"what": "hpcbench staging manifest", "identity": identity})
        _refuse_other(destination, identity_of(header, manifest.path), json.loads(json.dumps(identity)))
        return manifest

    def records(self) -> Records:
        """What has landed so far."""
        return Records.read(self.path)

    def append(self, landed: Sequence[Landed]) -> None:
        """Name files that are durable, and wait until the disk has their names.

        All files of one source come in one call, so that a resumed staging knows how many belong to it.
        """
        counts = Counter(file.source for file in landed)
        append_lines(self.path, (_line(file, counts[file.source]) for file in landed), durable=True)

    def doubt(self, files: Sequence[Landed]) -> None:
        """Record that named files are about to be written again, and wait until the disk has it.

        If nothing changed in the source, the new files have the same names, sizes and times before the disk has their
        bytes: after a crash the old lines would vouch for them.
        """
        append_lines(self.path, (_line(file, DOUBTED) for file in files), durable=True)

    def remove(self, names: Sequence[str]) -> None:
        """Record that files are gone, which the disk must already reflect, and wait until it has this, too."""
        append_lines(self.path, (f'{{"name": {_QUOTE(name)}, "removed": true}}' for name in names), durable=True)


def identity_of(header: dict[str, Any], path: Path) -> dict[str, Any]:
    """What the destination is for, by the header of the manifest at ``path``. Raises ``DataError`` if it can't say."""
    identity = header.get("identity", {})
    if not isinstance(identity, dict):
        raise DataError(path, "has a header that names no staging", "choose another destination")
    return identity


def manifest_path(destination: Path) -> Path:
    """The path of a destination's manifest."""
    return destination / BOOKKEEPING / NAME


def has_manifest(destination: Path) -> bool:
    """Whether staging has recorded anything about ``destination``. Raises ``DataError`` if that can't be read.

    A manifest without header and records does not count: a staging was killed before it put anything there.
    """
    path = manifest_path(destination)
    return is_there(path) and not (destination / BOOKKEEPING).is_symlink() and is_begun(path)


def load_records(destination: Path, *, headed: bool = True) -> Records:
    """What staging put below ``destination``; ``DataError`` if there is no readable manifest.

    With ``headed`` false, also if its header is lost, so that nothing says what source the files are from.
    """
    path = manifest_path(destination)
    if not has_manifest(destination):
        raise no_manifest(destination)
    (read_header if headed else find_header)(path)
    return Records.read(path)


def no_manifest(destination: Path) -> DataError:
    """The error for a folder that was not staged."""
    return DataError(destination, f"has no staging manifest ({BOOKKEEPING}/{NAME})", "name a folder that was staged")


def staged_destination(folder: Path) -> Path | None:
    """The staging destination that ``folder`` is or is in, with links resolved; ``None`` if there is none.

    Raises ``DataError`` if a link below a destination leads to ``folder``: staging did not bring what is there.
    """
    named, real = folder.absolute(), folder.resolve()
    for path in dict.fromkeys((named, real)):
        place = next((place for place in (path, *path.parents) if is_there(manifest_path(place))), None)
        if place is None:
            continue
        destination = place.resolve()
        if os.path.normpath(destination / path.relative_to(place)) != str(real):
            problem = f"lies behind a link below {destination}, where staging puts none"
            raise DataError(folder, problem, "remove the link, and stage again")
        return destination
    return None


def staged_names(folder: Path) -> dict[str, int] | None:
    """Names in ``folder``, without those in folders below it, that the manifest of its destination has, with sizes.

    ``None`` if it was not staged. Raises ``DataError`` as ``staged_destination`` does, and for an unreadable manifest.
    """
    destination = staged_destination(folder)
    if destination is None:
        return None
    records = load_records(destination)
    relative = folder.resolve().relative_to(destination).as_posix()
    prefix = "" if relative == "." else relative + "/"
    names = (name for name in records.position if name.startswith(prefix) and "/" not in name[len(prefix) :])
    return {name[len(prefix) :]: records.size(name) for name in names}


def is_inside(destination: Path, name: str) -> bool:
    """Whether ``name``, from a manifest, stays below ``destination`` and outside all bookkeeping.

    It does not if it is absolute, has ``..`` or another unusual part, or leads through a link.
    """
    if not is_reachable(name):
        return False
    parts = PurePosixPath(name).parts
    if not parts or name != "/".join(parts) or parts[0] in ("/", "//") or {"..", BOOKKEEPING} & {*parts}:
        return False
    folders = accumulate(parts[:-1], "{}/{}".format, initial=str(destination))
    return not any(os.path.islink(folder) for folder in islice(folders, 1, None))  # noqa: PTH114  # of strings: quick


def _line(file: Landed, files_of_source: int) -> str:
    # Formatted by hand in a fifth of the time of json.dumps, which would matter with many small files.
    name = _QUOTE(file.name)
    source = name if file.source == file.name else _QUOTE(file.source)
    line = f'"name": {name}, "size": {file.size}, "crc32c": {file.checksum}, "source": {source}'
    of = "" if files_of_source == 1 else f', "of": {files_of_source}'
    kept = "" if file.kept_ns == UNSET else f', "kept_ns": {file.kept_ns}'
    blocks = f', "{BLOCKS}": "{file.blocks.hex()}"' if file.blocks else ""
    source_size = "" if file.source_size == UNSET else f', "{SOURCE_SIZE}": {file.source_size}'
    return f'{{{line}, "mtime_ns": {file.mtime_ns}{source_size}{of}{kept}{blocks}}}'


def _refuse_other(destination: Path, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    for key in {**wanted, **stored}:
        if stored.get(key) != wanted.get(key):
            same_seed = f"give --seed {stored[key]}, " if key == "seed" and isinstance(stored.get(key), int) else ""
            raise DataError(
                destination,
                f"holds a staging with {one_line(key, SHOWN)} {_shown(stored.get(key))}, not {_shown(wanted.get(key))}",
                f"{same_seed}remove it with `hpcbench stage --clean {destination}`, or choose another destination",
            )


def _shown(value: object) -> str:
    try:
        return one_line(json.dumps(value), SHOWN)
    except RecursionError:
        return "a deeply nested value"
