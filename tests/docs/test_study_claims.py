"""What pages claim of recorded studies is what their tables hold."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from tests.documented_commands import ROOT

STUDIES = ROOT / "docs" / "studies"
CONVERGENCE = STUDIES / "cosmoflow-convergence"


def words(path: str) -> str:
    """A page as one line without its marks of emphasis."""
    return " ".join((ROOT / path).read_text(encoding="utf-8").replace("**", "").split())


CLAIMS = words("docs/studies/README.md").split("## CosmoFlow: epochs against batch size")[1].split("## Superseded")[0]
TABLE = (CONVERGENCE / "table.txt").read_text(encoding="utf-8")


def compared(first: str, second: str, table: str = TABLE) -> tuple[str, str, str]:
    """The ratio with its interval, the p-value and the ratio that would have been found, as the table has them."""
    line = rf"^{first} over {second} +\d+ batches, [\d ]+to \d+ +(\S.*?)  +(<? ?[\d.]+) +([\d.]+) or "
    found = re.findall(line, table, re.MULTILINE)
    assert len(found) == 1, (first, second)
    ratio, p, detectable = found[0]
    return ratio, p, detectable


def test_who_needs_fewer_epochs() -> None:
    for optimizer in ("adamw", "lamb"):
        ratio, p, _ = compared("sgd", optimizer)
        assert f"{ratio} times those of {optimizer} (p {p})" in CLAIMS
        assert ratio.startswith("1.25 ")
    ratio, p, found = compared("adamw", "lamb")
    assert f"the ratio is {ratio}, and {found} would have been found" in CLAIMS
    assert float(p) > 0.05
    largest = max(float(compared("sgd", optimizer)[1]) for optimizer in ("adamw", "lamb"))
    assert f"1.25 times the epochs of adamw and of lamb (p {largest:.1g})" in words("README.md")


def test_how_far_lars_is_off() -> None:
    least = {name: compared("lars", name)[0].removeprefix("at least ") for name in ("adamw", "lamb")}
    of_sgd = 1 / float(compared("sgd", "lars")[0].removeprefix("at most "))
    assert (
        f"at least {of_sgd:.2f} times the epochs of sgd, {least['adamw']} times those of adamw and {least['lamb']} "
        "times those of lamb (p < 0.0001)"
    ) in CLAIMS
    runs = pd.read_csv(CONVERGENCE / "results.csv")
    lars = runs[runs["optimizer"] == "lars"]
    assert set(lars["status"]) == {"missed"}
    search, seeds = (int((lars["role"] == role).sum()) for role in ("search", "seed"))
    assert f"in {search} runs of its search and {seeds} with the chosen rates" in CLAIMS
    assert not re.search(r"lars .*x [\d.]+\*", TABLE), "the best rates are inside the window"


def test_how_epochs_grow() -> None:
    runs = pd.read_csv(CONVERGENCE / "results.csv")
    own = runs[(runs["role"] == "seed") & runs["borrowed_from"].isna()]
    means = own.groupby(["optimizer", "batch"])["epochs_to_target"].mean().unstack()
    growth = {name: f"{means.loc[name, 64] / means.loc[name, 4]:.1f}" for name in ("sgd", "adamw", "lamb")}
    assert "{sgd} times for sgd, {adamw} times for adamw, {lamb} times for lamb".format(**growth) in CLAIMS
    assert f"larc, which bounds each layer's rate, needs {means.loc['larc', 16]:.1f} epochs and nvlamb " in CLAIMS
    assert f"nvlamb {means.loc['nvlamb', 16]:.1f}." in CLAIMS
    assert f"adamw meets the target in {means.loc['adamw', 4]:.1f} epochs at batch 4" in CLAIMS
    for optimizer in ("sgd", "adamw", "lamb"):
        ((b_crit, noise),) = re.findall(rf"^  {optimizer}: .*B_crit (\S+ \([^)]+\)), noise scale ([\d.]+)", TABLE, re.M)
        assert f"{b_crit} for {optimizer}" in CLAIMS
        assert 5 <= round(float(noise)) <= 8
    reached = own[own["batch"] == 128].groupby("optimizer")["epochs_to_target"].count()
    assert reached.to_dict() == {"adamw": 1, "lamb": 1, "lars": 0, "sgd": 0}


def test_what_a_borrowed_rate_costs() -> None:
    costs = {name: compared(f"{name} from 4", name) for name in ("sgd", "adamw", "lamb")}
    sgd, adamw, lamb = (ratio for ratio, _, _ in costs.values())
    assert f"{sgd} times the epochs for sgd, {adamw} for adamw and {lamb} for lamb" in CLAIMS
    detectable = "{}, {} and {}".format(*(found for _, _, found in costs.values()))
    assert f"{detectable} would have been found" in CLAIMS


def test_what_the_study_took() -> None:
    summaries = [json.loads(path.read_text(encoding="utf-8")) for path in CONVERGENCE.glob("runs/*/summary.json")]
    hours = sum(summary["wall_s"] for summary in summaries) / 3600
    assert f"It took {hours:.1f} core-hours" in CLAIMS
    dropped = len(summaries) - len(pd.read_csv(CONVERGENCE / "results.csv"))
    assert f"({dropped} runs, still in `runs`)" in CLAIMS
    (p,) = re.findall(r"fast or slow at all of them [(](p [\d.]+)[)]", " ".join(TABLE.split()))
    assert f"finds nothing ({p})" in CLAIMS


@pytest.mark.parametrize("page", ["docs/studies/README.md", "docs/gains.md"])
def test_what_optimisation_brings(page: str) -> None:
    text, table = words(page), (STUDIES / "cosmoflow-gains" / "table.txt").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^(\w[\w ,]*?)  +\d+ +[\d.,]+ +([\d.]+ +[\d.]+ to [\d.]+)", table, re.M))
    ratio, low, high = map(float, re.findall(r"[\d.]+", rows["bf16"]))
    if page == "docs/gains.md":
        assert f"a step takes {ratio:.2f} of the baseline's time (95 %: {low:.2f} to {high:.2f})" in text
    else:
        assert f"bf16 makes a step {1 / ratio:.2f} times faster (95 %: {1 / high:.2f} to {1 / low:.2f})" in text
        assert f"a reader process for each rank {float(rows['a reader process a rank'].split()[0]):.2f} times" in text
    assert f"compiler makes a step {float(rows['compiled'].split()[0]):.2f} times slower" in text
    assert f"{float(rows['fp16'].split()[0]):.0f} times" in text
    verdicts = re.findall(r"(faster|slower)$", table, re.M)
    assert verdicts == ["faster", "slower", "slower", "slower"]


def test_what_the_study_of_deepcam_shows_so_far() -> None:
    row = words("docs/studies/README.md").split("| [deepcam-convergence](deepcam-convergence) |")[1].split(" |")[0]
    folder = STUDIES / "deepcam-convergence"
    table, runs = (folder / "table.txt").read_text(encoding="utf-8"), pd.read_csv(folder / "results.csv")
    summaries = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("runs/*/summary.json")]
    hours = sum(summary["wall_s"] for summary in summaries) / 3600
    ended = runs[runs["status"].isin(["reached", "missed"])]
    assert f"{len(ended)} of 298 runs, {hours:.1f} core-hours" in row
    seeds = ended[ended["role"] == "seed"]
    own = seeds[seeds["borrowed_from"].isna()]
    complete = ("lars", "adamw", "lamb")
    assert dict(own.groupby("optimizer").size()) == dict.fromkeys(sorted(complete), 18), "3 seeds at 6 batches"
    assert dict(seeds.groupby("optimizer").size()) == dict.fromkeys(sorted(complete), 27), "and 3 borrowed rates"
    pairs = [compared(*pair, table) for pair in (("lars", "adamw"), ("lars", "lamb"), ("adamw", "lamb"))]
    first, *others = (ratio.removesuffix(")").split(" (") for ratio, _, _ in pairs)
    assert f"lars takes {first[0]} of the epochs of adamw (95 %: {first[1]}) and " in row
    assert "{} of those of lamb ({}), and adamw {} of those of lamb ({}); ".format(*others[0], *others[1]) in row
    assert all(float(p) > 0.05 for _, p, _ in pairs)
    detectable = [found for _, _, found in pairs]
    assert f"ratios of {min(detectable)} to {max(detectable)} would have been found" in row
    critical = [re.findall(rf"^  {name}: E_min .*, B_crit (.*?), noise", table, re.MULTILINE)[0] for name in complete]
    assert "B_crit is {} for lars, {} for adamw and {} for lamb".format(*critical) in row
    assert set(own[own["batch"] == 128]["status"]) == {"missed"}
    costs = [compared(f"{name} from 4", name, table) for name in complete]
    assert all(float(p) > 0.05 for _, p, _ in costs)
    cost = [ratio for ratio, _, _ in costs]
    assert f"{cost[0]} of the epochs for lars, {cost[1]} for adamw and {cost[2]} for lamb" in row
    at_edge = re.findall(r"^ +(\d+)  adamw +[\d.]+  x [\d.]+\*", table, re.MULTILINE)
    assert f"at {' and '.join(at_edge)} the best rate of adamw is the largest of its search" in row.lower()
    early = own[(own["batch"] == 4) & (own["epochs_to_target"] < 3)]
    assert set(early["optimizer"]) == {"lars", "adamw"}
    adamw_at_4 = own[(own["batch"] == 4) & (own["optimizer"] == "adamw")]["epochs_to_target"].mean()
    assert f"at batch 4 it meets the target in {adamw_at_4:.1f} epochs" in row
