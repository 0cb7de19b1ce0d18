"""How far predictions are off: for published results that the model has not seen, and for steps and staging here.

``python benchmarks/prediction.py`` predicts the tuned A100 entries of MLPerf HPC v1.0 and v2.0 with one site left out,
larger sizes of a system from its smallest, and v2.0 from v1.0, beside one-line rules. It prints the table and writes
``benchmarks/results/prediction.json``; this is arithmetic and takes seconds. A goal that is not met stays in the table.
``--here`` also predicts steps and staging of this machine from a characterisation and a probe, and then measures them.
Without it, earlier measurements stay in the record, with their own commit, date and machine (``here_measured``).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from _common import RESULTS, write_results
from _here import BASE, staging_here, steps_here
from _kernel_sum import kernel_sums
from _tried import tried

from hpcbench.mlperf.published import published_runs
from hpcbench.prediction.entries import model_entries
from hpcbench.prediction.held_out import Held, Row, predicted, truth
from hpcbench.prediction.held_out_table import Judgement, Pair, judge
from hpcbench.prediction.platforms import shipped_machines
from hpcbench.results.tables import table

RECORD = RESULTS / "prediction.json"


def percent(value: float | None) -> str:
    """Format a share in percent, or a dash."""
    return "-" if value is None else f"{100 * value:.1f} %"


def line(row: Row) -> list[str]:
    """The cells of a row."""
    verdict = "" if row.met is None else "met" if row.met else "missed"
    return [row.what, row.factor, row.predictor, str(row.n), percent(row.median), percent(row.tail),
            percent(row.inside), percent(row.width), row.goal, verdict]  # fmt: skip


def held_line(held: Held) -> list[str]:
    """The cells of a held-out entry."""
    predictions, values = predicted(held.forecast), truth(held.entry)
    errors = [f"{100 * (predictions[name].central / values[name] - 1):+.0f}" for name in predictions]
    return [
        held.entry.words,
        *errors,
        held.forecast.training.epochs.basis,
        "" if predictions["time to train"].holds(held.entry.time_s) else "outside",
    ]


def pair_line(pair: Pair) -> list[str]:
    """The cells of a pair of sizes."""
    return [
        pair.large.words,
        f"{pair.small.accelerators:,}",
        f"{100 * pair.model:+.1f}",
        f"{100 * pair.no_change:+.1f}",
    ]


def show(judgement: Judgement) -> None:
    """Print the tables."""
    headers = ["what", "factor", "predictor", "n", "median", "90 %", "inside", "width", "goal", ""]
    print(table(headers, [line(row) for row in judgement.rows], right=headers[3:8], width=150))
    print("\n90 %: the 90th percentile of errors; for larger sizes and next rounds the largest. inside: share of cases")
    print("within the 80 % interval; width: median of the interval over the prediction.\n")
    headers = ["one site left out: errors in %", "time", "epoch", "epochs", "staging", "step", "epochs from", ""]
    print(table(headers, [held_line(case) for case in judgement.held], right=headers[1:6], width=130))
    headers = ["same system, larger: errors of the step in %", "from", "model", "no change"]
    print("\n" + table(headers, [pair_line(pair) for pair in judgement.pairs], right=headers[1:], width=130))
    print(f"\nNo better than a rule of one line: {', '.join(judgement.experimental) or 'nothing'}")
    print(f"Its largest errors exceed those of such a rule: {', '.join(judgement.worse_at_worst) or 'nowhere'}")


def published() -> dict[str, object]:
    """Judge by published results, print the tables, and return what is written to the result file."""
    entries = model_entries(published_runs(), shipped_machines())
    judgement, sums, dropped = judge(entries), kernel_sums(entries), tried(entries)
    show(judgement)
    headers = ["device time as", "n", "median", "90 %"]
    cells = [
        [str(one["form"]), str(one["n"]), *(f"{100 * one[key]:.1f} %" for key in ("median", "tail"))] for one in sums
    ]
    print("\nStep, one site left out:\n" + table(headers, cells, right=headers[1:]))
    headers = ["factor", "form", "n", "median", "90 %"]
    cells = [[form["factor"], form["form"], str(form["n"]), percent(form["median"]), percent(form["tail"])]
             for form in dropped]  # fmt: skip
    print("\nForms that were tried, one site left out:\n" + table(headers, cells, right=headers[2:]))
    return {
        "rows": [asdict(row) for row in judgement.rows],
        "held": [held_object(held) for held in judgement.held],
        "pairs": [pair_object(pair) for pair in judgement.pairs],
        "experimental": judgement.experimental,
        "kernel_sums": sums,
        "tried": dropped,
    }


def held_object(held: Held) -> dict[str, object]:
    """A held-out entry: what was predicted, and what was true."""
    factors = {
        name: {
            "predicted": prediction.central,
            "low": prediction.low,
            "high": prediction.high,
            "true": truth(held.entry)[name],
        }
        for name, prediction in predicted(held.forecast).items()
    }
    basis = held.forecast.training.epochs.basis
    return {"entry": held.entry.words, "throughput": held.entry.throughput, "epochs_from": basis, **factors}


def pair_object(pair: Pair) -> dict[str, object]:
    """A pair of sizes, with the errors of the larger one's step."""
    small = pair.small.accelerators
    return {"system": pair.large.words, "from": small, "model": pair.model, "no_change": pair.no_change}


def here(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Predict this machine, measure it, print both, and return what is written to the result file."""
    with tempfile.TemporaryDirectory() as folder:
        rows = steps_here(options.only, options.preset, options.repeats, options.seconds, Path(folder))
    rows += staging_here(
        options.memory, options.disk, options.repeats, options.files, options.file_bytes, options.probe_s
    )
    cells = [[row["what"], f"{row['predicted_s']:.4g}", f"{row['median_s']:.4g}", f"{100 * row['error']:+.1f}",
              f"{100 * row['goal']:.0f}", "met" if row["met"] else "missed"] for row in rows]  # fmt: skip
    headers = ["here", "predicted s", "took s", "error %", "goal %", ""]
    print("\n" + table(headers, cells, right=headers[1:5]))
    return rows


def measured_before(record: dict[str, Any]) -> dict[str, Any]:
    """What an earlier record has measured, with the command, commit, date and machine of that measurement."""
    old = record["results"]
    if "here" not in old:
        return {}
    source = {name: record[name] for name in ("command", "commit", "date", "machine")}
    return {"here": old["here"], "here_measured": old.get("here_measured", source)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--here", action="store_true", help="also measure this machine; it must be idle for minutes")
    parser.add_argument("--only", nargs="+", choices=list(BASE), default=list(BASE), help="applications measured here")
    parser.add_argument("--preset", default="laptop", help="preset of the steps that are measured here")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds for the steps of one measurement")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--file-bytes", type=int, default=2 << 20)
    parser.add_argument("--probe-s", type=float, default=5.0, help="seconds for each probe of a place to stage to")
    options = parser.parse_args()
    results: dict[str, Any] = {"published": published()}
    if options.here:
        results["here"] = here(options)
    elif RECORD.exists():
        results |= measured_before(json.loads(RECORD.read_text()))
    write_results("prediction", results)


if __name__ == "__main__":
    main()
