"""Lists the sample files of a dataset folder."""

from __future__ import annotations

import os
from pathlib import Path

from staging.errors import DataError

HINT = "set data.root to the dataset, or make one with `hpcbench data simulate`"


def list_samples(folder: Path, suffix: str, hint: str = HINT) -> list[Path]:
    """Files of ``folder`` whose names end with ``suffix``, sorted by name; hidden and temporary files are left out.

    Raises ``DataError`` that ends with ``hint`` when the folder is missing or has no such file.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(suffix) and not entry.name.startswith(".")]
    except FileNotFoundError:
        raise DataError(folder, "no such folder", hint) from None
    except NotADirectoryError:
        raise DataError(folder, "is not a folder", hint) from None
    except OSError as error:
        raise DataError(folder, f"cannot be read ({error.strerror})", "check its permissions") from None
    if not names:
        raise DataError(folder, f"holds no file named *{suffix}", hint)
    return [folder / name for name in sorted(names)]
