"""The table of the emulated interconnect in docs/prediction.md is that of its record."""

from __future__ import annotations

import json

from tests.documented_commands import ROOT

TITLES = {"cosmoflow": "CosmoFlow", "deepcam": "DeepCAM"}


def test_the_page_has_the_numbers_of_the_record() -> None:
    record = json.loads((ROOT / "benchmarks/results/interconnect.json").read_text(encoding="utf-8"))["results"]
    page = (ROOT / "docs/prediction.md").read_text(encoding="utf-8")
    network = record["emulated_network"]
    assert f"takes {1e3 * network['latency_s']:.0f} ms for a message and carries" in page
    assert f"{network['bytes_per_s'] / 1e6:.0f} MB/s" in page
    for row in record["rows"]:
        base, predicted, measured, least, most = (
            1e3 * row[name] for name in ("base_s", "predicted_s", "measured_s", "least_s", "most_s")
        )
        cells = [TITLES[row["application"]], row["change"], row["overlap"], row["messages"], f"{base:.0f}"]
        cells += [f"{predicted:+.0f}", f"{measured:+.0f} ({least:+.0f} to {most:+.0f})"]
        assert f"| {' | '.join(map(str, cells))} |" in page
    worst = max(abs(row["step_error"]) for row in record["rows"])
    assert f"within {100 * worst:.1f} % of the measured one" in page
    assert worst < 0.05
