"""A user's own files are in a folder that a variable names, else below their home, if they have one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.batch.site import find_site, known_sites, machine_folders
from hpcbench.campaign.read_rules import campaign_path, known_campaigns
from hpcbench.cli.main import main
from hpcbench.config.user_files import user_folder
from staging.errors import InputError


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without ``$HOME`` and without an entry in passwd."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.delenv("HPCBENCH_SITES", raising=False)
    monkeypatch.delenv("HPCBENCH_CAMPAIGNS", raising=False)


def test_the_folder_is_that_of_the_variable_else_below_the_home() -> None:
    assert user_folder("HPCBENCH_SITES", "sites", {"HPCBENCH_SITES": "/mine"}) == Path("/mine")
    assert user_folder("HPCBENCH_SITES", "sites", {}) == Path.home() / ".config" / "hpcbench" / "sites"


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_has_what_the_suite_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sites"]) == 0
    assert "perlmutter-gpu" in capsys.readouterr().out
    assert main(["sites", "--machines"]) == 0
    assert "perlmutter-gpu" in known_sites()
    assert all(folder.name == "machines" for folder in machine_folders())
    assert known_campaigns()


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_is_told_which_variable_names_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Your own would be nersk.yaml in the folder that HPCBENCH_SITES names$"):
        find_site("nersk")
    with pytest.raises(InputError, match=r"\(your own would be mine.yaml in the folder that HPCBENCH_CAMPAIGNS names"):
        campaign_path("mine")
    (tmp_path / "mine.yaml").write_text("title: mine\nscheduler: slurm\nlauncher: srun\n")
    assert find_site("mine", {"HPCBENCH_SITES": str(tmp_path)}).title == "mine"
