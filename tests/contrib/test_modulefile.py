"""The module file, loaded by Lmod as the page says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from hpcbench import __version__
from tests.documented_commands import BLOCK, ROOT
from tests.hpcbench_program import environment_with_hpcbench

PAGE = (ROOT / "docs" / "contrib.md").read_text(encoding="utf-8")
FILE = ROOT / "contrib" / "modulefiles" / "hpcbench.lua"
PLACES = ("/usr/share/lmod/lmod/init/bash", "/opt/lmod/lmod/init/bash", "/usr/local/lmod/lmod/init/bash")


@pytest.fixture(scope="module")
def lmod() -> str:
    """The file that gives a shell the function ``module``."""
    places = (*filter(None, [os.environ.get("LMOD_PKG") and f"{os.environ['LMOD_PKG']}/init/bash"]), *PLACES)
    found = next((place for place in places if Path(place).is_file()), None)
    if found is None:
        pytest.skip("needs Lmod (apt-get install lmod)")
    return found


def loaded(lmod: str, home: Path, commands: str) -> subprocess.CompletedProcess[str]:
    """What a shell that has Lmod prints for ``commands``, in the clone."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LMOD_PAGER": "none"}
    script = f"source {lmod}\n{commands}"
    return subprocess.run(
        ["bash", "--norc", "-c", script], env=environment, cwd=ROOT, text=True, capture_output=True, check=True
    )


def documented() -> str:
    """The commands of the page that fill in and load the module file."""
    (block,) = [found["text"] for found in BLOCK.finditer(PAGE) if "module load hpcbench" in found["text"]]
    return block


def test_what_the_page_says_loads_the_command(lmod: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "hpcbench").mkdir(parents=True)
    environment_with_hpcbench(home / "hpcbench")
    (home / "hpcbench" / "pyvenv.cfg").touch()
    after = 'echo "python: ${PYTHONPATH-}"; module unload hpcbench; command -v hpcbench || echo gone'
    shown = loaded(lmod, home, f"PATH=/usr/bin:/bin\n{documented()}\n{after}")
    assert shown.stdout.splitlines() == [f"hpcbench {__version__}", "python: ", "gone"], shown.stderr


def filled(folder: Path, prefix: Path, python: str) -> Path:
    """A folder of modules with the file, filled in."""
    module = folder / "modules" / "hpcbench" / "1.lua"
    module.parent.mkdir(parents=True)
    text = FILE.read_text(encoding="utf-8")
    module.write_text(text.replace("@PREFIX@", str(prefix)).replace("@PYTHON@", python), encoding="utf-8")
    return module.parents[1]


def test_a_folder_that_is_no_environment_gets_its_packages_on_the_path_too(lmod: str, tmp_path: Path) -> None:
    modules = filled(tmp_path, tmp_path / "there", "3.12")
    load = f"module use {modules}; module load hpcbench; echo ${{PATH%%:*}}; echo $PYTHONPATH; module whatis hpcbench"
    shown = loaded(lmod, tmp_path, load)
    path, packages = shown.stdout.splitlines()[:2]
    assert (path, packages) == (f"{tmp_path}/there/bin", f"{tmp_path}/there/lib/python3.12/site-packages")
    assert "Version: 1" in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    ("prefix", "said"), [("@PREFIX@", "fill in PREFIX"), ("/nowhere", "fill in PYTHON")], ids=["prefix", "python"]
)
def test_a_file_that_is_not_filled_in_says_so(prefix: str, said: str, lmod: str, tmp_path: Path) -> None:
    modules = filled(tmp_path, Path(prefix), "@PYTHON@")
    shown = loaded(lmod, tmp_path, f"module use {modules}; module load hpcbench || echo refused")
    assert shown.stdout.splitlines() == ["refused"]
    assert said in " ".join(shown.stderr.split())


def test_what_is_to_be_filled_in_is_on_the_page() -> None:
    names = set(re.findall(r"@([A-Z]+)@", FILE.read_text(encoding="utf-8")))
    assert names == {"PREFIX", "PYTHON"}
    assert names == set(re.findall(r"@([A-Z]+)@", PAGE))
