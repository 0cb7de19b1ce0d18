"""A characterisation as sheets of cells, for the terminal and for the page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.characterisation.model import Characterisation, Kernel, StepTimes
from hpcbench.characterisation.roofline import bound_of, bounds, limited_by, lost_s, ranked, step_s
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.phase_names import MESSAGE_TABLE
from hpcbench.results import units
from hpcbench.results.tables import WIDTH, table

SHOWN_KERNELS = 20


@dataclass(frozen=True)
class Sheet:
    """A table."""

    heading: str
    headers: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    words: int = 1
    """Number of columns from the left that hold words; the others hold numbers."""
    note: str = ""

    def as_text(self) -> str:
        """Plain text within 100 columns."""
        text = f"{self.heading}\n{table(self.headers, self.lines, right=self.headers[self.words :])}"
        return "\n".join([text, *textwrap.wrap(self.note, WIDTH)])


def sheets(found: Characterisation) -> list[Sheet]:
    """Every table for which the characterisation has content."""
    every = [
        bound_sheet(found), work_sheet(found), kernel_sheet(found), footprint_sheet(found), input_sheet(found),
        message_sheet(found), rank_sheet(found), roof_sheet(found), moved_sheet(found),
    ]  # fmt: skip
    return [each for each in every if each.lines]


def bound_sheet(found: Characterisation) -> Sheet:
    """Each part of the machine, its roof, and what a step attained."""
    lines = []
    for bound in bounds(found):
        unit = "FLOP" if bound.part == "compute" else "B"
        lines.append((
            bound.part, bound.roof, units.prefixed(bound.work, unit), units.prefixed(bound.rate, f"{unit}/s"),
            units.duration(bound.bound_s),
            units.MISSING if bound.attained is None else units.prefixed(bound.attained, f"{unit}/s"),
            units.percent(bound.utilisation),
        ))  # fmt: skip
    seconds = step_s(found)
    said = "" if seconds is None else f"; the step took {units.duration(seconds)}"
    return Sheet(
        f"What a step asks of each part of the machine, one rank{said}",
        ("part", "roof", "work", "roof's rate", "at least", "attained", "of the roof"), tuple(lines), 2,
        "At least: the work over the roof's rate, with the latency of messages. Compute is of products alone, memory "
        "of the least bytes of each operation; a fused or cached step may attain more than the roof of memory.",
    )  # fmt: skip


def work_sheet(found: Characterisation) -> Sheet:
    """Operations and bytes by kind, direction and precision."""
    groups: dict[tuple[str, str, str], list[Kernel]] = {}
    for kernel in found.kernels:
        groups.setdefault((kernel.kind, kernel.direction, kernel.precision), []).append(kernel)
    seconds, useful = dict(found.profile), found.useful_flop * found.local_batch * found.accumulation
    lines = []
    for (kind, direction, precision), kernels in sorted(groups.items(), key=lambda item: -moved(item[1])):
        flop, size = sum(each.count * each.flop for each in kernels), moved(kernels)
        alone = [each.alone_s * each.count for each in kernels if each.alone_s is not None]
        lines.append((
            kind, direction, precision, units.integer(sum(each.count for each in kernels)),
            units.prefixed(flop, "FLOP") if flop else units.MISSING, units.size(size),
            units.significant(flop / size) if flop and size else units.MISSING,
            units.duration(sum(alone)) if len(alone) == len(kernels) else units.MISSING,
        ))  # fmt: skip
    told = ", ".join(
        f"{kind} {units.duration(spent)}" for kind, spent in sorted(seconds.items(), key=lambda item: -item[1])
    )
    return Sheet(
        "Operations and least bytes of a step by kind, one rank",
        ("kind", "direction", "precision", "calls", "operations", "bytes", "FLOP/B", "alone"), tuple(lines), 3,
        f"Executed: {units.prefixed(found.flop, 'FLOP')} a step; useful: {units.prefixed(useful, 'FLOP')}, products "
        "without what is computed again." + (f" By torch's profiler a step took: {told}." if told else ""),
    )  # fmt: skip


def moved(kernels: Sequence[Kernel]) -> float:
    """Least bytes of all executions in a step."""
    return sum(each.count * each.bytes for each in kernels)


def kernel_sheet(found: Characterisation, most: int = SHOWN_KERNELS) -> Sheet:
    """The kernels that lose the most time, or that move the most bytes where they were not timed."""
    timed = any(kernel.alone_s is not None for kernel in found.kernels)
    order = ranked(found) if timed else sorted(found.kernels, key=lambda each: -each.count * each.bytes)
    lines = []
    for kernel in order[:most]:
        bound, lost = bound_of(kernel, found), lost_s(kernel, found)
        lines.append((
            short_name(kernel), shape_words(kernel), str(kernel.count), limited_by(kernel, found),
            units.duration(bound) if bound is not None else units.MISSING, units.duration(kernel.alone_s),
            units.percent(bound / kernel.alone_s) if bound and kernel.alone_s else units.MISSING,
            units.duration(lost) if lost is not None else units.MISSING,
        ))  # fmt: skip
    rest = f" ({most} of {len(order)})" if len(order) > most else ""
    by = "the time that they lose to their roof" if timed else "least bytes"
    return Sheet(
        f"Kernels by {by}, one rank{rest}",
        ("operation", "shapes", "calls", "roof", "at least", "alone", "of roof", "lost"), tuple(lines), 2,
        "At least and alone are of one execution, lost is of all in a step.",
    )  # fmt: skip


def short_name(kernel: Kernel) -> str:
    """torch's name, shortened: ``batch_norm back``, ``depthwise conv``."""
    name = kernel.operation.replace("_with_indices", "").removeprefix("native_").replace("_backward", " back")
    return name.replace("convolution", "depthwise conv") if kernel.kind == "depthwise convolution" else name


def shape_words(kernel: Kernel) -> str:
    """``4x32x64x64x64, 64x32x3x3x3``."""
    shapes = ["x".join(map(str, shape)) or "1" for shape in kernel.shapes]
    return ", ".join(shapes[-2:] if kernel.operation == "convolution_backward" else shapes[:2])


def footprint_sheet(found: Characterisation) -> Sheet:
    """Memory of a rank, and how often activations are touched."""
    print_, batch = found.footprint, found.local_batch
    pairs: list[tuple[str, float | None]] = [
        ("parameters", print_.parameters), ("gradients, with buffers", print_.gradients),
        ("optimizer's state", print_.optimizer), ("activations that the forward pass writes", print_.written),
        ("activations kept for the backward pass", print_.saved), ("the most that a pass holds", print_.peak),
        ("inputs and targets", print_.input), ("the most that a step took here", print_.measured_peak),
    ]  # fmt: skip
    grows = {"activations that the forward pass writes", "activations kept for the backward pass", "inputs and targets"}
    lines = [
        (name, units.size(size), units.size(size / batch) if name in grows else "")
        for name, size in pairs if size is not None
    ]  # fmt: skip
    touched = touches(found)
    note = f"Each activation byte is touched {units.significant(touched)} times by the least bytes." if touched else ""
    return Sheet("Memory", ("what", "of a rank", "per sample"), tuple(lines), 1, note)


def touches(found: Characterisation) -> float | None:
    """How often, at least, operations touch each byte of the activations; the optimizer's do not count."""
    size = sum(each.count * each.bytes for each in found.kernels if each.direction != "optimizer")
    written = found.footprint.written * found.accumulation
    return size / written if written else None


def input_sheet(found: Characterisation) -> Sheet:
    """What samples cost, and the read rate that the attained step needs."""
    data, reading, seconds = found.input, found.input.reading, step_s(found)
    passes = found.local_batch * found.accumulation
    lines: list[tuple[str, str]] = []
    if data.stored_bytes is not None:
        lines.append((f"a sample as stored ({data.form})", units.size(data.stored_bytes)))
        if data.train_samples:
            lines.append(
                (f"an epoch of {data.train_samples:,} samples", units.size(data.stored_bytes * data.train_samples))
            )
        if seconds:
            need = data.stored_bytes * passes / seconds
            lines.append(("a rank needs at the attained step", f"{units.prefixed(need, 'B/s')}"))
    lines.append(("a sample as the model takes it", units.size(data.prepared_bytes)))
    if data.files is not None:
        lines.append(("files of a sample", str(data.files)))
    if reading is not None:
        lines += [
            ("read calls of a sample", units.significant(reading.calls)),
            ("reading and decoding a sample, from the page cache", units.duration(reading.read_s)),
            ("processor time of that", units.duration(reading.processor_s)),
            ("preparing a sample on the device", units.duration(reading.prepare_s)),
        ]
    return Sheet("Input", ("what", "value"), tuple(lines))


def message_sheet(found: Characterisation) -> Sheet:
    """Messages of a step by kind."""
    labels = {kind.name: kind.label for kind in MESSAGE_TABLE}
    lines = [
        (labels.get(each.kind, each.kind), each.operation.replace("_", "-"),
         str("sent to nobody" if each.link == "none" else each.link), units.integer(each.count), units.size(each.bytes),
         units.duration(each.exposed_s))
        for each in found.messages
    ]  # fmt: skip
    lines += [
        (f"measured: {curve.ranks} ranks", curve.operation.replace("_", "-"), curve.link, "",
         f"{units.prefixed(curve.bytes_per_s, 'B/s')}", f"{units.duration(curve.latency_s)} latency")
        for curve in found.curves
    ]  # fmt: skip
    return Sheet("Messages of a step, one rank", ("kind", "operation", "link", "count", "bytes", "exposed"),
                 tuple(lines), 3)  # fmt: skip


def rank_sheet(found: Characterisation) -> Sheet:
    """How the step and the use of the device change with the number of ranks."""
    lines = tuple(rank_line(each, samples_of_step(found, each.ranks)) for each in found.steps)
    headers = ("ranks", "repeats", "step", "range", "samples/s", "FLOP/s per rank", "of the roof")
    return Sheet("Steps on some of the ranks, and on all", headers, lines, 0)


def samples_of_step(found: Characterisation, ranks: int) -> int:
    """Samples that ``ranks`` take in a step; ranks that share samples take the same."""
    spatial = str(found.configuration.get("parallel", {}).get("spatial", "1"))
    return mesh_shape(ranks, spatial).data * found.local_batch * found.accumulation


def rank_line(steps: StepTimes, samples: int) -> tuple[str, ...]:
    """The cells of one number of ranks, whose step has ``samples``; where ranks differ, the least and the most."""
    used = sorted(steps.utilisation)
    ends = "" if not used else units.percent(used[0])
    if len(used) > 1:
        ends = f"{ends} to {units.percent(used[-1])}"
    return (
        str(steps.ranks), str(steps.repeats), units.duration(steps.median_s),
        f"{units.duration(steps.least_s)} to {units.duration(steps.most_s)}",
        units.significant(samples / steps.median_s),
        units.prefixed(sum(steps.flop_per_s) / len(steps.flop_per_s), "FLOP/s"), ends,
    )  # fmt: skip


def roof_sheet(found: Characterisation) -> Sheet:
    """The measured roofs."""
    lines = tuple(
        (each.resource, each.name,
         units.duration(each.value) if each.unit == "s" else units.prefixed(each.value, each.unit), each.how)
        for each in found.roofs
    )  # fmt: skip
    return Sheet("Roofs of one rank, measured while all measure", ("resource", "name", "roof", "how"), lines, 4)


def moved_sheet(found: Characterisation) -> Sheet:
    """Bytes that counters saw, beside the least of the ranks that they count."""
    lines, ranks = [], found.host.ranks / found.host.nodes
    for each in found.moved:
        whole = each.read_bytes + (each.written_bytes or 0.0)
        step = whole / each.steps if each.steps else None
        least = found.bytes * (ranks if each.tool == "perf" else 1)
        ratio = step / least if step is not None and each.what == "memory" else None
        lines.append((each.tool, each.what, units.size(whole), units.size(step),
                      units.MISSING if ratio is None else f"{units.significant(ratio)} x"))  # fmt: skip
    counted = units.counted(int(ranks), "rank") if ranks.is_integer() else f"{ranks:.3g} ranks in the mean"
    return Sheet(
        "Bytes that counters saw", ("tool", "what", "in all", "in a step", "of the least"), tuple(lines), 2,
        f"The least of what is counted: perf counts a node, here with {counted}; "
        "the output of another tool is taken as that of one process.",
    )  # fmt: skip
