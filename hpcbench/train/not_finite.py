"""Ends a run whose loss, scores or metric are not finite, and names the data file or the model as the cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from hpcbench.data.bad_samples import blame
from hpcbench.exits import ABORTED, BAD_INPUT, Aborted
from hpcbench.parallel.group import Group
from hpcbench.train.task import Task


def end_for_bad_sample(group: Group, task: Task, samples: Any, indices: Iterable[int], otherwise: str) -> NoReturn:
    """Raise ``Aborted`` on all ranks together; all call this, each with its own ``indices`` of ``samples``.

    The reason is the first of these samples whose stored values explain it: bad data, with the exit code of bad input,
    as for an unreadable file. If none does, the training has diverged, and the reason is ``otherwise``.
    """
    reasons = group.all_gather_object(blame(samples, indices, task))
    reason = next((candidate for candidate in reasons if candidate is not None), None)
    if reason is not None:
        raise Aborted(reason, BAD_INPUT, cause="bad_data", everywhere=True) from None
    raise Aborted(otherwise, ABORTED, cause="diverged", everywhere=True) from None
