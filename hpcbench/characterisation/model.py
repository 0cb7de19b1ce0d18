"""A characterisation as data: what a training step asks of a machine, and what this machine delivered.

``SCHEMA`` is the version of the file. A field is in SI units, and bytes and operations are those of **one rank**; what
is not known or was not measured is ``None``, never zero. docs/characterisation.md describes the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from hpcbench.config.bounds import within
from hpcbench.parallel.mesh_shape import spatial_sizes

SCHEMA = 1
WHAT = "hpcbench characterisation"

Kind = Literal[
    "convolution", "depthwise convolution", "matrix product", "batch norm", "pooling", "elementwise", "reduction",
    "copy", "loss", "optimizer",
]  # fmt: skip
Direction = Literal["forward", "backward", "optimizer"]
Link = Literal["none", "within a node", "between nodes"]
CurveOperation = Literal["all_reduce", "exchange", "lane_exchange"]
Tier = Literal["memory", "node-local", "shared"]
Resource = Literal["compute", "memory", "cache", "launch", "read", "write", "network"]

MESSAGE = "message"
"""What stands beside kinds of kernels for messages of every kind, where only one kind is shown."""
COMPUTED_IN = {"32-true": "float32", "64-true": "float64", "bf16-mixed": "bfloat16", "16-mixed": "float16"}
"""The type in which products are computed, by the precision of a run."""
SIXTEEN_BIT = ("bfloat16", "float16")
TENSOR_FLOAT = "tf32"
"""The roof of products of float32 numbers that NVIDIA GPUs round to TF32."""
PRODUCTS: tuple[Kind, ...] = ("convolution", "depthwise convolution", "matrix product")
"""Kinds whose operations are multiply-adds: those that published counts of operations include."""
MOST_COUNT, MOST = 10**18, 1e30
COUNT, WHOLE = within(1, MOST_COUNT), within(0, MOST_COUNT)
"""Bounds of whole numbers: of what there is at least one of, and of what there may be none of."""
POSITIVE, AMOUNT = within(0, MOST, open_low=True), within(0, MOST)
"""Bounds of times, rates, operations and bytes: of those that something is divided by, and of the others."""


@dataclass(frozen=True)
class Kernel:
    """An operation at one shape, as often as an optimizer step executes it."""

    operation: str
    """torch's name, such as ``convolution_backward``."""
    kind: Kind
    direction: Direction
    precision: str
    """Type of the numbers that are multiplied or moved: ``float32``, ``bfloat16``, ..."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the tensors that it takes, in order."""
    settings: str
    """What else determines its work, such as ``stride 2x2, padding 1x1``."""
    count: int = field(metadata=COUNT)
    """Executions in a step."""
    flop: float = field(metadata=AMOUNT)
    """Operations of one execution; a multiply-add is two. Recomputed activations count."""
    read_bytes: float = field(metadata=AMOUNT)
    """The least that one execution reads: each tensor that it takes, once."""
    written_bytes: float = field(metadata=AMOUNT)
    """The least that it writes: each tensor that it makes or changes, once."""
    fixed_flop: float = field(default=0.0, metadata=AMOUNT)
    """The part of ``flop`` that does not grow with the local batch."""
    fixed_bytes: float = field(default=0.0, metadata=AMOUNT)
    """The part of ``read_bytes + written_bytes`` that does not: weights, their gradients, the optimizer's state."""
    alone_s: float | None = field(default=None, metadata=AMOUNT)
    """Seconds of one execution alone, at these shapes, on this machine; median over ranks, which all execute it."""

    @property
    def bytes(self) -> float:
        """The least that one execution moves."""
        return self.read_bytes + self.written_bytes

    def at_batch(self, measured: int, wanted: int) -> tuple[float, float]:
        """Operations and bytes of one execution where the local batch is ``wanted`` instead of ``measured``."""
        scale = wanted / measured
        return (
            self.fixed_flop + (self.flop - self.fixed_flop) * scale,
            self.fixed_bytes + (self.bytes - self.fixed_bytes) * scale,
        )


@dataclass(frozen=True)
class Footprint:
    """Memory of a rank, in bytes."""

    parameters: int = field(metadata=WHOLE)
    gradients: int = field(metadata=WHOLE)
    """With the buffers in which they travel, where there are other ranks."""
    optimizer: int = field(metadata=WHOLE)
    """Its state."""
    saved: int = field(metadata=WHOLE)
    """What is saved from the forward pass for the backward pass: activations, and weights in the run's precision."""
    peak: int = field(metadata=WHOLE)
    """The most that a pass holds at a time besides parameters, gradients and input."""
    input: int = field(metadata=WHOLE)
    """Inputs and targets of the local batch, as model and loss take them."""
    written: int = field(metadata=WHOLE)
    """Everything that the operations of a forward pass write for the local batch, each once."""
    saved_fixed: int = field(default=0, metadata=WHOLE)
    """The part of ``saved`` that does not grow with the batch."""
    measured_peak: int | None = field(default=None, metadata=WHOLE)
    """The most that a step took on this machine: of the device, or of the process on a processor."""


@dataclass(frozen=True)
class Reading:
    """Reading samples with the suite's own readers on this machine, one after another; per sample."""

    samples: int = field(metadata=COUNT)
    """Number of samples that were read."""
    bytes: float | None = field(metadata=AMOUNT)
    """Read by system calls of a rank; of ranks that share a sample, each may read its part."""
    calls: float | None = field(metadata=AMOUNT)
    """System calls that read."""
    read_s: float = field(metadata=AMOUNT)
    """Wall time of reading and decoding."""
    processor_s: float = field(metadata=AMOUNT)
    """Processor time of both."""
    prepare_s: float = field(metadata=AMOUNT)
    """Time from a batch as stored to what the model takes, on the device."""
    tier: Tier | None = None
    """Storage on which the dataset lies."""


@dataclass(frozen=True)
class InputData:
    """The dataset, and what a sample of it costs."""

    form: str
    """Such as ``tfrecord, gzip``."""
    train_samples: int | None = field(metadata=COUNT)
    validation_samples: int | None = field(metadata=WHOLE)
    stored_bytes: float | None = field(metadata=POSITIVE)
    """Bytes of a sample as it is stored, all files."""
    files: int | None = field(metadata=WHOLE)
    """Files of a sample; each is opened once per epoch."""
    prepared_bytes: float = field(metadata=AMOUNT)
    """Bytes of a sample as the model takes it."""
    reading: Reading | None = None
    """Unset where no dataset was available."""
    landed_bytes: float | None = field(default=None, metadata=POSITIVE)
    """Bytes of a sample as staging lands it, where ``staging.transform`` makes another form of it."""


@dataclass(frozen=True)
class Message:
    """What a rank contributes to the messages of one kind in an optimizer step."""

    kind: str
    """A name of ``phase_names.MESSAGE_TABLE``."""
    operation: Literal["all_reduce", "exchange", "all_gather", "reduce_scatter"]
    link: Link
    """The slowest link that they cross; ``none`` for a single rank, which would send them if there were others."""
    count: int = field(metadata=COUNT)
    bytes: int = field(metadata=WHOLE)
    """Bytes of all of them."""
    exposed_s: float | None = field(default=None, metadata=AMOUNT)
    """Measured seconds of a step that wait for them, without waiting for slower ranks; on the slowest rank."""
    fixed: bool = True
    """Whether the bytes are the same at any local batch."""
    alone_s: float | None = field(default=None, metadata=AMOUNT)
    """Seconds of one message of their mean size, sent alone; on the slowest rank."""


@dataclass(frozen=True)
class CurvePoint:
    """Time of a message of one size."""

    bytes: int = field(metadata=COUNT)
    seconds: float = field(metadata=POSITIVE)
    """Median over repeats, slowest rank."""


@dataclass(frozen=True)
class Curve:
    """Time against size, of one operation among some ranks: latency + bytes / rate, fitted to the points."""

    operation: CurveOperation
    """An ``exchange`` goes from each rank to the next one: of ranks in blocks, one message leaves each node. A
    ``lane_exchange`` goes to the rank of the same number on the next node: a message of every rank leaves the node."""
    ranks: int = field(metadata=within(2, MOST_COUNT))
    nodes: int = field(metadata=COUNT)
    link: Link
    points: tuple[CurvePoint, ...]
    latency_s: float = field(metadata=AMOUNT)
    bytes_per_s: float = field(metadata=POSITIVE)
    """Bytes of the message over the time that grows with them; in an all-reduce, the links carry more."""


@dataclass(frozen=True)
class Roof:
    """The most that a part of this machine delivered to one rank while all ranks measured at once."""

    resource: Resource
    name: str
    """Precision of a compute roof, level of a cache, folder of a storage tier."""
    value: float = field(metadata=POSITIVE)
    unit: Literal["FLOP/s", "B/s", "s"]
    how: str
    """What was measured."""
    tier: Tier | None = None
    """Kind of a folder's storage; unset for other roofs, and where the system does not tell."""


@dataclass(frozen=True)
class StepTimes:
    """Steps on the first ``ranks`` ranks, the others idle."""

    ranks: int = field(metadata=COUNT)
    nodes: int = field(metadata=COUNT)
    local_batch: int = field(metadata=COUNT)
    repeats: int = field(metadata=COUNT)
    median_s: float = field(metadata=POSITIVE)
    """Median over repeats of the time of the slowest rank; ``least_s`` and ``most_s`` are the ends of its range."""
    least_s: float = field(metadata=POSITIVE)
    most_s: float = field(metadata=POSITIVE)
    rank_s: tuple[float, ...] = field(metadata=POSITIVE)
    """Median of each rank."""
    flop_per_s: tuple[float, ...] = field(metadata=AMOUNT)
    """Operations of products over the median, of each rank."""
    utilisation: tuple[float, ...] = field(default=(), metadata=AMOUNT)
    """The same over the compute roof of the run's precision; empty where that was not measured."""


@dataclass(frozen=True)
class ProfiledOperation:
    """A kernel of an accelerator, or an operation of a processor, in torch's profile of a step on the first rank."""

    name: str
    kind: str
    """As in ``Characterisation.profile``."""
    seconds: float = field(metadata=AMOUNT)
    """Seconds of all its executions in a step."""
    calls: float = field(metadata=AMOUNT)
    """Executions in a step."""


@dataclass(frozen=True)
class MovedBytes:
    """Bytes that a hardware counter or an I/O log saw, read from the output of another tool."""

    tool: str
    """``perf``, ``ncu``, ``rocprof`` or ``darshan``."""
    what: str
    """``memory``, or the tier that was read or written."""
    read_bytes: float = field(metadata=AMOUNT)
    written_bytes: float | None = field(metadata=AMOUNT)
    """Unset where the counter gives only the sum."""
    steps: int | None = field(default=None, metadata=COUNT)
    """Optimizer steps that the output covers, as the user said."""
    operations: int | None = field(default=None, metadata=WHOLE)
    """Reads and writes, for an I/O log."""


@dataclass(frozen=True)
class Host:
    """The machine and the ranks of the measurement."""

    name: str
    device: str
    """Type of torch's device: ``cpu``, ``cuda``, ..."""
    model: str
    """Model name of the accelerator, or of the processor where there is none."""
    nodes: int = field(metadata=COUNT)
    ranks: int = field(metadata=COUNT)
    threads: int = field(metadata=COUNT)
    """Threads of each rank."""
    memory_bytes: int | None = field(metadata=COUNT)
    """Memory of the accelerator, or of the node where there is none."""
    software: dict[str, str] = field(default_factory=dict)
    """Versions of the software that computes."""


@dataclass(frozen=True)
class Characterisation:
    """Everything that ``hpcbench characterize`` found."""

    application: str
    title: str
    preset: str
    date: str
    """ISO 8601, in UTC."""
    version: str
    """Version of hpcbench."""
    host: Host
    precision: str
    """Precision of the run: ``32-true``, ``bf16-mixed``, ..."""
    local_batch: int = field(metadata=COUNT)
    accumulation: int = field(metadata=COUNT)
    optimizer: str
    parameters: int = field(metadata=COUNT)
    """Numbers of the model."""
    useful_flop: float = field(metadata=AMOUNT)
    """Products of one sample, forward and backward, without recomputation, as published counts have it; where ranks
    share samples, one rank's part of them."""
    kernels: tuple[Kernel, ...]
    footprint: Footprint
    input: InputData
    messages: tuple[Message, ...] = ()
    curves: tuple[Curve, ...] = ()
    roofs: tuple[Roof, ...] = ()
    steps: tuple[StepTimes, ...] = ()
    """For several numbers of ranks; the last entry is for all of them."""
    profile: dict[str, float] = field(default_factory=dict, metadata=AMOUNT)
    """Seconds of a step on the first rank by kind of operation, from torch's profiler; empty where not measured."""
    longest: tuple[ProfiledOperation, ...] = ()
    """The operations of that profile that take most of it, the longest first."""
    moved: tuple[MovedBytes, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    configuration: dict[str, Any] = field(default_factory=dict)
    """The resolved configuration."""

    @property
    def flop(self) -> float:
        """Executed operations of a step."""
        return total(self.kernels, "flop")

    @property
    def bytes(self) -> float:
        """The least bytes that the operations of a step move, each on its own."""
        return total(self.kernels, "bytes")

    @property
    def read_bytes(self) -> float | None:
        """Bytes that a rank reads of a sample: those that the suite's reader read, else those that are stored."""
        reading = self.input.reading
        return self.input.stored_bytes if reading is None or reading.bytes is None else reading.bytes

    @property
    def sharing(self) -> int:
        """Ranks that share each sample."""
        return prod(spatial_sizes(str(self.configuration.get("parallel", {}).get("spatial", "1"))))

    def roof(self, resource: Resource, name: str | None = None) -> Roof | None:
        """The highest roof of a resource, or the one called ``name``; ``None`` where there is none."""
        matching = [roof for roof in self.roofs if roof.resource == resource and name in (None, roof.name)]
        return max(matching, key=lambda roof: roof.value, default=None)


def total(kernels: Iterable[Kernel], what: Literal["flop", "bytes", "read_bytes", "written_bytes"]) -> float:
    """Sum over the executions of a step."""
    return float(sum(kernel.count * getattr(kernel, what) for kernel in kernels))
