"""Files of JSON lines that several processes of a node append to, and that survive a kill in the middle of a line."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from staging.atomic import sync_folder
from staging.errors import DataError
from staging.storage.destination_folder import open_book

BLOCK_BYTES = 1 << 20
SCHEMA = 1
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors for a name that nothing has."""


def start_file(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """The header of the file at ``path``; if there is none yet, ``header`` preceded by the schema becomes it.

    Processes that call this at once agree on one header, which the disk has when this returns. Raises ``DataError``
    if the file can't be written, or has another schema.
    """
    try:
        with os.fdopen(open_book(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file_header = _header(file)
            if file_header is None:
                file_header = {"schema": SCHEMA, **header}
                newline = b"\n" if file.seek(0, os.SEEK_END) else b""
                file.write(newline + json.dumps(file_header).encode() + b"\n")
                file.flush()
            # Also for a header that was found: its writer may have been killed before the disk had it.
            os.fsync(file.fileno())
            sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from None
    return _checked(path, file_header)


def is_there(path: Path) -> bool:
    """Whether anything has the name ``path``, even a dangling link. Raises ``DataError`` if the system does not say."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno in ABSENT:
            return False
        raise _unreadable(path, error) from None
    return True


def is_begun(path: Path) -> bool:
    """Whether the file at ``path`` says anything: not if its process was killed before writing the header.

    Raises ``DataError`` if it can't be read.
    """
    with _opened(path) as file:
        header = _header(file)
    return header is not None or any(True for _ in read_lines(path))


def read_header(path: Path) -> dict[str, Any]:
    """The header of the file at ``path``; ``DataError`` if it can't be read, has none, or has another schema."""
    header = find_header(path)
    if header is None:
        change = f"remove what it names with `hpcbench stage --clean {path.parent.parent}`, and stage again"
        raise DataError(path, "has no header, which said of what source the files are", change)
    return header


def find_header(path: Path) -> dict[str, Any] | None:
    """Like ``read_header``, but ``None`` if the file has no header."""
    with _opened(path) as file:
        header = _header(file)
    return None if header is None else _checked(path, header)


def append_lines(path: Path, lines: Iterable[str], *, durable: bool = False) -> None:
    """Append JSON texts, a line each, in one write, which other processes never split; ``durable`` waits for the disk.

    The write begins with a line feed, which ends a line that a killed process left unfinished. It ends with a line
    feed, so that what a crash of the node leaves of a later write, such as zeros, is no part of these lines. Raises
    ``DataError`` if the file can't be written; lines that were written by then stay.
    """
    data = "".join(f"\n{line}" for line in lines).encode()
    data += b"\n" if data else b""
    try:
        descriptor = open_book(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            # A short write may have torn a line, and others may have written since: all lines are written again.
            while data and os.write(descriptor, data) < len(data):
                pass
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unwritable(path, error) from None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of the file in order, without its headers; torn and foreign lines are skipped.

    Raises ``DataError`` if it can't be read.
    """
    with _opened(path) as file:
        while lines := file.readlines(BLOCK_BYTES):
            for item in _parse([line for line in lines if line != b"\n"]):
                if isinstance(item, dict) and "schema" not in item:
                    yield item


def _parse(lines: list[bytes]) -> list[Any]:
    # One call for many lines takes half the time of a call each. A torn line makes it fail: it has no closing brace.
    try:
        whole: list[Any] = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        return [item for line in lines if (item := _parse_line(line)) is not None]
    return whole


def _parse_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with os.fdopen(open_book(path, os.O_RDONLY), "rb") as file:
            yield file
    except OSError as error:
        raise _unreadable(path, error) from None


def _header(file: IO[bytes]) -> dict[str, Any] | None:
    for line in file:
        # Only what may be one is parsed: if there is none, this looks at every line, and is called again and again.
        item = _parse_line(line) if b'"schema"' in line else None
        if isinstance(item, dict) and "schema" in item:
            return item
    return None


def _checked(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    schema = header["schema"]
    if schema != SCHEMA:
        said = schema if isinstance(schema, int | float | str) else f"of kind {type(schema).__name__}"
        problem = f"has schema {said} where this version reads {SCHEMA}"
        raise DataError(path, problem, "use the version that wrote it, or another destination")
    return header


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(path, f"cannot be read ({error.strerror})", "check its permissions")


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(path, f"cannot be written ({error.strerror})", "free space there, or choose another destination")
