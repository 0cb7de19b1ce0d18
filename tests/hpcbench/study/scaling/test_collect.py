"""A copy of a scaling study for a repository: it names no node, and makes the same page as the study itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.scaling.collect import collect, ranks_of, without_names
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.proposal import Extras
from hpcbench.study.scaling.report import report
from hpcbench.study.scaling.run_matrix import all_runs
from staging.errors import InputError
from tests.hpcbench.study.scaling.test_read_results import write_planned, write_run

STUDY = Scaling(
    mode="throughput", application="cosmoflow", preset="smoke", site="perlmutter-gpu", nodes=(2, 4), ranks_per_node=1,
    local_batch_size=4, instance_nodes=2, cores_per_rank=16, repeats=1, steps=25, settings={"data.root": "set"},
)  # fmt: skip
NAMES = ("nid0", "nid1", "nid-0002", "nid3", "login-07.site.example")


def make(study: Scaling, path: Path) -> StudyFolder:
    """A study of which everything is done, on the nodes ``NAMES``; its first run was described on a login node."""
    folder = StudyFolder(path)
    with held(folder):
        folder.write(study.as_dict())
    for run in all_runs(study):
        hosts = NAMES[2:4] if run.instance == 2 else NAMES[:2]
        described: dict[str, Any] = {
            "energy_note": f"not measured: {hosts[1]}: no counter",
            "slow_nodes": [f"{hosts[0]} computes a step 1.31 times as slowly as the median"],
        }
        write_planned(study, run, folder.run(run.name), hosts=hosts, **described)
        report = {"seconds": 2.0, "bytes_landed": 8_000, "bytes_per_s": 4_000.0, "slowest_node": hosts[1]}
        RunFolder(folder.run(run.name)).write_json("staging.json", report)
        RunFolder(folder.run(run.name)).write_json("environment.json", {"host": hosts[0]})
        (folder.run(run.name) / "job-17.log").write_text(f"on {hosts[0]}", encoding="utf-8")
    first = RunFolder(folder.run(all_runs(study)[0].name))
    first.write_json("environment.json", {"host": NAMES[4]})
    first.mllog.write_text(first.mllog.read_text().replace(NAMES[0], NAMES[4]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyFolder, StudyFolder]:
    """A study with its page, and the copy."""
    path = tmp_path_factory.mktemp("studies")
    folder, copy = make(STUDY, path / "mine"), StudyFolder(path / "copy")
    report(STUDY, folder, Extras())
    assert collect(STUDY, folder, copy.path) == 3
    return folder, copy


def texts(folder: StudyFolder) -> dict[str, str]:
    """Every file of the study by its name, without pictures of pixels."""
    paths = [path for path in folder.path.rglob("*") if path.is_file() and path.suffix != ".png"]
    return {str(path.relative_to(folder.path)): path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.slow
def test_the_copy_names_no_node(both: tuple[StudyFolder, StudyFolder]) -> None:
    folder, copy = both
    joined = "".join(texts(folder).values())
    assert all(name in joined for name in NAMES), "there is something to leave out"
    for name, text in texts(copy).items():
        assert not [host for host in NAMES if host in text], name
        assert "nid" not in text, f"{name}: not even a part of a name that a line breaks"


def test_the_copy_makes_the_same_table(
    both: tuple[StudyFolder, StudyFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, copy = both
    table, page = copy.table.read_text(encoding="utf-8"), (copy.path / "scaling.html").read_text(encoding="utf-8")
    assert "node 0 computes a step 1.31 times as slowly" in page.replace("\u00a0", " ")
    numbers = pd.read_csv(copy.results).select_dtypes("number")
    report(STUDY, copy, Extras())
    assert copy.table.read_text(encoding="utf-8").split() == table.split(), "but for where lines break"
    pd.testing.assert_frame_equal(pd.read_csv(copy.results).select_dtypes("number"), numbers)
    pd.testing.assert_frame_equal(pd.read_csv(folder.results).select_dtypes("number"), numbers)


def test_a_node_has_the_same_number_in_every_run(both: tuple[StudyFolder, StudyFolder]) -> None:
    found = {path.name: list(RunFolder(path).read_ranks()["node"]) for path in sorted(both[1].runs.iterdir())}
    assert found["n0002-r1-i001"] == found["n0004-r1-i001"]
    assert not set(found["n0004-r1-i001"]) & set(found["n0004-r1-i002"])


def test_only_what_the_page_needs_is_copied(both: tuple[StudyFolder, StudyFolder]) -> None:
    copy = both[1]
    assert {path.name for path in (copy.runs / "n0002-r1-i001").iterdir()} == {
        "mllog.txt", "ranks.csv", "staging.json", "summary.json",
    }  # fmt: skip
    staging = json.loads((copy.runs / "n0002-r1-i001" / "staging.json").read_text(encoding="utf-8"))
    assert staging == {"seconds": 2.0, "bytes_landed": 8000, "bytes_per_s": 4000.0}
    assert Scaling.from_dict(copy.read() or {}, copy.definition) == STUDY


def test_simulated_nodes_keep_their_names_and_their_machine_has_none(tmp_path: Path) -> None:
    study = replace(STUDY, mode="strong", instance_nodes=None, nodes=(2,), global_batch_size=8, site="local")
    folder = StudyFolder(tmp_path / "mine")
    with held(folder):
        folder.write(study.as_dict())
    path = folder.run("n0002-r1")
    write_run(path, hosts=("workstation", ""), simulated=2)
    RunFolder(path).write_json("environment.json", {"host": "workstation"})
    assert collect(study, folder, tmp_path / "copy") == 1
    copy = RunFolder(tmp_path / "copy" / "runs" / "n0002-r1")
    assert list(copy.read_ranks()["node"]) == ["simulated node 0", "simulated node 1"]
    assert '"submission_platform", "value": "node 0"' in copy.mllog.read_text(encoding="utf-8")


@pytest.mark.slow
def test_energy_by_accounting_is_kept(tmp_path: Path) -> None:
    folder = make(STUDY, tmp_path / "mine")
    for run in all_runs(STUDY):
        RunFolder(folder.run(run.name)).write_json("job-energy.json", {"joules": 500.0})
    collect(STUDY, folder, tmp_path / "copy")
    copy = StudyFolder(tmp_path / "copy")
    report(STUDY, copy, Extras())
    assert list(pd.read_csv(copy.results)["joules"]) == [500, 1000]


def test_runs_that_are_not_done_stay_behind_and_a_copy_is_brought_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, copy = make(STUDY, tmp_path / "mine"), StudyFolder(tmp_path / "copy")
    summary = RunFolder(folder.run("n0004-r1-i001"))
    whole = summary.read_summary()
    summary.write_summary(Summary("cosmoflow", "t", "smoke", status="aborted", reason="no memory"))
    assert collect(STUDY, folder, copy.path) == 2
    said = "left out: 1 failed run; a report of the copy counts them as left to run\n"
    assert capsys.readouterr().out == said
    assert not copy.run("n0004-r1-i001").exists()
    summary.write_summary(whole)
    assert collect(STUDY, folder, copy.path) == 3


def test_a_run_that_was_made_again_replaces_its_earlier_copy(tmp_path: Path) -> None:
    folder, copy = make(STUDY, tmp_path / "mine"), StudyFolder(tmp_path / "copy")
    again, copied = folder.run("n0002-r1-i001"), copy.run("n0002-r1-i001")
    Attempts([Attempt(0.0, 10.0, 0, 5), Attempt(20.0, 50.0, 6, 25)]).write(again)
    RunFolder(again).write_json("job-energy.json", {"joules": 500.0})
    collect(STUDY, folder, copy.path)
    of_before = ("attempts.json", "job-energy.json", "staging.json")
    assert all((copied / name).exists() for name in of_before)
    (copied / "notes.txt").write_text("somebody's own", encoding="utf-8")
    for name in of_before:
        (again / name).unlink()
    collect(STUDY, folder, copy.path)
    assert {path.name for path in copied.iterdir()} == {"mllog.txt", "ranks.csv", "summary.json", "notes.txt"}


def test_a_run_that_continued_on_another_node_names_neither(tmp_path: Path) -> None:
    folder, copy = make(STUDY, tmp_path / "mine"), StudyFolder(tmp_path / "copy")
    run = RunFolder(folder.run("n0002-r1-i001"))
    run.write_ranks([row | {"node": f"{row['node']}, nid7"} for row in ranks_of(run.path)])
    summary = run.read_summary()
    run.write_summary(replace(summary, energy_note="not measured: nid0, nid7: no counter; nid1, nid7: no counter"))
    collect(STUDY, folder, copy.path)
    copied = RunFolder(copy.run("n0002-r1-i001"))
    nodes = [node for row in ranks_of(copied.path) for node in row["node"].split(", ")]
    assert len(set(nodes)) == 3
    assert set(nodes) <= {f"node {number}" for number in range(len(NAMES) + 1)}
    assert not [name for name, text in texts(copy).items() if "nid" in text]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    folder = make(STUDY, tmp_path / "mine")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").touch()
    with pytest.raises(InputError, match="thesis is not empty and holds no study; give a new folder with --out"):
        collect(STUDY, folder, tmp_path / "thesis")
    with pytest.raises(InputError, match="is the study itself; give another folder"):
        collect(STUDY, folder, tmp_path / "thesis" / ".." / "mine")


def test_names_are_words_of_their_own() -> None:
    names = {"a1": "node 0", "a10": "node 1", "a-b": "node 2"}
    said = "a1, a10 (a1.) a100 da1 a1-x a-\n  b a1_x; a-b-c"
    assert without_names(said, names) == "node 0, node 1 (node 0.) a100 da1 a1-x node 2 a1_x; a-b-c"
    assert without_names(said, {}) == said
