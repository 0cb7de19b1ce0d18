"""Which wheels a target needs, and which versions of the site's own packages go with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hpcbench.bundle.closure import follow, tightest
from hpcbench.bundle.target import Target
from hpcbench.bundle.wheels import Wheel

X86 = Target("3.11", "x86_64")


def wheels(**needs: tuple[str, ...]) -> dict[str, Wheel]:
    """Wheels of version 1.5 with their requirements."""
    return {
        name: Wheel(Path(f"{name}.whl"), name, Version("1.5"), tuple(map(Requirement, texts)))
        for name, texts in needs.items()
    }


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (X86, ["backport", "root"]),
        (Target("3.12", "x86_64"), ["root"]),
        (Target("3.13", "aarch64"), ["arm", "forward", "root"]),
    ],
)
def test_markers_are_those_of_the_target(target: Target, expected: list[str]) -> None:
    found = wheels(
        root=("backport; python_version < '3.12'", "forward; python_full_version >= '3.13'",
              "arm; platform_machine == 'aarch64'", "windows; sys_platform == 'win32'"),
        backport=(), forward=(), arm=(), windows=(),
    )  # fmt: skip
    closure = follow("root", (), found, target)
    assert list(closure.needed) == expected
    assert closure.missing == []


def test_extras_bring_their_own_also_to_a_package_that_is_there_without() -> None:
    found = wheels(root=("fonts", "page"), page=("fonts[web]",), fonts=("client; extra == 'web'",), client=())
    assert list(follow("root", (), found, X86).needed) == ["client", "fonts", "page", "root"]
    found = wheels(root=("fast; extra == 'speed'",), fast=())
    assert list(follow("root", (), found, X86).needed) == ["root"]
    assert list(follow("root", ("speed",), found, X86).needed) == ["fast", "root"]


def test_what_no_wheel_meets_is_asked_for_without_its_marker() -> None:
    found = wheels(root=("old>=2; python_version < '3.12'", "absent[web]<9"), old=())
    assert follow("root", (), found, X86).missing == ["absent[web]<9", "old>=2"]


def test_packages_of_the_site_are_ranges_and_what_they_need_is_not_followed() -> None:
    found = wheels(root=("torch>=2.6", "numpy>=1.26", "a"), a=("numpy<2.7,>=1.21", "torch>=2.1"), torch=("driver",))
    closure = follow("root", (), found, X86)
    assert list(closure.needed) == ["a", "root"]
    assert closure.of_site == {"torch": SpecifierSet(">=2.6"), "numpy": SpecifierSet(">=1.26,<2.7")}


VERSIONS = st.builds("{}.{}".format, st.integers(1, 4), st.integers(0, 4))


@given(st.lists(st.tuples(st.sampled_from([">=", "<", "!=", "<="]), VERSIONS), max_size=6), VERSIONS)
def test_the_tightest_bounds_are_the_same_range(bounds: list[tuple[str, str]], version: str) -> None:
    versions = SpecifierSet(",".join(map("".join, bounds)))
    assert tightest(versions).contains(version) == versions.contains(version)
