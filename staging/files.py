"""Lists the sample files of a dataset folder."""

from __future__ import annotations

import os
from pathlib import Path

from staging.errors import DataError
from staging.ledger.journal import Journal
from staging.ledger.manifest import staged_destination, staged_names
from staging.ledger.records import has_size

HINT = "set data.root to the dataset, or make one with `hpcbench data simulate`"
STAGE_AGAIN = "stage it again"


def list_samples(folder: Path, suffix: str, hint: str = HINT) -> list[Path]:
    """Files of ``folder`` whose names end with ``suffix``, sorted by name; hidden and temporary files are left out.

    In a staged folder these are the files that the manifest names; others are not looked at. Raises ``DataError``
    that ends with ``hint`` when the folder is missing or has no such file, and another where a staging into the
    folder did not come to its end, or a file that it put there is missing or has another size.
    """
    try:
        with os.scandir(folder) as entries:
            present = [entry.name for entry in entries]
    except FileNotFoundError:
        raise DataError(folder, "no such folder", hint) from None
    except NotADirectoryError:
        raise DataError(folder, "is not a folder", hint) from None
    except OSError as error:
        raise DataError(folder, f"cannot be read ({error.strerror})", "check its permissions") from None
    staged = staged_names(folder)
    candidates = present if staged is None else staged
    names = [name for name in candidates if name.endswith(suffix) and not name.startswith(".")]
    if staged is not None:
        _check_staged(folder, {name: staged[name] for name in names})
    if not names:
        kind = "file" if staged is None else "staged file"
        raise DataError(folder, f"holds no {kind} named *{suffix}", hint)
    return [folder / name for name in sorted(names)]


def _check_staged(folder: Path, sizes: dict[str, int]) -> None:
    destination = staged_destination(folder)
    if destination is not None and not Journal(destination).is_done():
        raise DataError(destination, "was not staged to its end", STAGE_AGAIN)
    for name, size in sizes.items():
        if not has_size(folder / name, size):
            problem = f"was staged with {size} bytes, and is now missing or of another size"
            raise DataError(folder / name, problem, STAGE_AGAIN)
