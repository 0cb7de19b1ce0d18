"""Whether a run reached the quality that it had to, by the evaluations before its clock stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcbench.measure.log_rules import PUBLISHED_TARGETS, named_target
from hpcbench.mlperf.find_logs import IN_TREES

if TYPE_CHECKING:
    from hpcbench.results.mllog_reader import Event

QUALITIES = {"cosmoflow": "eval_error", "deepcam": "eval_accuracy", "oc20": "eval_error", "openfold": "eval_accuracy"}


def target_of(application: str | None, origin: str, events: Sequence[Event]) -> float | None:
    """The quality that a run has to reach; ``None`` if it is unknown.

    In the tree of a round this is the published one, whatever the log names: a run that misses it has no score in
    either division. Elsewhere it is the one that the log names, else the published one.
    """
    published = PUBLISHED_TARGETS.get(application or "")
    if origin in IN_TREES:
        return published
    named = named_target(events)
    return published if named is None else named


def why_missed(qualities: Sequence[float], target: float | None, lower: bool) -> str | None:
    """Why a run with ``qualities`` is no success: none of them reaches ``target``; ``None`` if one does.

    ``lower``: whether lower values are better. Some logs have errors with their sign reversed.
    """
    if target is None or not qualities:
        return None
    if any(abs(quality) <= target if lower else quality >= target for quality in qualities):
        return None
    return f"no evaluation before run_stop reaches the target of {target:g}"
