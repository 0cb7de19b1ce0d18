"""One run, your own or of a published round, as a row: what its official log, or its run folder, says about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FEWEST_ALIKE = 3
"""This many equal evaluations show that two runs trained alike."""
UNREAD = "cannot be read: "
"""Start of the reason of a run whose log cannot be read."""


def source(lines: str, unit: str = "") -> dict[str, str]:
    """The metadata of a column: the lines of the log that it comes from, and its unit."""
    return {"lines": lines, "unit": unit}


@dataclass
class RunRecord:
    """A run. ``None`` is what cannot be known; it is never zero.

    If a log does not give nodes and accelerators, they are those of the system description beside it; the nodes of a
    throughput's instance never are, since a description tells those of all instances.
    """

    path: str = field(default="", metadata=source("the file, or the run folder"))
    origin: str = field(
        default="",
        metadata=source(
            "published: a log in the tree of a round; submission: one in the tree that hpcbench package writes; own: "
            "a run folder; log: a file by itself"
        ),
    )
    round: str | None = field(default=None, metadata=source("the folder above the organization, such as v1.0"))
    organization: str | None = field(default=None, metadata=source("the folder above results, else submission_org"))
    system: str | None = field(default=None, metadata=source("the folder below results, else submission_platform"))
    application: str | None = field(default=None, metadata=source("submission_benchmark"))
    division: str | None = field(default=None, metadata=source("submission_division"))
    category: str | None = field(default=None, metadata=source("submission_status: cloud, onprem, preview or research"))
    mode: str | None = field(
        default=None,
        metadata=source("time to train or throughput, by the folder strong or weak; v0.7 has the first alone"),
    )
    pruned: bool = field(default=False, metadata=source("the folder pruned_results"))
    nodes: int | None = field(
        default=None,
        metadata=source(
            "number_of_nodes of the instance; where a log for time to train has none, that of the system description"
        ),
    )
    accelerators: int | None = field(
        default=None,
        metadata=source(
            "nodes x accelerators_per_node (of the system description where the log has none), a node without any "
            "counted as one"
        ),
    )
    accelerator: str | None = field(
        default=None, metadata=source("accelerator_model_name of the system description; a processor where it has none")
    )
    global_batch_size: int | None = field(default=None, metadata=source("global_batch_size", "samples"))
    local_batch_size: float | None = field(default=None, metadata=source("global_batch_size / accelerators", "samples"))
    train_samples: int | None = field(default=None, metadata=source("train_samples", "samples"))
    validation_samples: int | None = field(default=None, metadata=source("eval_samples", "samples"))
    optimizer: str | None = field(default=None, metadata=source("opt_name"))
    precision: str | None = field(
        default=None, metadata=source("train.precision of own runs, from their summary; official logs do not tell it")
    )
    recipe: dict[str, Any] = field(
        default_factory=dict,
        metadata=source("opt_*, scheduler_*, dropout, batchnorm_group_size, gradient_accumulation_frequency"),
    )
    seed: int | None = field(default=None, metadata=source("seed, where it is a whole number"))
    status: str | None = field(
        default=None, metadata=source("status of run_stop: success or aborted; none where the log ends before it")
    )
    reason: str | None = field(
        default=None,
        metadata=source(
            "why a run is not a success, in words; run_stop may say success although no evaluation before it reaches "
            "the target: the published one, or outside the tree of a round the one that the log names"
        ),
    )
    epochs: float | None = field(
        default=None,
        metadata=source(
            "epoch_num of the last evaluation (see qualities) before a run_stop with success; of OpenFold, which "
            "counts samples there, divided by train_samples"
        ),
    )
    epochs_begun: int | None = field(
        default=None, metadata=source("number of epoch_start before run_stop, or sum of epoch_count of blocks")
    )
    quality: float | None = field(default=None, metadata=source("value of the last evaluation before run_stop"))
    qualities: list[float] = field(
        default_factory=list,
        metadata=source(
            "values before run_stop of eval_error (cosmoflow, oc20) or eval_accuracy (deepcam, openfold); of another "
            "application, or where a log lacks that key, of the one that it has first"
        ),
    )
    start_unix_s: float | None = field(default=None, metadata=source("run_start", "s"))
    time_to_train_s: float | None = field(default=None, metadata=source("run_start to run_stop", "s"))
    init_s: float | None = field(default=None, metadata=source("init_start to init_stop", "s"))
    staging_s: float | None = field(
        default=None,
        metadata=source(
            "staging_start to staging_stop, where it begins within the clock; of own runs that stage beside training, "
            "what that waited",
            "s",
        ),
    )
    staging_before_s: float | None = field(
        default=None, metadata=source("the same, where it begins before the clock", "s")
    )
    epochs_s: list[float] = field(
        default_factory=list,
        metadata=source(
            "epoch_start to epoch_stop of each epoch, or block_start to block_stop / epoch_count, without evaluation "
            "and staging; of resumed own runs, epochs.csv",
            "s",
        ),
    )
    evaluations_s: list[float] = field(
        default_factory=list,
        metadata=source("each eval_start to eval_stop; of resumed own runs, epochs.csv", "s"),
    )
    rest_s: float | None = field(
        default=None, metadata=source("time_to_train_s without staging_s, epochs_s and evaluations_s", "s")
    )
    samples_per_s: float | None = field(
        default=None,
        metadata=source(
            "train_samples / median of epochs_s after the first; of own runs, after the warm-up", "samples/s"
        ),
    )
    samples_per_s_per_accelerator: float | None = field(
        default=None, metadata=source("samples_per_s / accelerators", "samples/s")
    )
    notes: list[str] = field(default_factory=list, metadata=source("where the log contradicts itself or its folder"))

    @property
    def converged(self) -> bool:
        """Whether ``status`` says success, and no evaluation or summary says otherwise."""
        return self.status == "success" and self.reason is None
