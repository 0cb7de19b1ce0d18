"""Ends a run whose loss, scores or metric are not finite: for the file behind it, or for the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from hpcbench.data.bad_samples import blame
from hpcbench.exits import ABORTED, BAD_INPUT, Aborted, Cause
from hpcbench.parallel.group import Group
from hpcbench.train.task import Task


def end_for_bad_sample(
    group: Group, task: Task, samples: Any, indices: Iterable[int], otherwise: str, cause: Cause = "diverged"
) -> NoReturn:
    """Raise ``Aborted`` on all ranks together, which all call this, each with its own ``indices`` of ``samples``.

    The reason is the first of these samples whose stored values explain it. Where none does, it is ``otherwise`` with
    its ``cause``. Bad data has the exit code of bad input, as a file has that cannot be read.
    """
    found = group.all_gather_object(blame(samples, indices, task))
    reason = next((each for each in found if each is not None), None)
    if reason is not None:
        cause = "bad_data"
    code = BAD_INPUT if cause == "bad_data" else ABORTED
    raise Aborted(reason or otherwise, code, cause=cause, everywhere=True) from None
