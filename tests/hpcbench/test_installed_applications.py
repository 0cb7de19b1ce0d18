"""What `hpcbench doctor` says of an installed application that cannot be used."""

from __future__ import annotations

import pytest

from hpcbench import plugins
from hpcbench.cli.main import main
from hpcbench.installed_plugins import installed_plugins
from tests.hpcbench.conftest import Install

HEAD = "from hpcbench.application import Application\nAPPLICATION = Application('mine', 'Mine', 'mine', 'strange')\n"
PARTS = {f"strange/{part}.py": "1 / 0  # is not imported" for part in ("data", "model", "task")}
CONFIG = "from dataclasses import dataclass\nfrom hpcbench.config.schema import RunConfig as Config\n"


@pytest.mark.parametrize(("files", "said"), [
    pytest.param({}, "application 'mine' has no module strange.data; mend its package", id="parts"),
    pytest.param(PARTS, "application 'mine' has no preset, a file configs/NAME.yaml; mend its package", id="presets"),
    pytest.param(
        PARTS | {"strange/configs/smoke.yaml": "optim:\n  lrr: 1\n"},
        "preset 'smoke' of application 'mine': preset 'smoke': unknown key 'optim.lrr'", id="setting",
    ),
    pytest.param(
        PARTS | {"strange/configs/smoke.yaml": "", "strange/config.py": "import nonesuch_library"},
        "application 'mine' cannot be configured (ModuleNotFoundError: No module named 'nonesuch_library'); mend",
        id="config",
    ),
    pytest.param(PARTS | {"strange/configs/smoke.yaml": "", "strange/config.py": CONFIG}, "", id="usable"),
])  # fmt: skip
def test_what_is_wrong_with_an_application(
    install: Install, capsys: pytest.CaptureFixture[str], files: dict[str, str], said: str
) -> None:
    install({plugins.APPLICATIONS: {"mine": "strange:APPLICATION"}}, {"strange/__init__.py": HEAD} | files)
    (found,) = installed_plugins()
    assert found.wrong.startswith(said)
    assert bool(found.wrong) == bool(said)
    assert main(["doctor"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"application mine {found.wrong or 'strange:APPLICATION of strange-parts'}" in shown
