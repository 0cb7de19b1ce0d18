"""Check that the packages that run are the released ones, by the RECORD of their wheel, else by commit and diff."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeGuard

from hpcbench import DISTRIBUTION, __version__

PACKAGES = ("hpcbench", "staging", "apps")
MOST_NAMED = 20
"""At most this many changed files are named."""
RELEASE = re.compile(r"v\d+(\.\d+)*((a|b|rc|\.post)\d+)?")
"""The tag of a release; a version between two releases has ``.dev`` or ``+`` in it."""
FIELDS: Mapping[str, Mapping[str, type]] = {
    "RECORD": {"distribution": str, "version": str, "files": int}, "commit": {"commit": str},
}  # fmt: skip
"""What a record has, by its basis."""
CHANGED: Mapping[str, type] = {"differing": int, "names": list}
"""What it has, too, if files differ."""


def installation(root: Path | None = None) -> dict[str, Any]:
    """Return what the running code is compared with and what differs: the record ``installation`` of a run.

    ``basis`` is ``RECORD`` (the hashes that the wheel was installed with), ``commit`` (of the checkout), or null if
    there is neither. ``unchanged`` is null if it cannot be determined. Paths are relative to the packages' folder
    ``root``.
    """
    root = root or Path(__file__).resolve().parents[2]
    record: dict[str, Any] = {"distribution": DISTRIBUTION, "version": __version__, "basis": None, "unchanged": None}
    if (root / ".git").exists():
        return record | of_checkout(root)
    distribution = installed_at(root)
    return record if distribution is None else record | of_wheel(distribution, root)


def installed_at(root: Path) -> metadata.Distribution | None:
    """Return the installed distribution whose files are those below ``root``; ``None`` if they are another's copy."""
    for distribution in metadata.distributions(name=DISTRIBUTION, path=[str(root)]):
        if distribution.files and Path(str(distribution.locate_file("hpcbench/__init__.py"))).exists():
            return distribution
    return None


def of_wheel(distribution: metadata.Distribution, root: Path) -> dict[str, Any]:
    """Compare the files of an installed wheel with the hashes in its RECORD."""
    text = distribution.read_text("RECORD") or ""
    recorded = hashes(text)
    if not recorded:
        return {}
    differ = [f"changed: {name}" for name, (kind, value) in recorded.items() if hash_of(root / name, kind) != value]
    differ += [f"added: {name}" for name in sorted(set(present(root)) - set(recorded))]
    return {
        "version": distribution.version, "basis": "RECORD", "unchanged": not differ, "files": len(recorded),
        "record_sha256": hashlib.sha256(text.encode()).hexdigest(), "from": origin(distribution),
        "differing": len(differ), "names": differ[:MOST_NAMED],
    }  # fmt: skip


def hashes(record: str) -> dict[str, tuple[str, str]]:
    """Return kind and value of each hash of our packages' files in the text of a RECORD (PEP 376: path, hash, size).

    Since Python 3.12, ``Distribution.files`` leaves out files that no longer exist.
    """
    hashes_by_path = {}
    for row in csv.reader(record.splitlines()):
        parts = Path(row[0]).parts if row else ()
        kind, equals, value = row[1].partition("=") if len(row) > 1 else ("", "", "")
        if parts and parts[0] in PACKAGES and "__pycache__" not in parts and equals:
            hashes_by_path[row[0]] = kind, value
    return hashes_by_path


def hash_of(path: Path, kind: str) -> str | None:
    """Return a file's hash as in a RECORD: URL-safe base 64 without padding; ``None`` if it cannot be read."""
    try:
        digest = hashlib.new(kind, path.read_bytes()).digest()
    except (OSError, ValueError):
        return None
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def present(root: Path) -> list[str]:
    """List the Python files of the packages below ``root``."""
    paths = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return [str(path.relative_to(root)) for path in paths if "__pycache__" not in path.parts]


def origin(distribution: metadata.Distribution) -> str:
    """Where pip got the distribution: an ``index``, or an ``archive``, ``folder`` or ``repository`` given to it."""
    try:
        named = json.loads(distribution.read_text("direct_url.json") or "null")
    except (ValueError, RecursionError):
        named = None
    if not isinstance(named, dict):
        return "index"
    kinds = {"archive_info": "archive", "dir_info": "folder", "vcs_info": "repository"}
    return next((word for key, word in kinds.items() if key in named), "unknown")


def of_checkout(root: Path) -> dict[str, Any]:
    """Return the commit of a checkout and which files of its packages differ; new files count, too."""
    commit = git(root, "rev-parse", "HEAD")
    status = git(root, "status", "--porcelain", "--untracked-files=all", "--", *PACKAGES)
    if commit is None or status is None:
        return {}
    names = [line[3:] for line in status.splitlines()]
    diff = git(root, "diff", "HEAD", "--", *PACKAGES) if names else ""
    return {
        "basis": "commit", "unchanged": not names, "commit": commit.strip(), "tag": tag(root), "differing": len(names),
        "names": names[:MOST_NAMED],
        "diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if names and diff is not None else None,
    }  # fmt: skip


def tag(root: Path) -> str | None:
    """Return the tag of the commit, if it has one; of several that of a release."""
    tags = (git(root, "tag", "--points-at", "HEAD") or "").split()
    return next((name for name in tags if RELEASE.fullmatch(name)), tags[0] if tags else None)


def git(root: Path, *words: str) -> str | None:
    """Return the output of git; ``None`` if it fails."""
    command = ["git", "-C", str(root), "--no-optional-locks", *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, errors="replace").stdout
    except (OSError, subprocess.SubprocessError):
        return None


def is_record(record: object) -> TypeGuard[dict[str, Any]]:
    """Whether the value is what ``installation`` returns: it may be from a file that somebody has edited."""
    if not isinstance(record, dict) or "unchanged" not in record:
        return False
    basis = record.get("basis")
    if basis is None:
        return not record["unchanged"]
    if not isinstance(record["unchanged"], bool) or not isinstance(basis, str) or basis not in FIELDS:
        return False
    kinds = FIELDS[basis] if record["unchanged"] else {**FIELDS[basis], **CHANGED}
    return all(isinstance(record.get(name), kind) for name, kind in kinds.items())


def release_note(record: dict[str, Any] | None) -> str:
    """Say that the packages are of no release, from whose tag a version comes; empty if they are of one, or unknown."""
    if not is_record(record) or record.get("basis") is None:
        return ""
    if record["basis"] == "commit":
        tagged = RELEASE.fullmatch(str(record.get("tag")))
        return "" if tagged else f"commit {record['commit'][:12]} has no release tag (v*)"
    tagged = RELEASE.fullmatch(f"v{record['version']}")
    return "" if tagged else f"version {record['version']} is of a commit that has no release tag (v*)"


def installation_words(record: dict[str, Any] | None) -> str:
    """Summarise the record in a phrase, for tables and error messages."""
    if not is_record(record) or record.get("basis") is None:
        return "nothing tells whether the installed packages are the released ones"
    if record["basis"] == "RECORD":
        what = f"{record['distribution']} {record['version']}"
        same = f"as its wheel's RECORD ({record['files']} files)"
    else:
        what = f"commit {str(record['commit'])[:12]}" + (f" ({record['tag']})" if record.get("tag") else "")
        same = "unchanged"
    if record["unchanged"]:
        return f"{what}, {same}"
    count = record["differing"]
    return f"{what}, but {count} file{'s differ' if count != 1 else ' differs'}: {first_of(record['names'])}"


def packages_words(record: dict[str, Any] | None) -> str:
    """As ``installation_words``, and that the packages are of no release if they are of none."""
    return "; ".join(part for part in (installation_words(record), release_note(record)) if part)


def first_of(names: Sequence[str]) -> str:
    """Return the first name, followed by ", ..." if there are more; what a file holds may be no text."""
    return f"{names[0]}, ..." if len(names) > 1 else "".join(map(str, names))
