"""The pages: their numbers are those of the run, and they need nothing but themselves."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.report import write_report
from hpcbench.results.run_folder import RunFolder
from staging.errors import DataError, InputError

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """What a browser would find: text by table row, attributes, nesting."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.attributes: list[tuple[str, str, str]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if self.rows and self.open and self.open[-1] in ("td", "th", "a"):
            self.rows[-1][-1] += data

    def row(self, first: str) -> list[str]:
        return next(row for row in self.rows if row and row[0].strip() == first)

    def has(self, words: str) -> bool:
        return words in " ".join(self.text.split())


@pytest.fixture
def drawn() -> None:
    """Asked for by tests that need the plots; the others leave them out, since drawing takes seconds."""


@pytest.fixture(autouse=True)
def _plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "drawn" not in request.fixturenames:
        for module in (
            "apps.cosmoflow.plots.figures",
            "apps.deepcam.plots.figures",
            "hpcbench.results.compare.figures",
        ):
            monkeypatch.setattr(module, lambda *_: [])
        monkeypatch.setattr("hpcbench.results.report.run_figures", lambda _: [])


def report(folder: Path) -> Page:
    (path,) = write_report([folder])
    assert path == folder / "report.html"
    return Page(path)


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("application", ["cosmoflow", "deepcam"])
def test_page_needs_nothing_from_outside(build_run: Any, application: str) -> None:
    page = report(build_run(application=application))
    assert not page.open
    tags = Counter(tag for tag, _, _ in page.attributes)
    assert not tags.keys() & {"script", "link", "iframe", "object", "embed", "form"}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    pointers = [value for _, name, value in page.attributes if name in ("href", "src", "xlink:href", "srcset", "data")]
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in pointers)
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^'\")]*)", page.source))
    assert "@import" not in page.source
    ids = Counter(value for _, name, value in page.attributes if name == "id")
    assert ids.most_common(1)[0][1] == 1
    science = {"cosmoflow": {"predictions", "slices"}, "deepcam": {"maps", "overlap"}}[application]
    assert ids.keys() >= {"quality", "loss", "phases", "throughput"} | science


def test_numbers_of_the_page_are_those_of_the_summary(build_run: Any) -> None:
    folder = build_run()
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    page = report(folder)
    assert page.has("Reached its target in 44.9 s")
    assert page.has(f"A validation MAE of {summary['metrics']['mae']:.4g} after 9 epochs. The target is 0.3 or lower.")
    for words in (
        "351,236",
        "918 optimizer steps",
        "194",
        "1.33 GiB",
        "402 MFLOP/sample",
        "78.0 GFLOP/s",
        "14 March 2026",
    ):
        assert page.has(words), words
    assert page.row("mean absolute error (MAE)")[1:] == [f"{summary['metrics']['mae']:.4f}", "0.4987", "0.3216"]
    assert page.row("MAE of σ₈")[1:] == [f"{summary['metrics']['mae_sigma_8']:.4f}", "0.4958", "0.1127"]
    assert page.row("seed")[1] == "2019"
    assert page.row("torch")[1] == "2.11.0"
    assert page.row("processor")[1] == "Intel(R) Core(TM) i7-1370P"
    assert page.has("hpcbench train cosmoflow --preset laptop --train.seed 2019")
    assert page.has("local_batch_size: 8")


def test_the_page_says_the_peak_rate_and_the_noise_scale_where_they_are_known(build_run: Any) -> None:
    page = report(build_run("known", peak_lr=0.0125, noise_scale=231.4))
    assert page.row("peak learning rate")[1] == "0.0125"
    assert page.row("gradient noise scale")[1] == "231 samples"
    assert not report(build_run("unknown", peak_lr=None, noise_scale=None)).has("noise scale")


def test_the_page_says_how_ranks_share_samples(build_run: Any) -> None:
    page = report(build_run("split", world_size=8, nodes=2, spatial="2x2", local_batch_size=3, global_batch_size=6))
    assert page.row("ranks")[1] == "8 as 2 x (2x2) (data x spatial) on 2 nodes"
    assert page.has("2 groups of 2x2 ranks x 3")


def test_phases_of_the_page_add_up_to_its_wall_time(build_run: Any) -> None:
    page = report(build_run())
    names = ("init", "input wait", "compute", "optimizer", "evaluation", "checkpoint", "other")
    seconds = [float(page.row(name)[1]) for name in names]
    assert page.row("wall time")[1:3] == ["46.900", "100.0 %"]
    assert sum(seconds) == pytest.approx(46.9, abs=1e-9)
    assert sum(float(page.row(name)[2].removesuffix(" %")) for name in names) == pytest.approx(100, abs=0.4)


def test_page_says_which_baselines_are_beaten(build_run: Any) -> None:
    better = report(build_run("a", metrics={"mae": 0.29}))
    worse = report(build_run("b", metrics={"mae": 0.40}, best=0.40, status="target_not_reached"))
    assert better.has("Baselines that it beats: ridge regression on power spectra (0.3216), predict the mean (0.4987).")
    assert worse.has("Baselines that it beats: predict the mean (0.4987).")
    assert worse.has("Baselines that it does not beat: ridge regression on power spectra (0.3216).")
    assert worse.has("Did not reach its target")


def test_the_best_of_a_row_is_marked_in_the_direction_of_the_metric(build_run: Any) -> None:
    page = report(build_run(application="deepcam"))
    best = re.findall(r'<th>([^<]*)</th>((?:<td class="number(?: best)?">[^<]*</td>)+)', page.source)
    marked = {name: re.findall(r'class="number best">([^<]*)<', cells) for name, cells in best}
    assert marked["mean IoU per image, the target metric"] == [page.row("mean IoU per image, the target metric")[1]]
    assert marked["share of images with tropical cyclone"] == []


def test_deepcam_explains_why_its_metric_flatters_background(build_run: Any) -> None:
    page = report(build_run(application="deepcam"))
    assert page.has("That flatters background.")
    assert page.row("IoU of tropical cyclone")[2:] == ["0", "0.2214"]


def test_aborted_run_shows_its_reason_as_text(build_run: Any) -> None:
    reason = "loss is not finite at step 118; <b>lower</b> optim.lr & try again"
    page = report(build_run(status="aborted", reason=reason, epochs=2, metrics={}, best=None, samples_per_s=None))
    assert page.has("Aborted after 2 epochs")
    assert page.has(reason)
    assert "<b>lower</b>" not in page.source
    assert page.has("time on the clock")


def test_simulated_ranks_are_told_from_real_ones(build_run: Any, tmp_path: Path) -> None:
    simulated = build_run("simulated", world_size=2, simulated_ranks=32, local_batch_size=1, global_batch_size=64)
    page = report(simulated)
    assert page.has("2 ranks simulating 64 x 1")
    assert page.has("2 simulating 64 on 1 node")
    both = Page(write_report([simulated, build_run("real", world_size=64)], tmp_path / "both.html")[-1])
    assert [row[2] for row in both.rows if row[0] in ("simulated", "real")][:2] == ["2 simulating 64", "64"]


def test_a_run_that_is_given_twice_counts_once(build_run: Any, tmp_path: Path) -> None:
    run, other = build_run("one"), build_run("two")
    assert len(write_report([run, run], tmp_path / "both.html")) == 1
    assert len(write_report([run, other, run.parent / "two" / ".." / "one"], tmp_path / "both.html")) == 3


def test_run_without_a_target(build_run: Any) -> None:
    page = report(build_run(target=None, epochs_to_target=None, metrics={"mae": 0.3512}))
    assert page.has("Trained for 9 epochs in 44.9 s")
    assert page.has("It ends with a validation MAE of 0.3512.")
    assert page.has("time on the clock")
    assert "time to solution" not in page.text


def test_staging_report_is_shown_with_units(build_run: Any) -> None:
    folder = build_run()
    report_of_staging = {
        "destination": "/local", "files": 1020, "bytes_landed": 3 * 2**30, "seconds": 4.0, "bytes_per_s": 768 * 2**20,
    }  # fmt: skip
    (folder / "staging.json").write_text(json.dumps(report_of_staging), encoding="utf-8")
    page = report(folder)
    assert page.row("files")[1] == "1,020"
    assert page.row("bytes landed")[1] == "3.00 GiB"
    assert page.row("seconds")[1] == "4.00 s"
    assert page.row("bytes per s")[1] == "768 MiB/s"


def test_application_that_is_not_installed_here_still_gets_a_page(build_run: Any) -> None:
    page = report(build_run(application="cosmoflow"))
    folder = build_run("foreign")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (folder / "summary.json").write_text(json.dumps(summary | {"application": "weather_far_away"}), encoding="utf-8")
    foreign = report(folder)
    assert foreign.has("Reached its target in 44.9 s")
    assert foreign.row("mae sigma 8")[1] == page.row("MAE of σ₈")[1]


def test_comparison_of_several_runs(build_run: Any, tmp_path: Path) -> None:
    machine = {"device": "H100", "device_type": "cpu", "nodes": 2, "ranks_per_node": 2, "threads": 8,
               "precision": "bf16-mixed", "energy_j": 9000.0, "samples": 11_250}  # fmt: skip
    runs = [
        build_run("one", samples_per_s=100.0, time_to_solution_s=80.0, epochs=8),
        build_run("two", samples_per_s=350.0, time_to_solution_s=30.0, epochs=10, world_size=4, **machine),
        build_run("lost", status="target_not_reached"),
        build_run("rivers", application="deepcam"),
    ]
    pages = write_report(runs, tmp_path / "pages" / "all.html")
    assert pages == [run / "report.html" for run in runs] + [tmp_path / "pages" / "all.html"]
    page = Page(pages[-1])
    said = "cosmoflow: two (2 nodes, H100) reaches the target 2.67 times as fast as one (cpu), in these runs"
    assert page.has(f"{said}; 2 of 3 runs reach it")
    tables = [row for row in page.rows if row[0] == "two"]
    assert tables[0][7:] == ["10", "350", "30.0 s"]
    assert tables[1][1:] == ["H100", "2", "2", "8", "bf16-mixed", "9.00 kJ", "0.800 J"]
    assert tables[2][1:] == ["1.25", "3.50", "0.875", "0.375"]
    lost = [row for row in page.rows if row[0] == "lost"]
    assert lost[0][5] == "no"
    assert lost[0][-1] == "-"
    assert lost[1][-2:] == ["-", "-"]
    assert lost[2][-1] == "-"
    links = [value for tag, name, value in page.attributes if tag == "a" and name == "href"]
    assert links == [f"../{name}/report.html" for name in ("one", "two", "lost", "rivers")]
    assert all((pages[-1].parent / link).resolve().is_file() for link in links)


def test_comparison_lies_beside_the_runs_where_no_place_is_given(build_run: Any, tmp_path: Path) -> None:
    pages = write_report([build_run("one"), build_run("two")])
    assert pages[-1] == tmp_path / "comparison.html"


@pytest.mark.usefixtures("drawn")
def test_single_run_goes_where_out_says(build_run: Any, tmp_path: Path) -> None:
    folder = build_run(epochs=4)
    assert write_report([folder], tmp_path / "page.html", png=True) == [tmp_path / "page.html"]
    assert not (folder / "report.html").exists()
    names = {path.stem for path in (tmp_path / "figures").glob("*.png")}
    assert names == {"quality", "loss", "phases", "throughput", "predictions", "slices"}


def test_out_that_is_a_folder(build_run: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; give the name of a file"):
        write_report([build_run()], tmp_path)


def test_out_that_cannot_be_written(build_run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be written"):
        write_report([build_run()], tmp_path / "file" / "page.html")


@pytest.mark.parametrize(("name", "text"), [("system.json", "{"), ("environment.json", "[]"), ("epochs.csv", "")])
def test_damaged_files_of_a_run(build_run: Any, name: str, text: str) -> None:
    folder = build_run()
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=name):
        write_report([folder])


def test_epochs_to_target_are_those_of_the_first_evaluation_that_met_it(build_run: Any) -> None:
    page = report(build_run(epochs_to_target=7))
    assert page.has("epochs to target7918 optimizer steps in 9 epochs")


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("full_disk", "The disk was full. The best validation MAE until then was 0.5."),
        ("rank_lost", "A rank was lost, and the others ended with it."),
        ("diverged", "The training diverged. "),
    ],
)
def test_aborted_run_says_its_cause_in_words(build_run: Any, cause: str, words: str) -> None:
    page = report(build_run(status="aborted", cause=cause, reason="why", epochs=2, metrics={}, best=0.5))
    assert page.has(words)
    assert page.has("To continue, start again with another --run-dir") is (cause != "diverged")


def report_of_two_attempts(folder: Path, ranks_s: float, attempts: list[Attempt]) -> Page:
    """The page of a run whose rows of two ranks took ``ranks_s`` each."""
    rows = [{"rank": rank, "node": "n1", "run_compute_s": 4.0 + rank, "run_wall_s": ranks_s} for rank in (0, 1)]
    RunFolder(folder).write_ranks(rows)
    Attempts(attempts).write(folder)
    return report(folder)


def test_only_attempts_with_the_same_number_of_ranks_are_in_the_figures_of_the_ranks(build_run: Any) -> None:
    each = [Attempt(0.0, 30.0, 0, 5, "signal", 4, 30.0), Attempt(40.0, 50.0, 5, 9, "epochs", 2, 10.0)]
    page = report_of_two_attempts(build_run(world_size=2, resumed=1), 9.0, each)
    assert page.has("These are of the last attempt: the ones before had another number of ranks, or left no figures.")
    assert page.has("The last 1.00 s of rank 0, in which it computed baselines")
    assert page.row("compute")[1:5] == ["4.500", "50.0 %", "5.000", "rank 1 on n1"]
    assert page.row("all")[2:] == ["10.000", "40.000", "together 50.000 s, from the first start to the last end"]


def test_figures_of_the_ranks_that_a_last_attempt_of_others_did_not_replace(build_run: Any) -> None:
    each = [Attempt(0.0, 30.0, 0, 5, "epochs", 2, 30.0), Attempt(40.0, 50.0, 5, 9, "error", 4, 10.0)]
    page = report_of_two_attempts(build_run(world_size=4, resumed=1, status="aborted", cause="error"), 30.0, each)
    assert page.has("These are of attempt 1 of 2: the others had another number of ranks, or ended too early.")
    assert not page.has("the last attempt: the ones before")
    assert not page.has("of rank 0 are not in the figures")


def test_of_several_ranks_that_told_nothing_the_page_says_whose_seconds_it_has(build_run: Any) -> None:
    page = report(build_run(world_size=2, status="aborted", cause="rank_lost"))
    assert page.has("These are the seconds of rank 0: the run ended before the other ranks told theirs.")


def test_an_accelerator_without_counters_is_not_called_idle(build_run: Any) -> None:
    page = report(build_run(device="H100", device_type="cuda"))
    assert page.row("accelerator busy")[1] == "not measured: no counter of the accelerator was read"
