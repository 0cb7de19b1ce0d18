"""Records of your own runs: the official log of the run folder, and what its summary knows better."""

from __future__ import annotations

from hpcbench.mlperf.find_logs import LogPlace
from hpcbench.mlperf.read_log import read_log
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary


def read_own_run(place: LogPlace) -> RunRecord:
    """Read the run of a run folder. A run that has not ended has only what its log has. Raises ``DataError``."""
    record = read_log(place)
    folder = RunFolder(place.path.parent)
    record.path = str(folder.path)
    if not folder.summary.exists():
        record.reason = record.reason or "the run has not ended"
        return record
    use_summary(record, folder.read_summary())
    return record


def use_summary(record: RunRecord, summary: Summary) -> None:
    """Fill in what the official log does not say."""
    record.system = record.system or summary.device
    record.accelerator = summary.device
    if summary.warm_samples_per_s:  # epochs in the log may be cut short, by a target, a limit of steps or a resume
        record.samples_per_s = summary.warm_samples_per_s
        if record.accelerators:
            record.samples_per_s_per_accelerator = record.samples_per_s / record.accelerators
    if summary.simulated_ranks is not None:
        record.notes.append(f"{summary.simulated_ranks} ranks were simulated by each: times are not theirs")
    if summary.simulated_nodes is not None:
        record.notes.append(f"its {summary.simulated_nodes} nodes were simulated on one machine")
    if summary.target is None:
        record.epochs, record.reason = None, "the run had no target"
    elif summary.status != "success":
        record.reason = summary.reason or record.reason
    elif summary.epochs_to_target is not None:
        record.epochs = summary.epochs_to_target
    if summary.resumed:
        times = "once" if summary.resumed == 1 else f"{summary.resumed} times"
        record.notes.append(f"resumed {times}; the time to train counts the gaps")
