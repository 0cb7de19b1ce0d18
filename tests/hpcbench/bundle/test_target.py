"""What a bundle is for agrees with the project, and with the tags of wheels as pip knows them."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.tags import compatible_tags, cpython_tags

from hpcbench.bundle.source import PACKED
from hpcbench.bundle.target import PYTHONS, Target

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_a_bundle_is_made_for_every_python_of_the_project() -> None:
    word = "Programming Language :: Python :: "
    assert [each.removeprefix(word) for each in PROJECT["classifiers"] if each.startswith(word)] == list(PYTHONS)


def test_the_whole_clone_is_packed() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a clone, whose files git lists")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True).stdout
    assert {path.split("/")[0] for path in listed.splitlines() if not path.startswith(".")} == set(PACKED)


def test_wheels_of_the_target_are_those_whose_tags_it_has() -> None:
    target = Target("3.12", "aarch64")
    assert target.platforms()[0] == "manylinux_2_28_aarch64"
    assert target.platforms()[-1] == "manylinux_2_17_aarch64"
    tags = {*map(str, cpython_tags((3, 12), ["cp312"], target.platforms()))}
    assert {"cp312-cp312-manylinux_2_28_aarch64", "cp36-abi3-manylinux_2_17_aarch64"} <= tags
    assert "py3-none-any" in {*map(str, compatible_tags((3, 12), "cp312", target.platforms()))}
    words = target.pip_options()
    assert words[:6] == ["--implementation", "cp", "--python-version", "3.12", "--abi", "cp312"]
