"""One's own runs beside published ones: which entries, what is said of both, and on which pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.batch.machine import known_machines
from hpcbench.cli.main import main
from hpcbench.mlperf.beside_plot import Mark, marks_plot
from hpcbench.mlperf.beside_published import beside_published, chosen, published_mark, size_class
from hpcbench.mlperf.published import published_entries
from hpcbench.results import style
from hpcbench.results.beside import Beside, BesideRow, beside_text
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.records import read_run

BuildRun = Callable[..., Path]


def beside(**runs: Path) -> Beside:
    found = beside_published({name: read_run(path) for name, path in runs.items()}, draw=False)
    assert found is not None
    return found


def row(table: Beside, name: str) -> BesideRow:
    return next(each for each in table.rows if each.name == name)


def test_fugaku_perlmutter_and_selene_are_beside_a_run(build_run: BuildRun) -> None:
    """Figures of the published entries: 6,861 s, 481 s and 228 s of CosmoFlow."""
    found = beside(mine=build_run())
    shown = {name: row(found, name) for name in ("Fugaku", "Perlmutter", "Selene")}
    assert {name: (each.round, each.detail, each.size, each.time) for name, each in shown.items()} == {
        "Fugaku": ("v2.0 closed", "Fujitsu+RIKEN/fugaku_512xA64FX_tensorflow_closed", "512", "1 h 54 min"),
        "Perlmutter": ("v1.0 closed", "LBNL/perlmutter_256x4_ngc21.09_mxnet", "1,024", "8 min 01 s"),
        "Selene": ("v2.0 closed", "NVIDIA/dgxa100_n64_pytorch", "512", "3 min 48 s"),
    }
    names = {each.detail: each.name for each in found.rows}
    assert names["LBNL/corigpu_n64_tf1.15.0"] == "Cori, GPU nodes"
    assert names["LBNL/coriknl_n512_tf1.15.2"] == "Cori, Xeon Phi nodes"
    own = found.rows[0]
    assert (own.is_own, own.time, own.size, own.rate, own.epochs) == (True, "44.9 s", "1", "194", "9")
    assert NOT_VERIFIED in own.detail
    assert f"mine: {NOT_VERIFIED}." in found.notes


@pytest.mark.parametrize("application", ["cosmoflow", "deepcam", "oc20"])
def test_of_each_machine_the_fastest_of_its_newest_round_in_each_class(application: str) -> None:
    """By brute force over all entries: none of the same machine, round and class is faster."""
    machines, entries = known_machines(), published_entries()
    rows = chosen(entries, machines, application)
    names = ["Fujitsu+RIKEN", "NVIDIA", "HelmholtzAI"]
    for one in rows:
        rivals = [
            each for each in entries
            if each.application == application and each.organization == one.organization and each.round == one.round
            and each.mode == "time to train" and size_class(each.accelerators) == size_class(one.accelerators)
            and each.system[:5] == one.system[:5]
        ]  # fmt: skip
        assert one.time_to_train_s == min(each.time_to_train_s or 0 for each in rivals)
    assert [size_class(each.accelerators) for each in rows] == sorted(size_class(each.accelerators) for each in rows)
    assert {each.round for each in rows if each.organization in names[:2]} <= {"v2.0"}


def test_classes_of_size_hold_their_bounds() -> None:
    assert [size_class(size) for size in (1, 128, 129, 512, 513, 2048, 2049, None)] == [0, 0, 1, 1, 2, 2, 3, 0]


def test_what_a_run_does_otherwise_is_said_with_both_figures(build_run: BuildRun) -> None:
    missed = build_run(name="b", status="target_not_reached", target=0.124, simulated_ranks=4)
    plain = build_run(name="c", preset="mlperf-512", target=None, train_samples=524_288)
    notes = beside(a=build_run(name="a"), b=missed, c=plain).notes
    assert "a, b: the preset laptop is no published recipe, so that samples and network may be smaller." in notes
    assert "a, b: an epoch has 816 samples, that of the entries 262,144 or 524,288." in notes
    assert "a: the target is 0.3, that of the entries 0.124." in notes
    assert "b: the target was not reached, so that there is no time to train." in notes
    assert "b: ranks or nodes were simulated, so the times are not those of real ones." in notes
    assert "c: there was no target, so that there is no time to train." in notes
    assert any("compare within a round" in note for note in notes)


def test_a_run_on_accelerators_is_counted_by_them_and_one_on_processors_by_its_nodes(build_run: BuildRun) -> None:
    gpus = build_run(name="a", device_type="cuda", world_size=8, nodes=2, samples_per_s=800.0)
    nodes = build_run(name="b", device_type="cpu", world_size=8, nodes=2, samples_per_s=800.0)
    missed = build_run(name="c", status="target_not_reached")
    found = beside(a=gpus, b=nodes, c=missed)
    assert [(each.size, each.rate) for each in found.rows[:2]] == [("8", "100"), ("2", "400")]
    assert (row(found, "c").time, row(found, "c").epochs) == ("-", "-")


def test_the_text_fits_100_columns(build_run: BuildRun) -> None:
    shown = beside_text(beside(**{"a-run-with-a-name-that-is-long": build_run()}))
    assert max(len(line) for line in shown.splitlines()) <= 100
    assert re.search(r"^Selene dgxa100_n64_pytorch +v2\.0 closed +512 +512 +23 +0\.123 +115 +3 min 48 s$", shown, re.M)


@pytest.mark.slow
def test_the_page_of_a_run_and_of_several(
    build_run: BuildRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for drawing in ("apps.cosmoflow.plots.figures", "hpcbench.results.compare.figures"):
        monkeypatch.setattr(drawing, lambda *_: [])  # drawing all plots takes seconds
    monkeypatch.setattr("hpcbench.results.report.run_figures", lambda _: [])
    one, other, page = build_run(name="a"), build_run(name="b", seed=3), tmp_path / "all.html"
    assert main(["report", str(one), str(other), "--beside", "published", "--out", str(page)]) == 0
    assert NOT_VERIFIED in capsys.readouterr().out
    for path, name in ((one / "report.html", "this run"), (page, "a, b")):
        text = path.read_text(encoding="utf-8")
        assert "Fujitsu+RIKEN/fugaku_512xA64FX_tensorflow_closed" in text
        assert f"{name}: {NOT_VERIFIED}." in text
        assert 'id="cosmoflow-beside"' in text
        assert text.count('class="group"') == 3
    assert main(["report", str(one)]) == 0
    assert "Fujitsu+RIKEN" not in (one / "report.html").read_text(encoding="utf-8")


def test_an_application_without_published_results_is_refused(
    build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build_run(application="cosmoflow")
    summary = folder / "summary.json"
    summary.write_text(summary.read_text().replace('"cosmoflow"', '"tones"'))
    assert main(["report", str(folder), "--beside", "published"]) == 2
    error = capsys.readouterr().err
    assert "there are no published results of tones; those that there are, are of cosmoflow, deepcam, oc20" in error
    assert not (folder / "report.html").exists()
    assert main(["report", str(folder), "--beside", "mine"]) == 2


def test_a_mark_of_an_open_entry_says_so() -> None:
    machines, entries = known_machines(), published_entries()
    names = {(entry.round, entry.division): published_mark(entry, machines).name for entry in entries}
    assert " v1.0 open, " in names["v1.0", "open"]
    assert " v1.0, " in names["v1.0", "closed"]


def test_the_figure_says_that_own_runs_are_not_verified() -> None:
    """Also where it is a file by itself, without its caption."""
    own, published = Mark(True, "mine", 1.0, 1.0), Mark(False, "a", 228.0, 1.0)
    assert f"orange: {NOT_VERIFIED}" in style.svg(marks_plot("cosmoflow", [own, published]).figure, "beside")
    assert NOT_VERIFIED not in style.svg(marks_plot("cosmoflow", [published]).figure, "beside")


def test_the_figure_tells_between_which_times_the_published_entries_lie() -> None:
    marks = [Mark(True, "mine", 1.0, 1.0), Mark(False, "a", 228.0, 1.0), Mark(False, "b", None, 2.0),
             Mark(False, "c", 6861.0, None)]  # fmt: skip
    assert marks_plot("cosmoflow", marks).finding == "The published entries take 3 min 48 s to 1 h 54 min to train"
    assert marks_plot("cosmoflow", marks[:1]).finding == ""
