"""How far predictions of published results are off is what the repository's record says, and the goals that are met."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.fitted import growth_pairs
from hpcbench.prediction.held_out_table import Judgement, judge, round_pairs

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "benchmarks" / "results" / "prediction.json"
PAGE = ROOT / "docs" / "prediction.md"


@pytest.fixture(scope="module")
def judgement(entries: tuple[ModelEntry, ...]) -> Judgement:
    return judge(entries)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    published: dict[str, Any] = json.loads(RECORD.read_text())["results"]["published"]
    return published


@pytest.mark.slow  # five fits without a site, five without an organization, and more: 5 s
def test_the_record_is_what_the_model_does(judgement: Judgement, record: dict[str, Any]) -> None:
    assert [(row.what, row.factor, row.predictor, row.n) for row in judgement.rows] == [
        (row["what"], row["factor"], row["predictor"], row["n"]) for row in record["rows"]
    ]
    for row, kept in zip(judgement.rows, record["rows"], strict=True):
        assert row.median == pytest.approx(kept["median"], abs=0.01)
        assert row.tail == pytest.approx(kept["tail"], abs=0.03)
        assert row.inside is None or row.inside == pytest.approx(kept["inside"], abs=0.08)


@pytest.mark.slow
def test_the_model_beats_both_trivial_rules_in_every_factor(judgement: Judgement) -> None:
    for factor in ("time to train", "seconds per epoch", "epochs", "staging", "step"):
        model, *rules = [row for row in judgement.rows if (row.what, row.factor) == ("one site left out", factor)]
        assert model.predictor == "model"
        assert len(rules) == 2
        assert model.median < min(rule.median for rule in rules)
        assert model.tail < min(rule.tail for rule in rules)
    # one system whose steps get shorter with its size
    assert judgement.experimental == ["same system, larger, HoreKa: step"]
    # the largest error of nine pairs: Fugaku's
    assert judgement.worse_at_worst == ["same system, larger: step", "same system, larger, HoreKa: step"]


@pytest.mark.slow
def test_eight_of_ten_are_within_the_interval(judgement: Judgement) -> None:
    rows = {(row.what, row.factor): row for row in judgement.rows if row.predictor == "model"}
    for factor in ("time to train", "seconds per epoch", "epochs", "staging"):
        inside = rows["one site left out", factor].inside
        assert inside is not None
        assert 0.7 <= inside <= 0.9


def test_sizes_of_one_system_that_are_compared(entries: tuple[ModelEntry, ...]) -> None:
    pairs = {(small.site, small.application, small.accelerators, large.accelerators)
             for small, large in growth_pairs(entries)}  # fmt: skip
    assert ("selene", "cosmoflow", 128, 1024) in pairs
    assert ("juwels-booster", "deepcam", 128, 2048) in pairs
    assert ("horeka", "deepcam", 64, 512) in pairs
    assert len(pairs) == 10
    rounds = {(old.site, old.accelerators) for old, _ in round_pairs(entries)}
    assert rounds == {("selene", 2048), ("selene", 16), ("juwels-booster", 2048), ("horeka", 512)}


def test_the_page_has_the_numbers_of_the_record(record: dict[str, Any]) -> None:
    rows = {(row["what"], row["factor"], row["predictor"]): row for row in record["rows"]}
    what = "one site left out"
    text = PAGE.read_text()
    for factor in ("time to train", "seconds per epoch", "epochs", "staging", "step"):
        cells = [f"{factor} | {rows[what, factor, 'model']['n']}"]
        for predictor in ("model", "scaled result", "same step"):
            row = rows[what, factor, predictor]
            cells.append(f"{100 * row['median']:.1f} % ({100 * row['tail']:.1f} %)")
        model = rows[what, factor, "model"]
        cells += [f"{100 * model['inside']:.1f} %", f"{100 * model['width']:.1f} %"]
        assert f"| {' | '.join(cells)} |" in text
    for known in ("staging", "epochs", "seconds per epoch", "all three"):
        row = rows[f"{what}, {known} as measured", "time to train", "model"]
        assert f"| {known} | {100 * row['median']:.1f} % ({100 * row['tail']:.1f} %) |" in text
    reference = rows[f"{what}, reference recipe", "epochs", "model"]
    calibrated = {
        factor: rows["same system, larger, one run first", factor, "model"] for factor in ("time to train", "staging")
    }
    words = [f"{round(row['inside'] * row['n'])} of {row['n']}" for row in calibrated.values()]
    assert f"the interval held the time of {words[0]} larger sizes and the staging of {words[1]}" in " ".join(
        text.split()
    )
    worst = [rows["same system, larger", "step", name]["tail"] for name in ("model", "no change")]
    assert f"{100 * worst[0]:.1f} %, where no change is off by {100 * worst[1]:.1f} %" in text
    assert f"{100 * reference['median']:.1f} % ({100 * reference['tail']:.1f} %), where the goal was 5 %: met" in text


def test_the_page_lists_every_pair_of_the_record(record: dict[str, Any]) -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| larger size | from accelerators |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert rows == [
        f"| {pair['system']} | {pair['from']:,} | {100 * pair['model']:+.1f} % | {100 * pair['no_change']:+.1f} % |"
        for pair in record["pairs"]
    ]


def test_the_page_has_the_sums_over_kernels_that_were_dropped(record: dict[str, Any]) -> None:
    model, *sums = record["kernel_sums"]
    rows = {row["factor"]: row for row in record["rows"]
            if (row["what"], row["predictor"]) == ("one site left out", "model")}  # fmt: skip
    assert (model["median"], model["tail"]) == pytest.approx((rows["step"]["median"], rows["step"]["tail"]), abs=1e-3)
    assert all(each["median"] > model["median"] and each["tail"] > model["tail"] for each in sums)
    text = PAGE.read_text(encoding="utf-8")
    for each in record["kernel_sums"]:
        assert f"| {each['form']} | {100 * each['median']:.1f} % ({100 * each['tail']:.1f} %) |" in text


def test_every_generation_of_software_has_two_sites_as_the_page_says(entries: tuple[ModelEntry, ...]) -> None:
    sites: dict[tuple[str, str], set[str]] = {}
    for entry in entries:
        if entry.tuned:
            sites.setdefault((entry.application, entry.round), set()).add(entry.site)
    assert {key: len(names) for key, names in sites.items() if len(names) < 3} == {("cosmoflow", "v2.0"): 2}
    assert "give one calibration run of it (`--calibrate`)" in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_page_has_the_rows_of_the_machine_that_was_measured() -> None:
    text, rows = PAGE.read_text(encoding="utf-8"), json.loads(RECORD.read_text(encoding="utf-8"))["results"]["here"]
    assert {row["what"].partition(",")[0] for row in rows} == {
        "cosmoflow", "deepcam", "staging to memory", "staging to disk",
    }  # fmt: skip
    for row in rows:
        assert len(row["taken_s"]) >= 5
        assert row["error"] == pytest.approx(row["predicted_s"] / statistics.median(row["taken_s"]) - 1)
        verdict = "met" if abs(row["error"]) <= row["goal"] else "missed"
        cells = [row["what"], f"{row['predicted_s']:.3g} s", f"{row['median_s']:.3g} s", f"{100 * row['error']:+.1f} %"]
        assert f"| {' | '.join(cells)} | {100 * row['goal']:.0f} %: {verdict} |" in text
