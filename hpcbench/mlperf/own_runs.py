"""Records of your own runs: the official log of the run folder, and what its summary knows better."""

from __future__ import annotations

import json
import math

from hpcbench.config.read_yaml import read_yaml
from hpcbench.mlperf.find_logs import LogLocation
from hpcbench.mlperf.read_log import read_log, set_rates, text
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.results.units import counted
from staging.errors import DataError
from staging.formats.regular import read_text
from staging.one_line import one_line


def read_own_run(location: LogLocation) -> RunRecord:
    """Read the run of a run folder. A run that has not ended has only what its log has. Raises ``DataError``."""
    record, folder = read_log(location), RunFolder(location.path.parent)
    staged_beside = bool(record.staging_s) and stages_beside(folder)
    if staged_beside:
        record = read_log(location, staged_beside=True)
    record.path = str(folder.path)
    if not folder.summary.exists():
        if record.status == "success":
            record.notes.append("there is no summary.json yet; all columns are from the log")
        else:
            record.reason = record.reason or "the run has not ended"
        return record
    summary = folder.read_summary()
    if summary.resumed:
        use_epochs(record, folder)
    elif staged_beside:
        use_exposed(record, folder)
    use_summary(record, summary)
    return record


def stages_beside(folder: RunFolder) -> bool:
    """Whether the run stages while it trains. Raises ``InputError`` for a configuration that cannot be read."""
    staging = read_yaml(folder.config).get("staging")
    return isinstance(staging, dict) and bool(staging.get("overlap"))


def use_exposed(record: RunRecord, folder: RunFolder) -> None:
    """Count what the first epoch waited for files as staging; the rest of a staging beside it cost no time.

    The log does not tell the two apart, ``exposed_s`` in ``staging.json`` does. Raises ``DataError``.
    """
    if not folder.staging.exists() or not record.epochs_s or record.staging_s is None:
        return
    try:
        exposed_s = float(json.loads(read_text(folder.staging))["exposed_s"])
    except (KeyError, RecursionError, TypeError, ValueError):
        raise DataError(folder.staging, "is not the report of a staging beside training", "leave the run out") from None
    waited_s = min(max(0.0, exposed_s - record.staging_s), record.epochs_s[0])
    record.staging_s += waited_s
    record.epochs_s[0] -= waited_s
    set_rates(record)


def use_epochs(record: RunRecord, folder: RunFolder) -> None:
    """Take the seconds of training and evaluation from ``epochs.csv``, and the rates with them.

    The log of a run that was resumed within an epoch has either the time in the queue in that epoch, or only its
    training since. The table has the training of all attempts; where they staged beside it, with what it waited for
    files. Raises ``DataError``.
    """
    if not folder.epochs.exists():
        return
    try:
        table = folder.read_epochs()[["epoch", "train_s", "eval_s"]].astype("float64").dropna()
    except (KeyError, TypeError, ValueError):
        raise DataError(folder.epochs, "is not a table of epochs", "resume the run, or leave it out") from None
    epochs = table["train_s"].groupby(table["epoch"].map(math.ceil)).sum()
    record.epochs_s, record.evaluations_s = epochs.tolist(), table["eval_s"].tolist()
    if record.time_to_train_s is not None:
        known = (record.staging_s or 0.0) + sum(record.epochs_s) + sum(record.evaluations_s)
        record.rest_s = record.time_to_train_s - known
    set_rates(record)


def use_summary(record: RunRecord, summary: Summary) -> None:
    """Fill in what the official log does not say."""
    record.accelerator = text(summary.device)
    record.precision = text(summary.precision)
    record.system = record.system or record.accelerator
    if summary.warm_samples_per_s:  # epochs in the log may be cut short, by a target, a limit of steps or a resume
        record.samples_per_s = summary.warm_samples_per_s
        if record.accelerators:
            record.samples_per_s_per_accelerator = record.samples_per_s / record.accelerators
    if summary.simulated_ranks is not None:
        ranks = counted(summary.simulated_ranks, "rank was", "ranks were")
        record.notes.append(f"{ranks} simulated by each: times are not theirs")
    if summary.simulated_nodes is not None:
        nodes = counted(summary.simulated_nodes, "node was", "nodes were")
        record.notes.append(f"its {nodes} simulated on one machine")
    if summary.target is None:
        record.epochs, record.reason = None, "the run had no target"
    elif summary.status != "success":
        record.reason = one_line(summary.reason) or record.reason
    elif summary.epochs_to_target is not None:
        record.epochs = summary.epochs_to_target
    if summary.resumed:
        times = "once" if summary.resumed == 1 else f"{summary.resumed} times"
        record.notes.append(f"resumed {times}; the time to train counts the gaps")
