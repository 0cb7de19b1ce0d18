"""Whether a seed is fast or slow at all batch sizes, where runs at different batch sizes have the same seeds.

The tests and fits of a study take runs at different batch sizes as independent. A seed decides the initial weights and
the order of the samples, so runs of one seed may have something in common. Each seed of a row gets Gehan's score: the
seeds that surely needed fewer epochs, less those that surely needed more. If seeds do not matter, the scores of a row
belong to its seeds in any order. The sum over seeds of squared sums over batch sizes is compared with that of random
orders (Friedman, Journal of the American Statistical Association 32, 1937, with these scores in place of ranks).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpcbench.study.definition import Study
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.results import Row, series
from hpcbench.study.series_comparison import p_words

ORDERS = 5000
"""Random orders of the seeds."""
LEVEL = 0.05
Series = Sequence[Sequence[EpochRun]]
"""For each batch size of a series its runs, in the order of their seeds, with as many seeds at each."""


def seed_notes(study: Study, rows: Sequence[Row]) -> list[str]:
    """Whether runs at different batch sizes, which have the same seeds in this study, depend on each other."""
    if study.own_seeds:
        return []
    p = seed_effect([epochs_by_seed(members) for members in series(rows).values()])
    if p is None:
        return []
    shared = "Runs at different batches have the same seeds"
    if p > LEVEL:
        return [f"{shared}; no seed is found to be fast or slow at all of them (p {p_words(p)})."]
    return [
        f"{shared}, and some are fast or slow at all of them (p {p_words(p)}): tests and intervals, which take these "
        "runs as independent, are too sure. A new study has other seeds at every batch."
    ]


def epochs_by_seed(rows: Sequence[Row]) -> list[list[EpochRun]]:
    """The runs of each row in the order of their seeds, of the rows in which all seeds say something."""
    by_seed = [[row.epoch_run(state) for _, state in row.runs] for row in rows if not row.copies]
    most = max(map(len, by_seed), default=0)
    whole = [[run for run in runs if run is not None] for runs in by_seed]
    return [runs for runs in whole if len(runs) == most > 1]


def seed_effect(all_series: Sequence[Series]) -> float | None:
    """The p-value of no effect over all series; ``None`` without two batch sizes of which some seeds differ."""
    tables = [np.array([scores(runs) for runs in rows]) for rows in all_series if rows]
    tables = [table[np.any(table != 0, axis=1)] for table in tables]
    tables = [table for table in tables if len(table) > 1]
    if not tables:
        return None
    random = np.random.default_rng(len(tables))
    seen, drawn = 0.0, np.zeros(ORDERS)
    for table in tables:
        seen += float((table.sum(0) ** 2).sum())
        orders = random.permuted(np.broadcast_to(table, (ORDERS, *table.shape)), axis=2)
        drawn += (orders.sum(1) ** 2).sum(1)
    return (1 + float((drawn >= seen).sum())) / (1 + ORDERS)


def scores(runs: Sequence[EpochRun]) -> npt.NDArray[np.int64]:
    """Gehan's score of each run of a row."""
    above, up_to = np.array([run.above for run in runs]), np.array([run.up_to for run in runs])
    more = above[:, None] >= up_to[None, :]
    return np.asarray(more.sum(1) - more.sum(0))
