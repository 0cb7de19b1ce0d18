"""The pages of the site: files of the repository at their own paths, so that relative links hold in both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

ROOT = Path(__file__).parents[2]
PATTERNS = (
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/**/*.md", "apps/*/README.md",
    "benchmarks/README.md", "batch_scripts/README.md",
)  # fmt: skip
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
"""Where a link or a picture of a page leads to, in this repository."""
PAGE_OF_FOLDER = ("*.html", "*.png")
"""What stands for a folder without a README, such as a recorded study."""


def repository_pages() -> list[str]:
    """The paths of all pages that are files of the repository."""
    return sorted({path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern)})


def linked_files(page: str) -> dict[str, str]:
    """What a page links to besides pages: the link as it stands, and the file that it leads to.

    Of a folder without a README it is the page or picture in it. Links to nothing are left out, for MkDocs to find.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for link in LINK.finditer(text):
        target = file_of(normpath(PurePosixPath(page).parent / link["path"]))
        if target is not None:
            found[link["path"]] = target
    return found


def file_of(target: str) -> str | None:
    """The file that a link to ``target`` brings along; ``None`` for a page, and where there is nothing."""
    path = ROOT / target
    if path.is_dir():
        inside = [each for pattern in PAGE_OF_FOLDER for each in sorted(path.glob(pattern))]
        readme = path / "README.md"
        return next((each.relative_to(ROOT).as_posix() for each in (readme, *inside) if each.is_file()), None)
    return target if path.is_file() and path.suffix != ".md" else None


def with_files(markdown: str, page: str, files: Mapping[str, str]) -> str:
    """The text of a page whose links to folders lead to the files that stand for them."""

    def instead(link: re.Match[str]) -> str:
        path = link["path"]
        if path not in files or not (ROOT / normpath(PurePosixPath(page).parent / path)).is_dir():
            return link[0]
        return f"{path.rstrip('/')}/{PurePosixPath(files[path]).name}{link['anchor'] or ''}"

    return LINK.sub(instead, markdown)


def entries(nav: Sequence[Any]) -> Iterator[str]:
    """The paths of a navigation, in its order."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, Mapping) else (entry,):
            if isinstance(value, str):
                yield value
            else:
                yield from entries(value)
