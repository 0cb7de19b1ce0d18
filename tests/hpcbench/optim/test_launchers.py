"""Without Python's headers, Triton builds no launchers, and the optimizers take torch's operations instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcbench.optim import launchers


def test_headers_are_found_where_the_compiler_looks(tmp_path: Path) -> None:
    include, module = tmp_path / "include", tmp_path / "module"
    for folder in (include, module):
        folder.mkdir()
    further = {"CPATH": f":{tmp_path / 'none'}:{module}"}
    assert not launchers.has_headers(include, further)
    (module / "Python.h").touch()
    assert launchers.has_headers(include, further)
    assert not launchers.has_headers(include, {})
    (include / "Python.h").touch()
    assert launchers.has_headers(include, {})


@pytest.mark.parametrize(("compiler", "headers"), [(True, True), (True, False), (False, True)])
def test_a_launcher_needs_a_compiler_and_headers(
    compiler: bool, headers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CC", *launchers.COMPILER_PATHS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if compiler else None)
    monkeypatch.setattr(launchers, "include_folder", lambda: tmp_path)
    if headers:
        (tmp_path / "Python.h").touch()
    launchers.builds_launchers.cache_clear()
    try:
        assert launchers.builds_launchers() is (compiler and headers)
    finally:
        launchers.builds_launchers.cache_clear()
