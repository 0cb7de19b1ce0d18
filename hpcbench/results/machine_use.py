"""How well a run used its machine: model FLOP/s over the measured peak, busy time, and the speed of checkpoints.

A figure that was not measured is absent, and a sentence says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from hpcbench.results import units
from hpcbench.results.rank_phases import rank_name
from hpcbench.results.records import Run
from hpcbench.results.summary import Summary

Row = Mapping[str, Any]
Pairs = list[tuple[str, str]]

NOT_PROBED = "not measured; --measure.probe true measures it before the clock starts"
NOT_COUNTED = "not known: the operations of a sample are counted at the end, which the run did not reach"
COMPUTES_IN = {"32-true": "float32", "64-true": "float64", "bf16-mixed": "bfloat16", "bf16-true": "bfloat16",
               "16-mixed": "float16", "16-true": "float16"}  # fmt: skip
"""The type of matrix products, by the name of the precision."""


def model_rate(s: Summary) -> float | None:
    """FLOP/s that the model needed, over the steps after the warm-up where there were any."""
    rate = s.samples_per_s if s.warm_samples_per_s is None else s.warm_samples_per_s
    return rate * s.flops_training_per_sample if rate is not None and s.flops_training_per_sample else None


def peak_flops(rows: Sequence[Row]) -> float | None:
    """FLOP/s of matrix products on all ranks together; unset where one was not measured."""
    rates = [row.get("gemm_flops") for row in rows]
    known = [float(value) for value in rates if value is not None]
    return sum(known) if known and len(known) == len(rates) else None


def flops_utilization(s: Summary, rows: Sequence[Row]) -> float | None:
    """Model FLOP/s over the measured peak; unset where one of them is not known."""
    rate, peak = model_rate(s), peak_flops(rows)
    return rate / peak if rate is not None and peak else None


def processors_busy(row: Row) -> float | None:
    """Processor time of a rank over that of its compute threads, in the steps after the warm-up."""
    if row.get("cpu_s") is None or not row.get("wall_s"):
        return None
    return float(row["cpu_s"]) / (float(row["wall_s"]) * float(row["threads"]))


def device_busy(row: Row) -> float | None:
    """Share of the time on the clock in which the accelerator of a rank was busy, according to its driver."""
    if row.get("device_busy_s") is None or not row.get("device_sampled_s"):
        return None
    return float(row["device_busy_s"]) / float(row["device_sampled_s"])


def use_pairs(run: Run) -> Pairs:
    """The lines of the page: model FLOP/s, peak, utilization, busy time."""
    s, rows = run.summary, run.rank_rows()
    pairs = [
        ("model FLOP/s", _rate_words(s)),
        ("peak FLOP/s", _peak_words(s, rows)),
        ("FLOP/s utilization", _utilization_words(s, rows)),
        ("processors busy", _over_ranks(rows, processors_busy, "no step came after the warm-up")),
    ]
    if s.device_type not in ("", "cpu"):
        pairs.append(("accelerator busy", _over_ranks(rows, device_busy, no_counter(rows))))
    return pairs


def _rate_words(s: Summary) -> str:
    rate = model_rate(s)
    if rate is None:
        return NOT_COUNTED if not s.flops_training_per_sample else "not known: no throughput was measured"
    warm = s.warm_samples_per_s is not None
    samples = units.significant(s.warm_samples_per_s if warm else s.samples_per_s)
    when = "after the warm-up" if warm else "in the median epoch"
    sample = units.prefixed(s.flops_training_per_sample, "FLOP")
    return f"{units.prefixed(rate, 'FLOP/s')}: {samples} samples/s {when} x {sample}/sample"


def _peak_words(s: Summary, rows: Sequence[Row]) -> str:
    peak = peak_flops(rows)
    if peak is None:
        return NOT_PROBED
    dtype = rows[0].get("gemm_dtype") or ""
    ranks = f", the sum over {len(rows):,} ranks" if len(rows) > 1 else ""
    mean = ", the mean over its attempts" if s.resumed else ""
    return f"{units.prefixed(peak, 'FLOP/s')} in {dtype} matrix products".replace("in  ", "in ") + ranks + mean


def _utilization_words(s: Summary, rows: Sequence[Row]) -> str:
    share = flops_utilization(s, rows)
    if share is None:
        return "not known, as one of the two above is not"
    measured, trained = rows[0].get("gemm_dtype"), COMPUTES_IN.get(s.precision)
    if measured is None or trained is None or measured == trained:
        return units.percent(share)
    return f"{units.percent(share)}; the peak is of {measured}, and the run trained in {trained} ({s.precision})"


def _over_ranks(rows: Sequence[Row], figure: Any, absent: str) -> str:
    """The median over ranks, and the lowest with its name."""
    shares = [figure(row) for row in rows]
    if not shares or None in shares:
        return f"not measured: {absent}"
    lowest = min(range(len(rows)), key=shares.__getitem__)
    of = f" of {rows[0]['threads']:,.0f} compute thread{'' if rows[0]['threads'] == 1 else 's'}"
    text = units.percent(median(shares)) + (of if figure is processors_busy else " of the time on the clock")
    if len(rows) == 1:
        return f"{text}, in the steps after the warm-up" if figure is processors_busy else text
    return f"{text}, the median over ranks; least {units.percent(shares[lowest])}, {rank_name(rows[lowest])}"


def no_counter(rows: Sequence[Row]) -> str:
    """Why the busy time of the accelerators is not known."""
    noted = next((str(row["device_note"]) for row in rows if row.get("device_note")), "")
    return noted or "no counter of the accelerator was read"


def checkpoint_pairs(s: Summary) -> Pairs:
    """What checkpoints took, and the bandwidths of writing and reading them."""
    if not s.checkpoints:
        return [("checkpoints", "none")]
    count = f"{s.checkpoints:,} written"
    held = f"held the training for {units.duration(s.checkpoint_stall_s / s.checkpoints)}"
    if s.checkpoints > 1:
        held += f" on average, at most {units.duration(s.checkpoint_longest_stall_s)}"
    pairs = [("checkpoints", f"{count}; each {held}" if s.checkpoints > 1 else f"{count}; it {held}")]
    if s.checkpoint_write_s:
        pairs.append(("written with", _bandwidth(s.checkpoint_write_bytes, s.checkpoint_write_s)))
    if s.checkpoint_read_s:
        pairs.append(("read with", _bandwidth(s.checkpoint_read_bytes, s.checkpoint_read_s)))
    return pairs


def _bandwidth(size: float, seconds: float) -> str:
    return f"{units.size(size / seconds)}/s: {units.size(size)} in {units.duration(seconds)}"
