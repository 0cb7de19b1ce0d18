"""What ``hpcbench doctor`` learns of torch and Fabric, and that a stand-in for a module of torch hides no problem."""

from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from hpcbench.cli.main import main
from hpcbench.measure.diagnosis import Row
from hpcbench.measure.import_check import FABRIC, TORCH_PROGRAM, ChildPython, told
from hpcbench.measure.torch_check import TorchAnswer, torch_answer

FILE_OF_DYNAMO = "sys.modules['torch._dynamo'].__file__"
"""Python that fails where ``torch._dynamo`` is the stand-in, which has no file."""


def answer(before: str = "") -> TorchAnswer:
    return torch_answer(ChildPython(f"{before}\n{TORCH_PROGRAM}"))


def written(folder: Path, package: str, text: str) -> None:
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(text)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which Python looks for packages first."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_torch_is_asked_in_the_other_process() -> None:
    found = answer()
    assert found.problems == {"torch": "", FABRIC: ""}
    assert found.version == torch.__version__
    assert found.distributed == torch.distributed.is_gloo_available()
    assert found.has_accelerator == torch.accelerator.is_available()
    assert found.devices[0].value == torch.backends.cpu.get_cpu_capability()


def test_fabric_is_imported_without_the_second_half_of_torch() -> None:
    """It is the real Fabric, and ``torch._dynamo``, which takes as long as torch, is not imported for it."""
    said, why = ChildPython(
        "from hpcbench.measure.torch_check import *\nfrom hpcbench.measure.import_check import tell\nimport torch\n"
        "tell('problem', fabric_problem())\n"
        "tell('modules', [name for name in sys.modules if name.startswith('torch._dynamo')])\n"
        "tell('fabric', [sys.modules[FABRIC].Fabric.__module__, sys.modules[FABRIC].__version__])"
    ).answer()
    assert why == ""
    assert told(said, "problem") == [""]
    assert told(said, "modules") == [[]]
    assert told(said, "fabric") == [[f"{FABRIC}.fabric", version("lightning-fabric")]]


def test_a_fabric_that_cannot_use_the_stand_in_is_imported_as_it_is(packages: Path) -> None:
    written(packages, FABRIC, f"import sys\nimport torch._dynamo\n{FILE_OF_DYNAMO}\n")
    assert answer().problems == {"torch": "", FABRIC: ""}


def test_a_fabric_that_cannot_be_imported_is_told(packages: Path) -> None:
    written(packages, FABRIC, "from torch._dynamo import OptimizedModule\nraise ImportError('built for another torch')")
    found = answer()
    assert found.problems == {"torch": "", FABRIC: "ImportError: built for another torch"}
    assert (found.version, found.devices, found.has_accelerator) == (torch.__version__, [], False)


def test_a_missing_package_that_only_the_real_module_needs_is_told() -> None:
    """torch can be imported without sympy; ``torch._dynamo``, and so Fabric, cannot."""
    found = answer("sys.modules['sympy'] = None")
    assert found.problems["torch"] == ""
    assert "sympy" in found.problems[FABRIC]


def test_a_torch_that_ends_the_process_is_told(packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(packages, "torch", "import os\nos.abort()\n")
    assert answer().problems == {"torch": "exit code -6", FABRIC: "not tried, after torch"}
    assert main(["doctor"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "torch broken: cannot be imported (exit code -6)" in output
    assert "Accelerator and precision" not in output


def test_a_driver_that_ends_the_process_is_told() -> None:
    found = answer("import os\nfrom hpcbench.measure import torch_check\ntorch_check.devices = os.abort")
    assert found.problems == {"torch": "", FABRIC: ""}
    assert found.devices == [Row("accelerators", "cannot be asked (exit code -6)", "broken")]
