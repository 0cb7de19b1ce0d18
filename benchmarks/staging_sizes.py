"""What staging the published datasets takes on 16, 128 and 1,024 nodes, as in the table of ``docs/staging.md``.

``python benchmarks/staging_sizes.py`` plans for the published numbers of files with
``staging.planning.plan.make_plan``, which ``--plan-only`` shows for real files and nodes. Bytes are those of the plan.
Seconds follow from the slowest of four rates that are assumed, not measured: change them here, or enter what
``--probe`` finds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from _common import ROOT

from staging.options import Path_, Placement
from staging.planning.plan import make_plan
from staging.source.listing import Listing, Names
from staging.units import human

assert ROOT  # its import puts the package before staging.py of this folder

NODES = (16, 128, 1024)
RANKS = 4
SHARED_BYTES_PER_S, SHARED_OPENS_PER_S = 100e9, 50e3
NETWORK_BYTES_PER_S = 25e9
NVME_BYTES, NVME_BYTES_PER_S = 3.2e12, 3e9
MEMORY_BYTES, MEMORY_BYTES_PER_S = 256e9, 10e9
HEAD = "nodes | placement, path | transform | read in all | opens | sent | received | landed | on | seconds, bound by"


@dataclass(frozen=True)
class Dataset:
    """A published dataset: training and validation files of one size."""

    name: str
    files: int
    file_bytes: int
    transform: str
    landed_bytes: int
    """Bytes of a file after the transform."""


COSMOFLOW = Dataset("CosmoFlow", 524_288 + 65_536, 2_830_000, "gunzip", 16_777_287)
DEEPCAM = Dataset("DeepCAM", 121_266 + 15_158, 63_703_040, "hdf5-to-npy", 16 * 768 * 1152 * 4 + 768 * 1152 + 256)
WAYS: tuple[tuple[Placement, Path_, bool], ...] = (
    ("replicate", "direct", False),
    ("replicate", "exchange", False),
    ("shard", "direct", True),
)


def rows(dataset: Dataset, nodes: int) -> list[str]:
    """Return a line of the table for each way."""
    names, zeros = Names.of(f"{number:06d}" for number in range(dataset.files)), np.zeros(dataset.files, np.int64)
    listing = Listing(names, np.full(dataset.files, dataset.file_bytes, np.int64), zeros, zeros)
    return [row(dataset, listing, nodes, *way) for way in WAYS]


def row(dataset: Dataset, listing: Listing, nodes: int, placement: Placement, path: Path_, transformed: bool) -> str:
    """Return the line of one way, with each figure from the node that has the most of it."""
    summary = make_plan(listing, nodes, [RANKS] * nodes, placement, path, seed=0).summary()
    flows, total = summary.nodes, summary.total()
    factor = dataset.landed_bytes / dataset.file_bytes if transformed else 1.0
    landed = max(flow.bytes_landing for flow in flows) * factor
    sent, received = (max(getattr(flow, f"bytes_{way}") for flow in flows) for way in ("sent", "received"))
    opens = total.bytes_read // dataset.file_bytes
    where = "memory" if landed <= MEMORY_BYTES else "NVMe" if landed <= NVME_BYTES else "no room"
    took = {
        "shared reads": total.bytes_read / SHARED_BYTES_PER_S,
        "opens": opens / SHARED_OPENS_PER_S,
        "network": (max(flow.bytes_read for flow in flows) + received) / NETWORK_BYTES_PER_S,
        "landing": landed / (MEMORY_BYTES_PER_S if where == "memory" else NVME_BYTES_PER_S),
    }
    slowest = max(took, key=lambda name: took[name])
    seconds = "-" if where == "no room" else f"{took[slowest]:,.0f}, {slowest}"
    cells = [
        f"{nodes:,}", f"{placement}, {path}", dataset.transform if transformed else "none", human(total.bytes_read),
        f"{opens:,}", human(sent), human(received), human(landed), where, seconds,
    ]  # fmt: skip
    return " | ".join(cells)


def table(dataset: Dataset, nodes: tuple[int, ...] = NODES) -> list[str]:
    """Return the table of a dataset as Markdown."""
    lines = [HEAD, " | ".join("---" for _ in HEAD.split(" | "))]
    for number in nodes:
        lines += rows(dataset, number)
    return [f"| {line} |" for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES))
    options = parser.parse_args()
    for dataset in (COSMOFLOW, DEEPCAM):
        size = human(dataset.files * dataset.file_bytes)
        print(f"{dataset.name}: {dataset.files:,} files of {human(dataset.file_bytes)}, {size}\n")
        print("\n".join(table(dataset, tuple(options.nodes))), end="\n\n")


if __name__ == "__main__":
    main()
