"""Definitions of studies that were damaged or edited: one line, and nothing is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder
from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.options import Option
from hpcbench.study.rates import Rate
from hpcbench.study.scaling.definition import Scaling

CONVERGENCE = Study(
    "cosmoflow", "smoke", (4, 8), ("sgd",), 2, 4, {"sgd": Rate(0.01, 64)}, only={"sgd": (4,)},
    commands=("hpcbench study\n" + "x" * 5000,), settings={"data.root": "/d\udcff"},
)  # fmt: skip
STRONG = Scaling("strong", "cosmoflow", "smoke", "local", (1, 2), 1, 4, vary={"tier": ("shared", "node")}, steps=20)
THROUGHPUT = Scaling("throughput", "cosmoflow", "smoke", "local", (2, 4), 1, 4, instance_nodes=2)
GAINS = Gains("cosmoflow", "smoke", 2, 1, 4, 20, 2, (Option("bf16", "precision", "bf16", {}),))
STUDIES: dict[str, Any] = {"convergence": CONVERGENCE, "strong": STRONG, "throughput": THROUGHPUT, "gains": GAINS}
ANYTHING: list[Any] = [None, 7, 1.5, -1, 0, "x", True, [], ["x"], [None], [[1]], {}, {"x": 1}, 10**30, 10**400]
FIELDS = [(kind, field) for kind, study in STUDIES.items() for field in json.loads(json.dumps(study.as_dict()))]


def told(folder: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code of a command on a study of this definition, and its words on standard error."""
    StudyFolder(folder).write(values)
    code = main([*words, str(folder)])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("values", [ANYTHING[::3], pytest.param(ANYTHING, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_of_another_type_is_told_in_a_line(
    kind: str, field: str, values: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What could be right is taken; nothing ends in a traceback."""
    right = STUDIES[kind].as_dict()
    for value in values:
        code, error = told(tmp_path, right | {field: value}, capsys, "study", "status")
        assert code in (0, 2), value
        assert (error.startswith("hpcbench: error: ") and error.count("\n") == 1) if code else error == "", value
        if isinstance(value, list) and value in (["x"], [None], [[1]]) and field in ("nodes", "batch_sizes"):
            assert code == 2
            assert f"is damaged ({field}" in error


@pytest.mark.parametrize("kind", STUDIES)
@pytest.mark.parametrize("value", [[], {}, None, 7, "x"], ids=str)
def test_a_study_of_no_kind(kind: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = told(tmp_path, STUDIES[kind].as_dict() | {"kind": value}, capsys, "study", "status")
    assert code == 2
    assert "is a study of the kind" in error


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": [3]}, "--nodes 3 is not a multiple of the 2 nodes of an instance"),
        ({"spatial_size": 8}, "are not a multiple of the 8 that share a sample"),
        ({"repeats": 10**30}, "is damaged (repeats ("), ({"instance_nodes": 1.5}, "is damaged (instance_nodes (1.5)"),
        ({"nodes": []}, "is damaged (nodes is empty)"), ({"vary": {"tier": []}}, "is damaged (tier is empty)"),
        ({"request": {"warn_s": "x"}}, "is damaged (warn_s (x) must be a whole number)"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_run(
    changes: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = told(tmp_path, THROUGHPUT.as_dict() | changes, capsys, "study", "status")
    assert code == 2
    assert words in error


@pytest.mark.parametrize("kind", STUDIES)
def test_what_the_suite_writes_is_read(kind: str) -> None:
    study = STUDIES[kind]
    assert type(study).from_dict(json.loads(json.dumps(study.as_dict())), Path("study.json")) == study
