"""The plot of a staging holds its numbers, for one node and for a thousand, and the run's page shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from hpcbench.cli.main import main
from hpcbench.results import report as pages
from hpcbench.results.records import read_run
from hpcbench.results.staging_plots import node_lines, timelines
from staging.errors import DataError
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.stage import stage

GB = 10**9
BEFORE_S = 3.0


def made_up(nodes: int, ranks: int = 1, probed: bool = True) -> dict[str, Any]:
    """A staging of 10 GB to each node, at 1 GB/s on the first and a little slower on each next one."""
    rows = []
    last = 10 + 0.01 * (nodes - 1)
    for node in range(nodes):
        move = 10 + 0.01 * node
        for rank in range(ranks):
            phases = {"list": 2.0, "plan": 0.5, "check": 0.1, "move": move, "commit": 1.0, "wait": last - move,
                      "other": 0.4}  # fmt: skip
            landed = 10 * GB // ranks
            curve = [(time, landed * time / move) for time in np.linspace(0.1, 0.95 * move, 30).tolist()]
            rows.append({
                "node": f"n{node}", "rank": node * ranks + rank, "counters": {"bytes_landed": landed},
                "phases_s": phases, "seconds": sum(phases.values()), "timeline": curve,
            })  # fmt: skip
    share = {"part": "read", "share": 0.5, "achieved": 1e9, "ceiling": 2e9, "node": ""}
    return {"ranks": rows, "bound_basis": "probe" if probed else "time", "shares": [share]}


def drawn(report: dict[str, Any]) -> tuple[Axes, Axes, str]:
    """The panels and the caption."""
    figure = timelines(report)
    assert figure is not None
    upper, lower = figure.figure.axes
    return upper, lower, figure.caption


def lines(axes: Axes, gid: str) -> list[np.ndarray]:
    """The points of the lines of a kind."""
    return [np.asarray(line.get_xydata()) for line in axes.lines if line.get_gid() == gid]


@pytest.mark.parametrize(("nodes", "ranks"), [(1, 1), (4, 3), (8, 1)])
def test_lines_begin_at_nothing_and_end_at_what_landed(nodes: int, ranks: int) -> None:
    upper, _, _ = drawn(made_up(nodes, ranks))
    found = lines(upper, "node")
    assert len(found) == nodes
    for points in found:
        assert points[0] == pytest.approx([BEFORE_S, 0])
        assert points[-1, 1] == pytest.approx(10 * GB)
        assert (np.diff(points, axis=0) >= 0).all()
    assert max(points[-1, 0] for points in found) == pytest.approx(BEFORE_S + 10 + 0.01 * (nodes - 1))


def test_bars_are_the_phases_in_their_order() -> None:
    _, lower, _ = drawn(made_up(4))
    rows: dict[float, list[tuple[str, float, float]]] = {}
    for bar in lower.patches:
        rows.setdefault(bar.get_y(), []).append((bar.get_gid(), bar.get_x(), bar.get_width()))
    assert len(rows) == 4
    for bars in rows.values():
        assert [name for name, *_ in bars][:6] == ["list", "plan", "check", "other", "move", "commit"]
        assert sum(width for *_, width in bars) == pytest.approx(BEFORE_S + 10.03 + 1)
        assert next(start for name, start, _ in bars if name == "move") == pytest.approx(BEFORE_S)
    assert [label.get_text() for label in lower.get_yticklabels()] == ["n3", "n2", "n1", "n0"]


def test_the_ceiling_is_as_steep_as_the_share_says() -> None:
    upper, _, caption = drawn(made_up(1))
    (ceiling,) = lines(upper, "ceiling")
    assert ceiling == pytest.approx(np.array([[BEFORE_S, 0], [BEFORE_S + 5, 10 * GB]]))
    assert "bound by source read, at 50.0 % of the probed ceiling" in caption
    upper, _, caption = drawn(made_up(1, probed=False))
    assert lines(upper, "ceiling") == []
    assert "No ceiling was probed" in caption


@pytest.mark.parametrize("nodes", [9, 1024])
def test_many_nodes_are_a_band_with_the_slowest_named(nodes: int) -> None:
    upper, lower, caption = drawn(made_up(nodes))
    (median,), (slowest,) = lines(upper, "median"), lines(upper, "node")
    assert median[-1, 1] == slowest[-1, 1] == 10 * GB
    middle = np.interp(BEFORE_S + 5, median[:, 0], median[:, 1])
    assert middle == pytest.approx(10 * GB * 5 / (10 + 0.005 * (nodes - 1)), rel=0.02)
    assert len(upper.collections) == 2
    names = [label.get_text() for label in lower.get_yticklabels()]
    assert names == ["fastest, n0", f"median, n{(nodes - 1) // 2}", f"slowest, n{nodes - 1}"]
    assert f"on {nodes:,} nodes" in caption


def test_reports_without_timelines_or_bytes_have_no_plot() -> None:
    assert timelines({"files": 3, "ranks": 2}) is None
    assert timelines({}) is None
    nothing = made_up(1)
    nothing["ranks"][0]["counters"]["bytes_landed"] = 0
    nothing["ranks"][0]["timeline"] = []
    assert timelines(nothing) is None


@pytest.fixture
def staged(tmp_path: Path) -> dict[str, Any]:
    """The report of a real staging, as JSON."""
    (tmp_path / "source").mkdir()
    for number in range(20):
        (tmp_path / "source" / f"{number}.bin").write_bytes(bytes(10_000))
    report = stage(StageOptions(tmp_path / "source", str(tmp_path / "out")), Alone("here"), quiet=True)
    found: dict[str, Any] = json.loads(json.dumps(report.as_dict()))
    return found


def test_a_real_report_ends_at_its_bytes(staged: dict[str, Any]) -> None:
    (line,) = node_lines(staged)
    assert line.bytes == staged["bytes_landed"] == 200_000
    assert line.seconds == pytest.approx(staged["seconds"])
    upper, _, _ = drawn(staged)
    assert lines(upper, "node")[0][-1, 1] == 200_000


@pytest.fixture
def _no_other_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "run_figures", lambda _: [])
    monkeypatch.setattr("hpcbench.results.run_page.plots_module", lambda _: None)


@pytest.mark.usefixtures("_no_other_plots")
def test_the_page_of_a_run_shows_it(build_run: Any, staged: dict[str, Any]) -> None:
    folder = build_run()
    (folder / "staging.json").write_text(json.dumps(staged | {"timed": True}))
    page = pages.page_of_run(read_run(folder), folder / "report.html")
    section = page[page.index('<section id="staging">') :]
    section = section[: section.index("</section>")]
    assert '<figure id="staging-timelines">' in section
    assert "<svg" in section
    for words in ("20, 195 KiB", "slowest node", "here", "no ceiling was probed", "flushed to the device"):
        assert words in section
    assert "timeline&#34;" not in section


@pytest.mark.usefixtures("_no_other_plots")
def test_a_damaged_report_is_refused(build_run: Any) -> None:
    folder = build_run()
    (folder / "staging.json").write_text('{"ranks": []}')
    with pytest.raises(DataError, match=r"staging\.json: is not a staging report \(KeyError: 'placement'\)"):
        pages.page_of_run(read_run(folder), folder / "report.html")


def test_the_command_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_bytes(bytes(10_000))
    words = ["stage", str(tmp_path / "source"), str(tmp_path / "out"), "--plot"]
    assert main([*words, str(tmp_path / "plot.svg")]) == 0
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    assert main([*words, str(tmp_path / "again.svg")]) == 0
    assert "nothing landed, so there is no" in capsys.readouterr().out
    for given, said in (
        (["plot.pdf"], "must end in .png or .svg"),
        ([str(tmp_path / "no" / "x.png")], "has no folder to lie in"),
        (["x.png", "--probe"], "leave out --clean, --verify-only, --plan-only and --probe"),
    ):
        assert main([*words, *given]) == 2
        assert said in capsys.readouterr().err
    assert main(["stage", "--verify-only", str(tmp_path / "out"), "--plot", str(tmp_path / "x.png")]) == 2
    assert "--plot draws a staging; leave out --clean, --verify-only" in capsys.readouterr().err
