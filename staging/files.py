"""Lists the sample files of a dataset folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from staging.errors import DataError
from staging.formats.regular import refuse_special
from staging.ledger.journal import Journal
from staging.ledger.manifest import staged_destination, staged_names
from staging.ledger.records import has_size

HINT = "set data.root to the dataset, or make one with `hpcbench data simulate`"
STAGE_AGAIN = "stage it again"
_SPECIAL: ContextVar[bool] = ContextVar("special", default=False)
_COMING: ContextVar[tuple[Path, Collection[str]] | None] = ContextVar("coming", default=None)


def list_samples(folder: Path, suffix: str, hint: str = HINT) -> list[Path]:
    """Files of ``folder`` whose names end with ``suffix``, sorted by the rest; hidden and temporary files are left out.

    So samples have the same order in all forms that a transform gives them, also if their numbers have no zeros in
    front (``1_data.npy`` is before ``10_data.npy``, as ``1.tfrecord`` is before ``10.tfrecord``).

    In a staged folder these are the files that the manifest names; others are ignored. Within ``coming`` they are
    the files that will be there. Raises ``DataError`` that ends with ``hint`` if the folder is missing or has no such
    file. Raises another ``DataError`` if a staging into the folder did not finish, if a file that it put there is
    missing or has another size, or if a pipe, socket, device or folder has such a name. A link is checked when it is
    opened, since checking it here would cost a filesystem request for every sample.
    """
    expected = expected_files(folder)
    staged = None
    if expected is not None:
        candidates: Collection[str] = [path.name for path in expected if path.parent == folder]
    else:
        present = _names_in(folder, suffix, hint)
        staged = staged_names(folder)
        if staged is None and not _SPECIAL.get():
            _refuse_special(folder, present)
        candidates = present if staged is None else staged
    names = [name for name in candidates if name.endswith(suffix) and not name.startswith(".")]
    if staged is not None:
        _check_staged(folder, {name: staged[name] for name in names})
    if not names:
        kind = "file" if staged is None else "staged file"
        raise DataError(folder, f"holds no {kind} named *{suffix}", hint)
    return [folder / name for name in sorted(names, key=lambda name: name.removesuffix(suffix))]


@contextmanager
def coming(destination: Path, names: Collection[str]) -> Iterator[None]:
    """Within this context, a dataset below ``destination`` is listed as it will be once a staging brings ``names``."""
    token = _COMING.set((destination, names))
    try:
        yield
    finally:
        _COMING.reset(token)


def expected_files(folder: Path) -> list[Path] | None:
    """Within ``coming``, the files that will be below ``folder``; ``None`` for a folder elsewhere."""
    incoming = _COMING.get()
    if incoming is None or not folder.is_relative_to(incoming[0]):
        return None
    prefix = "" if folder == incoming[0] else folder.relative_to(incoming[0]).as_posix() + "/"
    return [incoming[0] / name for name in incoming[1] if name.startswith(prefix)]


@contextmanager
def special_files_listed() -> Iterator[None]:
    """Within this context, ``list_samples`` also lists what has a sample's name but is no file, to be reported."""
    token = _SPECIAL.set(True)
    try:
        yield
    finally:
        _SPECIAL.reset(token)


def _names_in(folder: Path, suffix: str, hint: str) -> dict[str, bool]:
    """The names in ``folder``, and whether each has the ``suffix`` and is neither a file nor a link."""
    names = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                # Most filesystems give the type of an entry in the listing, so this makes no further request.
                usual = not entry.name.endswith(suffix) or entry.is_file(follow_symlinks=False) or entry.is_symlink()
                names[entry.name] = not usual
            return names
    except FileNotFoundError:
        raise DataError(folder, "no such folder", hint) from None
    except NotADirectoryError:
        raise DataError(folder, "is not a folder", hint) from None
    except OSError as error:
        raise DataError(folder, f"cannot be read ({error.strerror})", "check its permissions") from None


def _refuse_special(folder: Path, present: dict[str, bool]) -> None:
    for name in sorted(name for name, is_special in present.items() if is_special and not name.startswith(".")):
        refuse_special(folder / name)


def _check_staged(folder: Path, sizes: dict[str, int]) -> None:
    destination = staged_destination(folder)
    if destination is not None and not Journal(destination).is_done():
        raise DataError(destination, "was not staged to its end", STAGE_AGAIN)
    for name, size in sizes.items():
        if not has_size(folder / name, size):
            problem = f"was staged with {size} bytes, and is now missing or of another size"
            raise DataError(folder / name, problem, STAGE_AGAIN)
