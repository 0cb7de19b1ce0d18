"""Recognizes, from the first files of a folder, which installed application's dataset it holds, and in which form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hpcbench.application import Application, find_application, installed
from hpcbench.config.resolve import config_class, known_keys
from hpcbench.data.files import SPLITS
from hpcbench.data.simulated_set import RECORD, read_record
from hpcbench.results.units import counted
from staging.bounds import shown
from staging.errors import InputError

Form = dict[str, Any]
"""Settings of ``data`` that the files show, such as ``{"format": "npy", "sample_size": 32}``."""
FILES = 4
"""Files that are looked at in a folder, the first by name."""
FOLDERS = 16
"""Folders that are searched: that of the dataset, then those of its splits, then others."""
OR_NAME_IT = "name another folder, or put the name of its application first"


@dataclass(frozen=True)
class Recognized:
    """An application, and the form of its samples in a folder."""

    application: Application
    form: Form

    def __str__(self) -> str:
        return ", ".join([self.application.name, *(f"data.{key} {shown(value)}" for key, value in self.form.items())])


def recognize(path: Path) -> Recognized:
    """The application whose sample ``path`` is, or whose dataset it holds, with the form of the samples.

    A simulated dataset names its application; any other is shown to all installed applications. Raises ``InputError``
    if there is no such path, and if no application, or more than one, recognizes it.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist; name a file or folder of a dataset")
    simulated = read_record(path)
    if simulated is not None:
        name = simulated["application"]
        if name not in installed():
            raise InputError(
                f"{path}: holds simulated data of the application '{shown(name)}', which is not installed "
                f"({', '.join(installed())} are); install its package, or name another folder"
            )
        return Recognized(find_application(name), form_of(find_application(name), path))
    files = first_files(path)
    known = usable_applications()
    forms = {application: form_in(application, files) for application in known}
    claims = [Recognized(application, form) for application, form in forms.items() if form is not None]
    if not claims:
        raise unknown(path, files, known)
    if len(claims) > 1:
        names = " and ".join(claim.application.name for claim in claims)
        raise InputError(f"{path}: its files are recognized by {names}; put the name of one first")
    return claims[0]


def form_of(application: Application, path: Path) -> Form:
    """The form of the samples of ``application`` in ``path``, as far as files show it; otherwise as simulated."""
    form = form_in(application, first_files(path))
    if form:
        return form
    simulated = read_record(path)
    if simulated is None or simulated["application"] != application.name:
        return {}
    known = {key for key, _ in known_keys(config_class(application))}
    return {key: value for key, value in simulated["data"].items() if f"data.{key}" in known}


def form_in(application: Application, files: list[Path]) -> Form | None:
    """The form of the first of ``files`` that shows one; ``None`` if none of them belongs to ``application``."""
    data = application.module("data")
    first_form: Form | None = None
    for file in files if hasattr(data, "recognize_file") else []:
        try:
            form: Form | None = data.recognize_file(file)
        except Exception:  # noqa: S112 - the file may be anyone's, so anything may be wrong with it
            continue
        if form:
            return form
        first_form = form if first_form is None else first_form
    return first_form


def first_files(path: Path) -> list[Path]:
    """``path`` itself if it is a file; otherwise the first regular files in it and in the folders below it, by name."""
    if path.is_file():
        return [path]
    return [
        file
        for folder, names in islice(_folders(path), FOLDERS)
        for file in islice((folder / name for name in names if (folder / name).is_file()), FILES)
    ]


def _folders(path: Path) -> Iterator[tuple[Path, list[str]]]:
    for where, folders, names in os.walk(path):
        folders[:] = sorted(
            (name for name in folders if not name.startswith(".")), key=lambda name: (name not in SPLITS, name)
        )
        yield Path(where), sorted(name for name in names if not name.startswith("."))


def usable_applications() -> list[Application]:
    """The installed applications that can be imported; a broken one does not hide the datasets of the others."""
    usable = []
    for name in installed():
        try:
            application = find_application(name)
            application.module("data")
        except Exception:  # noqa: S112 - commands that ask for it report the error
            continue
        usable.append(application)
    return usable


def unknown(path: Path, files: list[Path], known: list[Application]) -> InputError:
    """The error for a path that no application recognizes; it says what was looked for, and where."""
    able = [application.name for application in known if hasattr(application.module("data"), "recognize_file")]
    unable = [application.name for application in known if application.name not in able]
    wanted = f"a sample of {' or '.join(able)}"
    if unable:
        wanted += f" ({', '.join(unable)} cannot tell: add recognize_file(path) to its data.py)"
    if path.is_file():
        return InputError(f"{path}: is not {wanted}; name another file, or put the name of its application first")
    if not files:
        return InputError(f"{path}: holds no file; looked for {RECORD} and {wanted}; {OR_NAME_IT}")
    seen = f"{counted(len(files), 'file')}, the first {shown(files[0].relative_to(path))}"
    return InputError(f"{path}: holds no known dataset; looked for {RECORD} and {wanted} in {seen}; {OR_NAME_IT}")
