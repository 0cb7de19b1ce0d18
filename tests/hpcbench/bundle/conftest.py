"""A package index of tiny wheels, and a bundle that is made from it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.bundle.archive import Bundle, BundleRequest, make_bundle
from hpcbench.bundle.target import ARCHITECTURES, PYTHONS, Target
from tests.hpcbench.bundle.tiny_index import HERE, write_index, write_source


@pytest.fixture(scope="module")
def tiny_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of wheels that pip takes everything from, whatever it is set to otherwise."""
    folder = write_index(tmp_path_factory.mktemp("bundle") / "index")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", folder.as_uri())
        yield folder


@pytest.fixture(scope="module")
def tiny_source(tiny_index: Path) -> Path:
    """A source tree that builds at once."""
    return write_source(tiny_index.parent / "clone")


@pytest.fixture(scope="module")
def tiny_bundle(tiny_source: Path) -> tuple[Bundle, Path]:
    """A bundle for this very Python, and the folder that it was unpacked to, whose name has a space."""
    if HERE not in PYTHONS or platform.machine() not in ARCHITECTURES:
        pytest.skip(f"no bundles are made for CPython {HERE} on {platform.machine()}")
    out = tiny_source.parent / "tiny.tar.gz"
    bundle = make_bundle(BundleRequest(out, Target(HERE, platform.machine()), ("fast",), source=tiny_source), print)
    place = tiny_source.parent / "un packed"
    place.mkdir()
    subprocess.run(["tar", "-xzf", str(out), "-C", str(place)], check=True)
    (top,) = place.iterdir()
    return bundle, top
