"""Least bytes, operations and footprint of both applications at the published size, beside the published ones.

``python benchmarks/characterisation.py`` counts on tensors without data, and prints the tables of
docs/characterisation.md: what a step was observed to do on a V100 (Ibrahim et al., PMBS 2021), what is counted here,
and each difference by a count of its own. The remainder has no known cause here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from _common import ROOT
from _executed import COMMON_TILE, SMALLEST_TILE, Tile, products
from torch import Tensor
from torch.nn import functional

from apps.cosmoflow.model import SLOPE, Block
from hpcbench.application import find_application
from hpcbench.characterisation.counts import made_by
from hpcbench.characterisation.operations import Operation, OperationRecorder
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.planning.counting import count_pass

GIB = 2.0**30
PUBLISHED = {
    "cosmoflow": {"operations": 265e9, "footprint": 0.72, "least bytes": 1.44},
    "deepcam": {"operations": 3.10e12, "footprint": 2.9, "least bytes": 5.8},
}
"""Ibrahim et al., Architectural Requirements for Deep Learning Workloads in HPC Environments, PMBS 2021: V100, Nsight
Compute, mixed precision; GiB per sample."""


@dataclass(frozen=True)
class Line:
    """What one count contributes."""

    what: str
    value: float
    counted: bool = True
    """Whether it is part of the sum; if not, it is the sum, the published number, or what is left."""
    assumed: bool = False
    """Whether it counts what the measured code is taken to have done, as nothing public tells it."""


def operations_of(application: str, precision: str, batch: int) -> list[Operation]:
    """Return the operations of a pass at the published size."""
    app = find_application(application)
    config = resolve(app, "mlperf", overrides={"train.precision": precision})
    recorder = OperationRecorder()
    count_pass(app, config, MeshShape(1, (1,)), (0,), batch, recorder)
    return recorder.operations


def flop_lines(application: str, tile: Tile = SMALLEST_TILE) -> list[Line]:
    """Operations per sample at the batch of the published recipe, each part counted from shapes."""
    app = find_application(application)
    batch = resolve(app, "mlperf").train.local_batch_size
    operations = operations_of(application, "bf16-mixed", batch)
    matrix_products = [product for operation in operations for product in products(operation)]
    counted = sum(operation.flop for operation in operations if operation.kind in
                  ("convolution", "depthwise convolution", "matrix product")) / batch  # fmt: skip
    zeros = sum(product.with_zeros - product.flop for product in matrix_products if product.groups == 1) / batch
    tiles = (
        sum(product.in_tiles(tile) - product.with_zeros for product in matrix_products if product.groups == 1) / batch
    )
    lines = [
        Line("products of the model, forward and backward", counted),
        Line(
            "batch norm, activations, pooling, loss", sum(operation.flop for operation in operations) / batch - counted
        ),
        Line("zeros between strides in gradients of inputs", zeros, assumed=True),
        Line(f"products in whole tiles of {' x '.join(map(str, tile))}", tiles, assumed=True),
    ]
    return closed(lines, PUBLISHED[application]["operations"])


def footprint_lines(application: str) -> list[Line]:
    """Size in GiB of the activations of a sample, each written once."""
    mixed = written(application, "bf16-mixed")
    lines = [Line("activations that the suite's model writes, bf16-mixed", mixed)]
    if application == "cosmoflow":
        lines += cosmoflow_lines(mixed)
    return closed(lines, PUBLISHED[application]["footprint"])


def cosmoflow_lines(mixed: float) -> list[Line]:
    """From the suite's model to the published one: each step counts a model or a part of it."""
    indices = written("cosmoflow", "bf16-mixed", pooling_indices)
    with as_published():
        published, cast = (written("cosmoflow", "bf16-mixed", kind) for kind in (everything, copies))
        whole = written("cosmoflow", "32-true")
    return [
        Line("the activation before the pooling, in a tensor of its own, as published", published - mixed),
        Line("positions of the maxima in 8 bytes, which torch keeps for pooling", -indices),
        Line("the input cast to bfloat16", -cast),
        Line("4 bytes for each number", whole - indices - (published - indices - cast), assumed=True),
    ]


def closed(lines: list[Line], published: float) -> list[Line]:
    """The counts with their sum, the published number, and what is left."""
    whole = sum(line.value for line in lines)
    return [*lines, Line("together", whole, counted=False), Line("published", published, counted=False),
            Line("left", published - whole, counted=False)]  # fmt: skip


def written(application: str, precision: str, part: Callable[[Operation], float] | None = None) -> float:
    """GiB per sample that the forward pass writes, or a part of them: what grows with the batch."""
    once, twice = (operations_of(application, precision, batch) for batch in (1, 2))
    if part is None or part is everything:
        return made_by(once, twice) / GIB
    return sum(part(operation) for operation in twice if operation.direction == "forward") / GIB - sum(
        part(operation) for operation in once if operation.direction == "forward") / GIB  # fmt: skip


def everything(operation: Operation) -> float:
    """All that an operation writes."""
    return operation.written_bytes


def copies(operation: Operation) -> float:
    """What an operation writes if it is a copy, else 0."""
    return operation.written_bytes if operation.kind == "copy" else 0.0


def pooling_indices(operation: Operation) -> float:
    """The positions that max pooling writes beside its maxima: an int64 for each number of 2 or 4 bytes."""
    if operation.name != "max_pool3d_with_indices":
        return 0.0
    number = operation.inputs[0].dtype.itemsize
    return operation.written_bytes * 8 / (8 + number)


@contextmanager
def as_published() -> Iterator[None]:
    """CosmoFlow's blocks as published: convolution, activation in memory of its own, pooling."""
    before = Block.forward

    def forward(self: Block, x: Tensor) -> Tensor:
        convolved = self.conv(x)
        with torch.autocast("cpu", enabled=False):
            pooled: Tensor = self.pool(functional.leaky_relu(convolved, SLOPE))
        return pooled

    Block.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        Block.forward = before  # type: ignore[method-assign]


def tables() -> str:
    """Return the tables of both applications as Markdown."""
    parts = []
    for application in PUBLISHED:
        flops, larger = flop_lines(application), flop_lines(application, COMMON_TILE)[-1].value
        parts += [f"{application}, operations of a sample (GFLOP):", "", *rows(flops, 1e9)]
        if application == "deepcam":
            remainder = shown(larger, 1e9, flops[-2].value)
            parts += ["", f"In tiles of {' x '.join(map(str, COMMON_TILE))} (assumed) {remainder} is left."]
        lines = footprint_lines(application)
        parts += ["", f"{application}, footprint of a sample (GiB):", "", *rows(lines, 1.0), ""]
        least, published = 2 * lines[-3].value, PUBLISHED[application]["least bytes"]
        said = f"{least:.2f} GiB, published {published:.2f} GiB ({100 * (published - least) / published:.1f} % left)"
        parts += [f"Least bytes, each activation written once and read once, are twice that: {said}.", ""]
    return "\n".join(parts)


def rows(lines: list[Line], unit: float) -> list[str]:
    """Return the rows of a table."""
    published = lines[-2].value
    table = ["| count | value | of the published |", "|---|---:|---:|"]
    for line in lines:
        name = f"{line.what}{' (assumed)' if line.assumed else ''}" if line.counted else f"**{line.what}**"
        table.append(f"| {name} | {line.value / unit:,.3f} | {100 * line.value / published:.1f} % |" if unit == 1.0
                     else f"| {name} | {line.value / unit:,.1f} | {100 * line.value / published:.1f} % |")  # fmt: skip
    return table


def shown(value: float, unit: float, published: float) -> str:
    """Format a value with its share of the published one."""
    return f"{value / unit:,.1f} GFLOP ({100 * value / published:.1f} %)"


def main() -> int:
    """Print the tables; return 1 if those on the page differ."""
    text, page = tables(), (ROOT / "docs" / "characterisation.md").read_text(encoding="utf-8")
    print(text)
    missing = [line for line in text.splitlines() if line not in page]
    print(*(f"docs/characterisation.md has no line: {line}" for line in missing), sep="\n")
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main())
