"""Faults of a log, also those that the official checker lets pass or fails on itself, are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance

from hpcbench.mlperf.compliance import check_log
from staging.errors import DataError, InputError
from tests.hpcbench.measure.driven_logs import DEEPCAM, TO_TARGET, drive, lines_of


def edited(tmp_path: Path, edit) -> Path:
    """A log that passes, after ``edit`` of its list of entries."""
    path = drive(tmp_path / "mllog.txt", "cosmoflow", scores=TO_TARGET["cosmoflow"])
    entries = edit(lines_of(path))
    path.write_text("".join(f":::MLLOG {json.dumps(entry)}\n" for entry in entries))
    return path


def moved(entries: list[dict], key: str, place: int) -> list[dict]:
    entry = next(e for e in entries if e["key"] == key)
    rest = [e for e in entries if e is not entry]
    at = place if place >= 0 else len(rest) + 1 + place
    return [*rest[:at], entry, *rest[at:]]


def changed(entries: list[dict], key: str, **fields) -> list[dict]:
    return [entry | fields if entry["key"] == key else entry for entry in entries]


def at(entries: list[dict], key: str) -> int:
    return next(place for place, entry in enumerate(entries) if entry["key"] == key)


def renumbered(entries: list[dict]) -> list[dict]:
    return [
        entry | {"metadata": entry["metadata"] | {"epoch_num": 0}} if "epoch" in entry["key"] else entry
        for entry in entries
    ]


BEYOND = {
    "aborted": (
        lambda e: changed(e, "run_stop", metadata={"status": "aborted", "reason": "SIGTERM"}),
        "run_stop has status 'aborted' (SIGTERM)",
    ),
    "cache_clear late": (lambda e: moved(e, "cache_clear", -1), "cache_clear comes after run_start"),
    "epoch before the clock": (lambda e: moved(e, "epoch_start", at(e, "run_start")), "comes before run_start"),
    "run_stop before epochs": (lambda e: moved(e, "run_stop", at(e, "epoch_start")), "before the first epoch"),
    "epochs not from 1": (renumbered, "epoch_start number 1 has epoch_num 0"),
    "time goes back": (
        lambda e: changed(e, "run_stop", time_ms=e[0]["time_ms"] - 5000),
        "time goes back by",
    ),
    "NaN": (lambda e: changed(e, "opt_learning_rate_decay_factor", value=[float("nan")]), "has the value [nan]"),
    "samples": (lambda e: changed(e, "train_samples", value=1000), "the published set has 524288"),
    "decay factor": (lambda e: changed(e, "opt_learning_rate_decay_factor", value=5), "is not between 0 and 1"),
    "no seed": (lambda e: [x for x in e if x["key"] != "seed"], "no seed is logged"),
    "seed as text": (lambda e: changed(e, "seed", value="7"), "seed '7' is not an integer"),
    "seed without place": (lambda e: changed(e, "seed", metadata={}), "seed lacks file and lineno"),
    "metric after the end": (
        lambda e: moved(e, "run_stop", at(e, "eval_error")),
        "eval_error in line",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BEYOND)
def test_faults_that_the_official_checker_lets_pass_are_found(tmp_path, fault):
    edit, message = BEYOND[fault]
    result = check_log(edited(tmp_path, edit))
    assert result.official == "pass"
    assert any(message in found for found in result.beyond_messages), result.beyond_messages
    assert result.ok, "the verdict is the official one"


def test_negative_weight_decay_is_beyond_the_official_deepcam_rules(tmp_path):
    path = drive(tmp_path / "mllog.txt", "deepcam", scores=TO_TARGET["deepcam"])
    path.write_text(path.read_text().replace('"opt_weight_decay", "value": 0.01', '"opt_weight_decay", "value": -0.01'))
    result = check_log(path)
    assert (result.official, result.beyond_messages) == ("pass", ["opt_weight_decay -0.01 is negative"])


def test_training_on_after_the_target_for_power_samples_is_a_note(tmp_path):
    """As NVIDIA's v3.0 CosmoFlow logs do, which the rules on power allow."""

    def edit(entries):
        stop = next(e for e in entries if e["key"] == "run_stop")
        late = next(e for e in entries if e["key"] == "eval_error") | {"time_ms": stop["time_ms"]}
        return [*entries, late]

    result = check_log(edited(tmp_path, edit))
    assert result.ok
    assert "allowed, since the target was reached before" in result.notes[0]


def test_a_crash_of_the_official_checker_is_a_message_and_does_not_spoil_the_next_log(tmp_path):
    bad = edited(tmp_path, lambda e: changed(e, "eval_error", value="low"))
    assert "the checker itself failed on this log (TypeError" in check_log(bad).official_messages[-1]
    assert mlp_compliance.enqueued_configs == []
    assert check_log(DEEPCAM).ok


def test_a_division_that_would_crash_the_checker_is_a_fault(tmp_path):
    path = edited(tmp_path, lambda e: changed(e, "submission_division", value="Closed"))
    assert check_log(path).official_messages == ["submission_division is 'Closed', not open or closed"]
    assert check_log(path, division="closed").ok


def test_a_scheduler_name_cannot_lead_the_checker_to_another_file(tmp_path):
    path = drive(tmp_path / "mllog.txt", "deepcam", scores=TO_TARGET["deepcam"])
    path.write_text(path.read_text().replace('"cosine_annealing"', '"/../../elsewhere"'))
    assert check_log(path).official_messages == ["scheduler_type is not a plain name"]


def test_a_damaged_line_is_a_fault(tmp_path):
    path = drive(tmp_path / "mllog.txt", "cosmoflow", scores=TO_TARGET["cosmoflow"])
    path.write_text(path.read_text() + ":::MLLOG {broken\n")
    result = check_log(path)
    assert not result.ok
    assert "is not a log line" in result.official_messages[0]


def test_a_line_without_a_value_is_a_fault(tmp_path):
    path = tmp_path / "mllog.txt"
    path.write_text(':::MLLOG {"time_ms": 1, "key": "run_start", "metadata": {}}\n')
    assert check_log(path).official_messages == ["line 1 is not a log line (KeyError: 'value')"]


def test_a_log_without_lines_is_a_fault(tmp_path):
    (tmp_path / "mllog.txt").write_text("nothing\n")
    assert check_log(tmp_path / "mllog.txt").official_messages == ["holds no :::MLLOG line"]


def test_unknown_ruleset_division_and_file_say_so(tmp_path):
    with pytest.raises(InputError, match=r"ruleset 0\.7\.0 is not one of 1\.0\.0, 2\.0\.0, 3\.0\.0"):
        check_log(DEEPCAM, ruleset="0.7.0")
    with pytest.raises(InputError, match="division 'shut' is neither open nor closed"):
        check_log(DEEPCAM, division="shut")
    with pytest.raises(DataError, match="cannot be read"):
        check_log(tmp_path / "none.txt")
