"""A scaling study remembers the convergence study that its page was made with, also where both are moved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.rates import Rate
from hpcbench.study.runner import ExecutionOptions
from hpcbench.study.scaling.definition import Scaling, grow
from hpcbench.study.scaling.proposal import Extras
from hpcbench.study.scaling.run_matrix import all_runs
from hpcbench.study.scaling.study import merged, run_study
from staging.errors import DataError, InputError
from tests.hpcbench.study.conftest import FakeLauncher, make
from tests.hpcbench.study.scaling.test_read_results import write_planned

STRONG = Scaling(
    mode="strong", application="cosmoflow", preset="smoke", site="local", nodes=(1, 2), ranks_per_node=1,
    local_batch_size=8, global_batch_size=8, cores_per_rank=1, repeats=1, steps=25, settings={"data.root": "set"},
)  # fmt: skip
JOINED = "epochs to target by the convergence study"
ALONE = "an upper bound"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with the scaling study ``studies/strong`` and the convergence study ``studies/batch``.

    Pages are written without plots, which take a second or two.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hpcbench.study.scaling.page.figures", lambda content: [])
    strong, batch = StudyFolder(Path("studies/strong")), StudyFolder(Path("studies/batch"))
    with held(strong):
        strong.write(STRONG.as_dict())
    for run in all_runs(STRONG):
        write_planned(STRONG, run, strong.run(run.name))
    matrix = Study(
        application="cosmoflow", preset="smoke", batch_sizes=(8, 32, 128), optimizers=("adamw",), seeds=1,
        local_batch_size=4, rates={"adamw": Rate(0.001, 64)}, settings={"data.root": "data"},
    )  # fmt: skip
    with held(batch):
        batch.write(matrix.as_dict())
        epochs = {"2": 4, "8": 6, "32": 12}
        make(matrix, batch, FakeLauncher(lambda s: epochs[s["parallel.simulated_ranks"]]), keep=True)
    return tmp_path


def report(*words: str, study: str = "studies/strong") -> int:
    return main(["study", "report", study, *words])


def basis(study: str = "studies/strong") -> str:
    """What the proposal of the page rests on."""
    text = " ".join((Path(study) / "proposal.txt").read_text(encoding="utf-8").split())
    return JOINED if JOINED in text else ALONE if ALONE in text else text


@pytest.mark.slow
def test_a_report_remembers_the_convergence_study_until_it_is_told_to_forget_it(place: Path) -> None:
    assert report() == 0
    assert basis() == ALONE
    assert report("--convergence", "studies/batch") == 0
    assert basis() == JOINED
    definition = json.loads(Path("studies/strong/study.json").read_text(encoding="utf-8"))
    assert definition["convergence"] == "../batch"
    assert report("--runs", "9") == 0
    assert basis() == JOINED
    assert report("--convergence", "none") == 0
    assert basis() == ALONE
    assert report() == 0
    assert basis() == ALONE


def test_the_page_says_how_the_joined_trainings_differ_from_its_own(place: Path) -> None:
    assert report("--convergence", "studies/batch") == 0
    text = " ".join(Path("studies/strong/table.txt").read_text(encoding="utf-8").split())
    assert (
        "The epochs are of another training (training samples 4,096 there, 128 here; target 0.3 there, 0.46 here), "
        "which may take more of them, or fewer."
    ) in text
    assert report("--convergence", "none") == 0
    assert "another training" not in Path("studies/strong/table.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_pair_that_is_moved_still_works_from_anywhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report("--convergence", "studies/batch") == 0
    Path("studies").rename("archive")
    (place / "link").symlink_to(place / "archive" / "strong")
    monkeypatch.chdir(place / "archive" / "batch")
    for study in ("../strong", str(place / "archive" / "strong"), str(place / "link")):
        (place / "archive" / "strong" / "proposal.txt").unlink()
        assert report(study=study) == 0
        assert basis(study) == JOINED


@pytest.mark.slow
def test_an_absolute_path_stays_where_it_is(place: Path) -> None:
    assert report("--convergence", str(place / "studies" / "batch")) == 0
    Path("studies/strong").rename("alone")
    assert report(study="alone") == 0
    assert basis("alone") == JOINED


def test_a_convergence_study_that_is_gone_is_one_line_with_the_way_out(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report("--convergence", "studies/batch") == 0
    Path("studies/batch").rename("studies/other")
    capsys.readouterr()
    assert report() == 2
    assert capsys.readouterr().err == (
        "hpcbench: error: studies/strong: its convergence study studies/batch is not there; name it with "
        "--convergence DIR, or report without: --convergence none\n"
    )
    assert report("--convergence", "none") == 0
    assert report("--convergence", "studies/gone") == 2
    assert report() == 0, "what was refused is not remembered"


@pytest.mark.slow
def test_a_copy_finds_the_convergence_study(place: Path) -> None:
    assert report("--convergence", "studies/batch") == 0
    for copy in ("docs/strong", "studies/second"):
        assert main(["study", "collect", "studies/strong", "--out", copy]) == 0
        assert report(study=copy) == 0
        assert basis(copy) == JOINED
    stored = {name: json.loads(Path(name, "study.json").read_text())["convergence"]
              for name in ("docs/strong", "studies/second")}  # fmt: skip
    assert stored == {"docs/strong": "../../studies/batch", "studies/second": "../batch"}
    assert main(["study", "collect", "studies/batch", "--out", "docs/batch"]) == 0
    assert main(["study", "collect", "studies/strong", "--out", "docs/strong"]) == 0
    assert json.loads(Path("docs/strong/study.json").read_text())["convergence"] == "../batch", "both were copied"


def test_a_study_that_grows_keeps_it_and_is_no_other_study(place: Path) -> None:
    linked = replace(STRONG, convergence="../batch")
    grown = grow(linked, replace(STRONG, nodes=(4,)), Path("studies/strong"))
    assert (grown.nodes, grown.convergence) == ((1, 2, 4), "../batch")
    folder = StudyFolder(Path("studies/strong"))
    folder.write(linked.as_dict())
    assert merged(STRONG, folder, None) == linked
    assert merged(STRONG, folder, "none") == STRONG
    assert merged(STRONG, folder, "studies/../studies/batch") == linked
    with pytest.raises(InputError, match=r"^studies/strong: its convergence study nowhere is not there"):
        merged(STRONG, folder, "nowhere")
    with pytest.raises(InputError, match="is of cosmoflow, this study of deepcam"):
        merged(replace(STRONG, application="deepcam"), StudyFolder(Path("studies/new")), "studies/batch")


def test_a_fit_that_is_lacking_is_told_before_the_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not refused: the convergence study may be under way, and have the fit when the runs have ended."""
    for optimizer, lacks in (("adamw", False), ("lamb", True)):
        study = replace(STRONG, settings={**STRONG.settings, "optim.name": optimizer})
        extras = Extras(convergence="studies/batch")
        assert run_study(study, Path("studies/new"), ExecutionOptions(), extras, dry_run=True) == 0
        said = " ".join(capsys.readouterr().out.split())
        words = "The report will need what is lacking so far: the convergence study studies/batch has no fit of "
        assert (f"{words}epochs(B) for optimizer lamb (it takes 3 batches" in said) == lacks
        assert ("lacking so far" in said) == lacks


def test_a_damaged_name_is_told() -> None:
    with pytest.raises(DataError, match=r"is damaged \(convergence is not the name of a folder\)"):
        Scaling.from_dict({**STRONG.as_dict(), "convergence": 3}, Path("study.json"))
