"""The folder of an analysis: what its files are called, and where it may be written."""

from __future__ import annotations

from pathlib import Path

from staging.errors import InputError

PAGE, PLOTS, TABLES = "analysis.html", "figures", "tables"


def check_out(out: Path) -> None:
    """Raise ``InputError`` for a folder that is not empty, or a path that exists and is not a folder."""
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists():
        raise InputError(f"--out {out} exists; remove it, or give another name")


def not_writable(out: Path, error: OSError) -> InputError:
    """The error for an ``out`` that cannot be written."""
    return InputError(f"--out {out} cannot be written ({error.strerror}); give another folder")
