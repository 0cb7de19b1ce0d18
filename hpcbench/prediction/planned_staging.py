"""Seconds of a staging on any number of nodes, from the plan that ``hpcbench stage`` would make and a probe of a few.

Rates of a node's own parts (writing, creating, flushing, checksums) are those of the median node of the probe. What
all nodes share, the source, is an interval: from the rate that all probed nodes reached together, to one that grows
with the nodes, up to what the machine's file says of its file system.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from hpcbench.prediction.platforms import Fact
from hpcbench.prediction.staged_time import staged_time
from hpcbench.prediction.workload import Work
from staging.errors import InputError
from staging.formats.regular import read_text
from staging.planning.plan import make_plan
from staging.planning.plan_summary import NodeFlow, PlanSummary
from staging.probing.ceilings import COUNTED, WORDS, Ceilings, Rate
from staging.source.listing import Listing, Names

SHARED = ("read", "stat", "open")
"""Parts that all nodes share."""
WHAT = "hpcbench staging probe"
SPREAD = 0.2
"""Standard deviation of the logarithm of a staging beside its plan: how well a probe of seconds is asked to tell it."""
LEAST_BYTES_PER_S = 1.0
"""No storage is slower."""


@dataclass(frozen=True)
class PlannedStaging:
    """The seconds of a staging by its plan."""

    seconds: Fact
    """From a source that grows with the nodes to one that gives what the probed nodes got together."""
    limits: tuple[str, ...]
    """The part that takes longest at either end; one where both have the same."""
    probed_nodes: int


def planned_staging(
    work: Work, nodes: int, ceilings: Ceilings, filesystem_bytes_per_s: float | None = None
) -> PlannedStaging:
    """The staging of the published dataset to ``nodes`` nodes, each of which gets its part of both splits."""
    summary, way = plan_of(work, nodes), way_of(ceilings)
    ends = [staged_time(summary, ceilings_at(ceilings, nodes, grows, filesystem_bytes_per_s), way=way)
            for grows in (True, False)]  # fmt: skip
    low, high = sorted(end.seconds for end in ends)
    return PlannedStaging(Fact(low, high), tuple(dict.fromkeys(end.limit for end in ends)), len(ceilings.nodes))


def way_of(ceilings: Ceilings) -> str:
    """How ``stage`` would write large files after this probe."""
    best = ceilings.best("write_flushed")
    return best.note if best is not None else "auto"


@lru_cache(maxsize=64)
def plan_of(work: Work, nodes: int) -> PlanSummary:
    """What each node has to do where the samples are shards on the nodes; the plans of both splits together."""
    summaries = [shard_plan(samples, work.stored_bytes, nodes)
                 for samples in (work.train_samples, work.validation_samples) if samples]  # fmt: skip
    flows = [
        NodeFlow(
            number, sum(flow.files_landing for flow in parts), sum(flow.bytes_landing for flow in parts),
            sum(flow.bytes_read for flow in parts), 0, 0, 0,
        )
        for number, parts in enumerate(zip(*(summary.nodes for summary in summaries), strict=True))
    ]  # fmt: skip
    return PlanSummary(
        sum(summary.files for summary in summaries), sum(summary.bytes for summary in summaries), 1, tuple(flows)
    )


def shard_plan(samples: int, size: int, nodes: int) -> PlanSummary:
    """The plan of a set of samples, each a file of ``size`` bytes."""
    sizes = np.full(samples, size, np.int64)
    names = Names.of(f"{number:08d}" for number in range(samples))
    listing = Listing(names, sizes, np.zeros(samples, np.int64), np.full(samples, -1, np.int64))
    return make_plan(listing, nodes, [1] * nodes, "shard", "direct", 0, group_by=None).summary()


def ceilings_at(ceilings: Ceilings, nodes: int, grows: bool, filesystem_bytes_per_s: float | None = None) -> Ceilings:
    """A probe's rates on ``nodes`` nodes. ``grows``: whether the shared source gives more to more nodes."""
    probed = len(ceilings.nodes)

    def rate(probed_rate: Rate) -> Rate:
        node = statistics.median(probed_rate.per_node)
        if probed_rate.part in SHARED:
            total = node * nodes if grows or nodes <= probed else probed_rate.total
            if probed_rate.part not in COUNTED and filesystem_bytes_per_s is not None:
                total = min(total, filesystem_bytes_per_s)
            node = total / nodes
        return replace(probed_rate, per_node=(node,) * nodes)

    names = tuple(f"{number}" for number in range(nodes))
    ranks = round(ceilings.ranks / probed * nodes)
    return replace(ceilings, nodes=names, ranks=ranks, rates=tuple(rate(probed_rate) for probed_rate in ceilings.rates))


def read_probe(path: Path) -> Ceilings:
    """The result of ``hpcbench stage SRC DST --probe`` in a file. Raises ``InputError`` for anything else."""
    again = "give the probe.json of `hpcbench stage SRC DST --probe`"
    try:
        record = json.loads(read_text(path))
    except OSError as error:
        raise InputError(f"--probe {path} cannot be read ({error.strerror}); {again}") from None
    except (ValueError, RecursionError):
        raise InputError(f"--probe {path} is no JSON; {again}") from None
    if not isinstance(record, dict) or record.get("what") != WHAT:
        raise InputError(f"--probe {path} is no probe's result; {again}")
    ceilings = Ceilings.from_dict(record, f"--probe {path}")
    for part in ("read", "write"):
        best = ceilings.best(part)
        if best is None or not best.per_node or statistics.median(best.per_node) < LEAST_BYTES_PER_S:
            raise InputError(f"--probe {path} has no rate of {WORDS[part]}; probe for longer (--probe-seconds)")
    return ceilings
