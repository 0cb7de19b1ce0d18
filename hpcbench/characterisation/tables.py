"""A characterisation as sheets of cells, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.characterisation.input_tables import input_sheet, tier_sheet
from hpcbench.characterisation.model import Characterisation, Kernel, Message, StepTimes
from hpcbench.characterisation.roofline import (
    RING_PASSES,
    bound_of,
    bounds,
    limited_by,
    lost_s,
    message_bound_s,
    message_lost_s,
    ranked,
    step_s,
)
from hpcbench.characterisation.sheet import ASSUMED, Sheet
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.phase_names import MESSAGE_TABLE
from hpcbench.results import units

SHOWN_KERNELS = 20
LONGEST_NAME = 44
"""Characters of a profiled operation's name that are shown."""
MESSAGE_LABELS = {kind.name: kind.label for kind in MESSAGE_TABLE}


def sheets(characterisation: Characterisation) -> list[Sheet]:
    """Every table for which the characterisation has content."""
    every = [
        bound_sheet(characterisation), work_sheet(characterisation), profile_sheet(characterisation),
        kernel_sheet(characterisation), footprint_sheet(characterisation), input_sheet(characterisation),
        tier_sheet(characterisation), message_sheet(characterisation), rank_sheet(characterisation),
        roof_sheet(characterisation), moved_sheet(characterisation),
    ]  # fmt: skip
    return [sheet for sheet in every if sheet.lines]


def bound_sheet(characterisation: Characterisation) -> Sheet:
    """Each part of the machine, its roof, and what a step attained."""
    lines = []
    for bound in bounds(characterisation):
        unit = "FLOP" if bound.part == "compute" else "B"
        lines.append((
            bound.part, bound.roof + (ASSUMED if bound.assumed else ""), units.prefixed(bound.work, unit),
            units.prefixed(bound.rate, f"{unit}/s"), units.duration(bound.bound_s),
            units.MISSING if bound.attained is None else units.prefixed(bound.attained, f"{unit}/s"),
            units.small_percent(bound.utilisation),
        ))  # fmt: skip
    seconds, halved = step_s(characterisation), any(line[1].endswith(ASSUMED) for line in lines)
    said = "" if seconds is None else f"; the step took {units.duration(seconds)}"
    return Sheet(
        f"What a step asks of each part of the machine, one rank{said}",
        ("part", "roof", "work", "roof's rate", "at least", "attained", "of the roof"), tuple(lines), 2,
        "At least: the work over the roof's rate, with the latency of messages. Compute is of products alone, memory "
        "of the least bytes of each operation; a fused or cached step may attain more than the roof of memory."
        + (f" A gather or a scatter takes half as long as a sum{ASSUMED}." if halved else ""),
    )  # fmt: skip


def work_sheet(characterisation: Characterisation) -> Sheet:
    """Operations and bytes by kind, direction and precision."""
    groups: dict[tuple[str, str, str], list[Kernel]] = {}
    for kernel in characterisation.kernels:
        groups.setdefault((kernel.kind, kernel.direction, kernel.precision), []).append(kernel)
    seconds = dict(characterisation.profile)
    useful = characterisation.useful_flop * characterisation.local_batch * characterisation.accumulation
    lines = []
    for (kind, direction, precision), kernels in sorted(groups.items(), key=lambda item: -moved(item[1])):
        flop, size = sum(kernel.count * kernel.flop for kernel in kernels), moved(kernels)
        alone = [kernel.alone_s * kernel.count for kernel in kernels if kernel.alone_s is not None]
        lines.append((
            kind, direction, precision, units.integer(sum(kernel.count for kernel in kernels)),
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
        f"Executed: {units.prefixed(characterisation.flop, 'FLOP')} a step; useful: {units.prefixed(useful, 'FLOP')}, "
        "products without what is computed again." + (f" By torch's profiler a step took: {told}." if told else ""),
    )  # fmt: skip


def profile_sheet(characterisation: Characterisation) -> Sheet:
    """The operations that torch's profiler saw take the longest, on the first rank."""
    whole = sum(characterisation.profile.values())
    lines = tuple(
        (each.name if len(each.name) <= LONGEST_NAME else f"{each.name[: LONGEST_NAME - 3]}...", each.kind,
         units.significant(each.calls), units.duration(each.seconds),
         units.percent(each.seconds / whole) if whole else units.MISSING)
        for each in characterisation.longest
    )  # fmt: skip
    return Sheet(
        "Longest operations of a step by torch's profiler, first rank",
        ("operation", "kind", "calls", "in a step", "of all"), lines, 2,
        "Kernels of an accelerator, or operations of a processor, without what they call.",
    )  # fmt: skip


def moved(kernels: Sequence[Kernel]) -> float:
    """Least bytes of all executions in a step."""
    return sum(kernel.count * kernel.bytes for kernel in kernels)


def kernel_sheet(characterisation: Characterisation, most: int = SHOWN_KERNELS) -> Sheet:
    """The kernels and messages that lose the most time; the kernels that move the most bytes where none was timed."""
    times = [kernel.alone_s for kernel in characterisation.kernels]
    times += [message.alone_s for message in characterisation.messages]
    timed = any(seconds is not None for seconds in times)
    order: list[Kernel | Message] = (
        ranked(characterisation)
        if timed
        else sorted(characterisation.kernels, key=lambda kernel: -kernel.count * kernel.bytes)
    )
    lines = tuple(kernel_line(each, characterisation) for each in order[:most])
    rest = f" ({most} of {len(order)})" if len(order) > most else ""
    by = "the time that they lose to their roof" if timed else "least bytes"
    messages = " and messages" if any(isinstance(each, Message) for each in order) else ""
    return Sheet(
        f"Kernels{messages} by {by}, one rank{rest}",
        ("operation", "shapes", "calls", "roof", "at least", "alone", "of roof", "lost"), lines, 2,
        kernel_note(order[:most], characterisation),
    )  # fmt: skip


def kernel_note(shown: Sequence[Kernel | Message], characterisation: Characterisation) -> str:
    """What the columns of kernels are."""
    note = "At least and alone are of one execution, lost is of all in a step."
    timed = any(each.alone_s is not None for each in shown)
    if timed and characterisation.host.ranks > 1:
        note += "\nAll ranks execute each kernel at once, nothing else beside it; alone is the median over them."
    if any((share_of_roof(each, characterisation) or 0.0) > 1 for each in shown):
        note += "\nMore than all of a roof: a cache holds what the kernel works on."
    return note


def share_of_roof(entry: Kernel | Message, characterisation: Characterisation) -> float | None:
    """The least time of a kernel or message over its time alone; ``None`` where one of them is not known."""
    if isinstance(entry, Message):
        bound = message_bound_s(entry, characterisation)
    else:
        bound = bound_of(entry, characterisation)
    return bound / entry.alone_s if bound and entry.alone_s else None


def kernel_line(entry: Kernel | Message, characterisation: Characterisation) -> tuple[str, ...]:
    """The cells of a kernel, or of one kind of messages."""
    if isinstance(entry, Message):
        label = MESSAGE_LABELS.get(entry.kind, entry.kind)
        what = entry.operation.replace("_", "-"), f"{label}, {units.size(entry.bytes / entry.count)}, {entry.link}"
        bound, lost = message_bound_s(entry, characterisation), message_lost_s(entry, characterisation)
    else:
        what = short_name(entry), shape_words(entry)
        bound, lost = bound_of(entry, characterisation), lost_s(entry, characterisation)
    roof = "network" if isinstance(entry, Message) else limited_by(entry, characterisation)
    share = share_of_roof(entry, characterisation)
    return (
        *what, str(entry.count), units.MISSING if bound is None else roof, units.duration(bound),
        units.duration(entry.alone_s), units.small_percent(share),
        units.duration(lost),
    )  # fmt: skip


def short_name(kernel: Kernel) -> str:
    """torch's name, shortened: ``batch_norm back``, ``depthwise conv``."""
    name = kernel.operation.replace("_with_indices", "").removeprefix("native_").replace("_backward", " back")
    return name.replace("convolution", "depthwise conv") if kernel.kind == "depthwise convolution" else name


def shape_words(kernel: Kernel) -> str:
    """``4x32x64x64x64, 64x32x3x3x3``."""
    shapes = ["x".join(map(str, shape)) or "1" for shape in kernel.shapes]
    return ", ".join(shapes[-2:] if kernel.operation == "convolution_backward" else shapes[:2])


def footprint_sheet(characterisation: Characterisation) -> Sheet:
    """Memory of a rank, and how often activations are touched."""
    print_, batch = characterisation.footprint, characterisation.local_batch
    rows: list[tuple[str, float | None, float | None]] = [
        ("parameters", print_.parameters, None), ("gradients, with buffers", print_.gradients, None),
        ("optimizer's state", print_.optimizer, None),
        ("activations that the forward pass writes", print_.written, print_.written),
        ("saved for the backward pass", print_.saved, print_.saved - print_.saved_fixed),
        ("the most that a pass holds", print_.peak, None), ("inputs and targets", print_.input, print_.input),
        ("the most that a step took here", print_.measured_peak, None),
    ]  # fmt: skip
    lines = [
        (name, units.size(size), "" if grows is None else units.size(grows / batch))
        for name, size, grows in rows if size is not None
    ]  # fmt: skip
    touched = touches(characterisation)
    note = f"Each activation byte is touched {units.significant(touched)} times by the least bytes." if touched else ""
    return Sheet("Memory", ("what", "of a rank", "per sample"), tuple(lines), 1, note)


def touches(characterisation: Characterisation) -> float | None:
    """How often, at least, operations touch each byte of the activations; the optimizer's do not count."""
    size = sum(kernel.count * kernel.bytes for kernel in characterisation.kernels if kernel.direction != "optimizer")
    written = characterisation.footprint.written * characterisation.accumulation
    return size / written if written else None


def message_sheet(characterisation: Characterisation) -> Sheet:
    """Messages of a step by kind."""
    lines = [
        (MESSAGE_LABELS.get(message.kind, message.kind), message.operation.replace("_", "-"),
         str("sent to nobody" if message.link == "none" else message.link), units.integer(message.count),
         units.size(message.bytes), units.duration(message.exposed_s))
        for message in characterisation.messages
    ]  # fmt: skip
    lines += [
        (f"measured: {curve.ranks} ranks", curve.operation.replace("_", "-"), curve.link, "",
         f"{units.prefixed(curve.bytes_per_s, 'B/s')}", f"{units.duration(curve.latency_s)} latency")
        for curve in characterisation.curves
    ]  # fmt: skip
    rings = any(message.operation in RING_PASSES for message in characterisation.messages)
    note = f"The least time of a sum, a gather or a scatter is that of a ring{ASSUMED}." if rings else ""
    return Sheet("Messages of a step, one rank", ("kind", "operation", "link", "count", "bytes", "exposed"),
                 tuple(lines), 3, note)  # fmt: skip


def rank_sheet(characterisation: Characterisation) -> Sheet:
    """How the step and the use of the device change with the number of ranks."""
    lines = tuple(rank_line(steps, samples_of_step(characterisation, steps.ranks)) for steps in characterisation.steps)
    headers = ("ranks", "repeats", "step", "range", "samples/s", "FLOP/s per rank", "of the roof")
    return Sheet("Steps on some of the ranks, and on all", headers, lines, 0)


def samples_of_step(characterisation: Characterisation, ranks: int) -> int:
    """Samples that ``ranks`` take in a step; ranks that share samples take the same."""
    spatial = str(characterisation.configuration.get("parallel", {}).get("spatial", "1"))
    return mesh_shape(ranks, spatial).data * characterisation.local_batch * characterisation.accumulation


def rank_line(steps: StepTimes, samples: int) -> tuple[str, ...]:
    """The cells of one number of ranks, whose step has ``samples``; where ranks differ, the least and the most."""
    used = sorted(steps.utilisation)
    ends = "" if not used else units.small_percent(used[0])
    if used and units.small_percent(used[-1]) != ends:
        ends = f"{ends} to {units.small_percent(used[-1])}"
    return (
        str(steps.ranks), str(steps.repeats), units.duration(steps.median_s),
        f"{units.duration(steps.least_s)} to {units.duration(steps.most_s)}",
        units.significant(samples / steps.median_s),
        units.prefixed(sum(steps.flop_per_s) / len(steps.flop_per_s), "FLOP/s"), ends,
    )  # fmt: skip


def roof_sheet(characterisation: Characterisation) -> Sheet:
    """The measured roofs."""
    lines = tuple(
        (roof.resource, roof.name,
         units.duration(roof.value) if roof.unit == "s" else units.prefixed(roof.value, roof.unit), roof.how)
        for roof in characterisation.roofs
    )  # fmt: skip
    return Sheet("Roofs of one rank, measured while all measure", ("resource", "name", "roof", "how"), lines, 4)


def moved_sheet(characterisation: Characterisation) -> Sheet:
    """Bytes that counters saw, beside the least of the ranks that they count."""
    lines, ranks = [], characterisation.host.ranks / characterisation.host.nodes
    for moved_bytes in characterisation.moved:
        whole = moved_bytes.read_bytes + (moved_bytes.written_bytes or 0.0)
        step = whole / moved_bytes.steps if moved_bytes.steps else None
        least = characterisation.bytes * (ranks if moved_bytes.tool == "perf" else 1)
        ratio = step / least if step is not None and moved_bytes.what == "memory" else None
        lines.append((moved_bytes.tool, moved_bytes.what, units.integer(moved_bytes.operations), units.size(whole),
                      units.size(step),
                      units.MISSING if ratio is None else f"{units.significant(ratio)} x"))  # fmt: skip
    counted = units.counted(int(ranks), "rank") if ranks.is_integer() else f"{ranks:.3g} ranks on average"
    return Sheet(
        "Bytes that counters saw", ("tool", "what", "operations", "in all", "in a step", "of the least"),
        tuple(lines), 2,
        f"The least of what is counted: perf counts a node, here with {counted}; "
        "the output of another tool is taken as that of one process. Operations are reads and writes. The readers of "
        "all tools follow the documented formats, and were not tried on counters; perf's events are Intel's.",
    )  # fmt: skip
