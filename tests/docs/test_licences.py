"""The licence of each library that an installation brings: on the page, and as the library itself says it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata

from tests.documented_commands import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Libraries")[2].partition("##")[0]
ROWS = [line.strip("|").split("|") for line in re.findall(r"^\|.*", TABLE, re.MULTILINE)[2:]]
FAMILIES = ("Apache", "BSD", "ISC", "LGPL", "MIT", "MPL")
REQUIRED = sorted({
    re.match(r"[\w.-]+", requirement)[0]  # type: ignore[index]
    for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for requirement in requirements
})  # fmt: skip
STUBS = ("pandas-stubs", "types-PyYAML", "types-psutil")
"""Packages of types alone, which are named together."""
OWN = {"matplotlib": "Python Software Foundation", "mpich": "MPICH"}
"""What those say whose licence is of no family."""


def licences() -> dict[str, str]:
    """The licence that the page names, by library; a row has one for all of its libraries, or one for each."""
    found: dict[str, str] = {}
    for names, licence, *_ in ROWS:
        each = [re.sub(r"\(.*?\)", "", name).strip() for name in re.sub(r" \(`\w+`\)", "", names).split(",")]
        of_each = licence.split(", ") if len(each) > 1 and ", " in licence else [licence] * len(each)
        found |= {name: said.strip() for name, said in zip(each, of_each, strict=True)}
    return found


def test_every_library_has_its_licence_on_the_page() -> None:
    named = licences()
    missing = {name for name in REQUIRED if name not in named and re.sub(r"-cuda\d+$", "", name) not in named}
    assert missing == set(STUBS)
    assert "stubs" in PAGE


def said_by(name: str) -> str:
    """What an installed library says about its licence; empty for one that is not installed."""
    try:
        of_library = metadata(name)
    except PackageNotFoundError:
        return ""
    classifiers = [each for each in of_library.get_all("Classifier") or [] if each.startswith("License")]
    first = (of_library.get("License") or "").partition("\n")[0]  # of some the whole text
    words = " ".join(filter(None, [of_library.get("License-Expression"), first, *classifiers]))
    return words.replace("Lesser General Public License", "LGPL")


def test_licences_are_those_that_the_libraries_name() -> None:
    named, wrong = licences(), {}
    for name in set(REQUIRED) - set(STUBS):
        said, on_page = said_by(name), named.get(name) or named[re.sub(r"-cuda\d+$", "", name)]
        wanted = [OWN[name]] if name in OWN else [family for family in FAMILIES if re.search(rf"\b{family}\b", on_page)]
        assert wanted, on_page
        if said and not all(re.search(rf"\b{each}", said) for each in wanted):
            wrong[name] = (on_page, said)
    assert wrong == {}
    assert said_by("pytest"), "something was compared"
