"""Describes what the files of a dataset hold."""

from __future__ import annotations

from pathlib import Path

from hpcbench.application import Application
from hpcbench.results.units import counted
from staging.errors import InputError
from staging.formats.regular import refuse_special

SUFFIXES = (".tfrecord", ".h5", ".hdf5", ".npy")


def describe(application: Application, path: Path) -> str:
    """A paragraph for a file; for a folder, files and bytes of each split, each with a paragraph for its first file."""
    if not path.exists():
        raise InputError(f"{path} does not exist; name a file or folder of a dataset")
    if not path.is_dir():
        return paragraph(application, path)
    dataset_files = sorted(
        file
        for file in path.rglob("*")
        if file.suffix in SUFFIXES and not file.name.startswith(".") and not file.is_dir()
    )
    if not dataset_files:
        raise InputError(f"{path} holds no dataset file ({', '.join(SUFFIXES)}); name another folder")
    folders: dict[Path, list[Path]] = {}
    for file in dataset_files:
        folders.setdefault(file.parent, []).append(file)
    parts = []
    for folder, files in folders.items():
        for file in files:
            refuse_special(file)
        total = sum(file.stat().st_size for file in files)
        parts.append(f"{folder}: {counted(len(files), 'file')}, {total / 1e6:,.1f} MB; the first:")
        parts.append(paragraph(application, files[0]))
    return "\n".join(parts)


def paragraph(application: Application, path: Path) -> str:
    """What one file holds, one property per line."""
    refuse_special(path)
    data = application.module("data")
    if not hasattr(data, "inspect_file"):
        raise InputError(f"{application.name} cannot say what a file holds; add inspect_file(path) to its data.py")
    facts: dict[str, str] = data.inspect_file(path) or {"datasets": "none"}
    width = max(len(key) for key in facts)
    return "\n".join([str(path), *(f"  {key:{width}}  {value}" for key, value in facts.items())])
