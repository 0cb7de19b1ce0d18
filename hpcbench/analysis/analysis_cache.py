"""Caches analyses in the user's cache folder: the same command on the same logs copies its earlier result.

A cached analysis is valid as long as the logs, the system descriptions and the machine files have the same sizes and
modification times, and the code is the same. The cache may be removed at any time. If it cannot be written or read,
an analysis is made as if there were no cache.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import hpcbench
import staging
from hpcbench.analysis.analysis_files import PAGE, PLOTS, TABLES, check_out, not_writable
from hpcbench.batch.machine import yaml_files
from hpcbench.mlperf.find_logs import LogLocation
from hpcbench.mlperf.log_cache import Reading, cache_file
from hpcbench.mlperf.read_runs import reading_of
from staging.atomic import replacing

MOST = 8
"""Analyses in the cache; those that were not asked for longest are deleted."""
PRINTED = "printed.txt"
"""What the command printed, beside the files of the analysis."""
LIBRARIES = ("jinja2", "matplotlib", "mlperf-logging", "numpy", "pandas", "scipy")
"""What scores, pages, plots and tables are made with."""
DAMAGED = (ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading a damaged ZIP file raises."""
NAMES = re.compile(rf"{PAGE}|{PLOTS}/[\w.-]+\.(?:png|svg)|{TABLES}/[\w.-]+\.csv")
"""Files of an analysis; others in the cache are not copied."""


@dataclass(frozen=True)
class CachedAnalysis:
    """The files of an analysis by their names within its folder, and what the command printed."""

    files: Mapping[str, bytes]
    printed: str

    def write(self, out: Path) -> Path:
        """Write the files into the folder ``out``; return the page. Raises ``InputError`` if it cannot be written."""
        check_out(out)
        try:
            for name, content in sorted(self.files.items(), key=lambda item: item[0] == PAGE):
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                with replacing(out / name) as temporary:
                    temporary.write_bytes(content)
        except OSError as error:
            raise not_writable(out, error) from error
        return out / PAGE


class AnalysisCache:
    """Analyses as ZIP files in ``folder``, one for each key. Never raises: a failure is as if nothing were cached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> CachedAnalysis | None:
        """Return the analysis of ``key``; ``None`` if there is none or its file is damaged."""
        path = self.folder / f"{key}.zip"
        with suppress(OSError, *DAMAGED):
            with zipfile.ZipFile(path) as archive:
                files = {name: archive.read(name) for name in archive.namelist() if NAMES.fullmatch(name)}
                printed = archive.read(PRINTED).decode("utf-8")
            if PAGE in files:
                os.utime(path)
                return CachedAnalysis(files, printed)
        return None

    def put(self, key: str, out: Path, printed: str) -> None:
        """Cache the analysis in the folder ``out``; delete those that were not asked for longest."""
        with suppress(OSError, ValueError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with (
                replacing(self.folder / f"{key}.zip") as temporary,
                zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            ):
                for path in sorted(out.rglob("*")):
                    if NAMES.fullmatch(name := path.relative_to(out).as_posix()):
                        archive.write(path, name)
                archive.writestr(PRINTED, printed)
            by_age = sorted(self.folder.glob("*.zip"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
            for path in by_age[MOST:]:
                path.unlink(missing_ok=True)


def analyses_folder() -> Path:
    """The folder of cached analyses, beside the cache of logs."""
    return cache_file().parent / "analyses"


def analysis_key(locations: Sequence[LogLocation], asked: object, machine_folders: Sequence[Path]) -> str | None:
    """Return a hash of all that an analysis depends on; ``None`` where that may change unseen.

    It may where there are run folders, which are always read; where a file changed just now or is gone; and where
    there is no file to look at, as of a program in an archive. ``asked`` is what the command was asked, as JSON values.
    """
    if any(location.origin == "own" for location in locations):
        return None
    machines = [Reading(("machine", str(path)), (path,)) for path in yaml_files(machine_folders).values()]
    readings = [*map(reading_of, locations), *machines]
    stamps = [reading.stamp() for reading in readings]
    code = version_of_code()
    if code is None or None in stamps:
        return None
    paths = [str(location.path) for location in locations]
    inputs = [asked, paths, [reading.key for reading in readings], stamps, code]
    return sha256(json.dumps(inputs, default=str).encode()).hexdigest()


def version_of_code() -> str | None:
    """Return a hash that changes with the installed code, its templates and data, and the libraries that draw.

    ``None`` if these cannot be looked at.
    """
    files: list[Path] = []
    for package in (hpcbench, staging):
        for folder, folders, names in os.walk(Path(package.__path__[0])):
            folders[:] = sorted(set(folders) - {"__pycache__"})
            files += (Path(folder) / name for name in sorted(names))
    with suppress(OSError, PackageNotFoundError):
        versions = [version(name) for name in LIBRARIES]
        stamps = [(str(path), (status := path.stat()).st_size, status.st_mtime_ns) for path in files]
        return sha256(json.dumps([versions, stamps]).encode()).hexdigest() if files else None
    return None
