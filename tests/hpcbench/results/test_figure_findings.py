"""What the plots of runs are said to show follows from their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from hpcbench.results.figure_findings import (
    compared_phases_finding,
    compared_quality_finding,
    loss_finding,
    noise_scale_finding,
    phases_finding,
    quality_finding,
    throughput_finding,
    trust_ratios_finding,
)
from hpcbench.results.records import Run, read_run
from hpcbench.results.report import write_report


def test_a_run_reaches_its_target_or_says_how_near_it_came(build_run: Any) -> None:
    assert (
        quality_finding(read_run(build_run("a", epochs_to_target=7))) == "The target of 0.3 is reached after 7 epochs"
    )
    missed = read_run(build_run("b", status="target_not_reached", best=0.3456))
    assert quality_finding(missed) == "The target of 0.3 is not reached; the best is 0.3456"
    without = read_run(build_run("c", target=None, metrics={"mae": 0.25}))
    assert quality_finding(without) == "It ends at 0.25"


@pytest.mark.parametrize(
    ("smoothed", "said"),
    [
        ((0.5, 0.9, 0.25), "The smoothed loss falls from 0.500 to 0.250"),
        ((0.25, 0.5), "The smoothed loss rises from 0.250 to 0.500"),
        ((0.5, 0.1, 0.50001), "The smoothed loss ends where it began, at 0.500"),
        ((0.5, float("nan")), "The loss does not stay finite"),
    ],
)
def test_the_loss_falls_or_rises(smoothed: tuple[float, ...], said: str) -> None:
    assert loss_finding(smoothed) == said


def test_the_longest_phase_has_its_share() -> None:
    assert phases_finding({"compute": 20.0, "input_wait": 60.0}, 100.0) == "Input wait takes 60 % of the wall time"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noise_scale": 40.0}, "The noise scale of the run is 5.00 times its batch of 8"),
        ({"noise_scale": 2.0}, "The batch of 8 is 4.00 times the noise scale of the run"),
        (
            {"noise_scale": 20.0, "noise_scale_low": 5.0},
            "The batch of 8 lies within the 95 % interval of the noise scale",
        ),
        (
            {"noise_scale": 2.0, "noise_scale_low": 1.0, "noise_scale_high": 3.0},
            "The batch of 8 is 4.00 times the noise scale of the run",
        ),
        ({}, ""),
    ],
)
def test_the_batch_is_beside_the_noise_scale_by_its_interval(
    changes: dict[str, float], said: str, build_run: Any
) -> None:
    assert noise_scale_finding(read_run(build_run(**changes))) == said


def test_rates_and_ratios_are_those_of_the_run(build_run: Any) -> None:
    assert throughput_finding(read_run(build_run())) == "The median is 194 samples/s"
    assert throughput_finding(read_run(build_run("none", samples_per_s=None))) == ""
    said = "At the last recorded step the ratios reach from 0.0100 to 0.500 over 3 layers"
    assert trust_ratios_finding([0.5, 0.01, 0.3]) == said


def named(build_run: Any, **changes: dict[str, Any]) -> dict[str, Run]:
    """Runs by name."""
    return {name: read_run(build_run(name, **values)) for name, values in changes.items()}


def test_of_several_runs_the_fewest_epochs_are_named(build_run: Any) -> None:
    lost = {"status": "target_not_reached"}
    other, small = {"epochs": 6, "peak_lr": 0.1}, {"train_samples": 64}
    runs = named(
        build_run, a={"epochs": 4}, b=other, c=lost, d=lost, e={"epochs": 4}, f={"target": 0.2}, g=small,
        h={"epochs": 6, "seed": 1},
    )  # fmt: skip
    pairs = [
        ("ab", "Of these runs a needs the fewest epochs to the target, 4"),
        ("abc", "Of these runs a needs the fewest epochs to the target, 4; 2 of 3 runs reach it"),
        ("bc", "Of these runs b needs the fewest epochs to the target, 6; 1 of 2 runs reaches it"),
        ("aeb", "Of these runs 2 need the fewest epochs to the target, 4"),
        ("aeh", "Same settings, other seeds: 4 to 6 epochs to the target"),
        ("ahc", "Same settings, other seeds: 4 to 6 epochs to the target; 2 of 3 runs reach it"),
        ("ae", "Same settings and seed: 4 epochs to the target"),
        ("ag", "Epochs to the target are not compared, since the runs differ in training samples (64 and 816)"),
        ("cd", "No run reaches the target of 0.3"),
        ("a", "a reaches the target after 4 epochs"),
        ("c", "No run reaches the target of 0.3"),
        ("abf", "3 of 3 runs reach their targets, which differ"),
    ]
    for names, said in pairs:
        assert compared_quality_finding({name: runs[name] for name in names}) == said
    assert compared_quality_finding(named(build_run, n={"target": None})) == ""


def test_the_longest_phase_of_most_runs_is_named() -> None:
    one, other = {"compute": 60.0, "staging": 40.0}, {"compute": 20.0, "staging": 80.0}
    assert compared_phases_finding({"a": one, "b": one}) == "Compute takes 60 % of the time"
    assert compared_phases_finding({"a": one, "b": {"compute": 90.0, "staging": 10.0}}) == (
        "Compute takes 60 % to 90 % of the time"
    )
    assert compared_phases_finding({"a": one, "b": other, "c": other}) == "Staging is the longest phase of 2 of 3 runs"


def test_baselines_are_spoken_of_where_there_are_some(build_run: Any, undrawn: None) -> None:
    """A model that is wrapped has none, and a run may leave them out."""
    for name, changes, spoken in (("with", {}, True), ("without", {"baselines": {}}, False)):
        (page,) = write_report([build_run(name, **changes)])
        text = page.read_text(encoding="utf-8")
        assert ("Dashed: what the baselines score." in text) is spoken
        assert ("<h3>The last evaluation, beside the baselines</h3>" in text) is spoken
        assert ("<h3>The last evaluation</h3>" in text) is not spoken


def test_the_title_of_a_comparison_is_its_finding(build_run: Any, undrawn: None) -> None:
    """And its figures have theirs as headings; on the page of a run the headings are titles."""
    runs = [build_run("a", time_to_solution_s=30.0), build_run("b", time_to_solution_s=60.0, epochs=12, peak_lr=0.1)]
    pages = write_report(runs)
    text = pages[-1].read_text(encoding="utf-8")
    finding = "cosmoflow: a reaches the target 2.00 times as fast as b, in these runs"
    assert f"<title>{finding}</title>" in text
    assert f"<h1>{finding}</h1>" in text
    assert '<p class="about"><b>One run each does not tell settings from seeds.</b></p>' in text
    assert "<h3>Of these runs a needs the fewest epochs to the target, 9</h3>" in text
    assert "how long that takes. One run each does not tell settings from seeds." in text
    assert 'aria-label="Validation MAE: Of these runs a needs the fewest epochs to the target, 9"' in text
    alone = pages[0].read_text(encoding="utf-8")
    assert "<h3>Validation MAE</h3>" in alone
    assert 'aria-label="Validation MAE: The target of 0.3 is reached after 9 epochs"' in alone
