"""What samples cost to read, and what each tier of storage would have to deliver, as tables."""

from __future__ import annotations

from typing import get_args

from hpcbench.characterisation.model import Characterisation, Reading, Roof, Tier
from hpcbench.characterisation.roofline import step_s
from hpcbench.characterisation.sheet import ASSUMED, Sheet
from hpcbench.results import units

TIERS: tuple[Tier, ...] = get_args(Tier)
TIER_WORDS: dict[Tier, str] = {
    "memory": "memory of the node", "node-local": "storage of the node", "shared": "a filesystem that nodes share",
}  # fmt: skip
NOT_PROBED = "not probed"


def input_sheet(characterisation: Characterisation) -> Sheet:
    """What samples cost, and the read rate that the attained step needs."""
    data, reading, seconds = characterisation.input, characterisation.input.reading, step_s(characterisation)
    lines: list[tuple[str, str]] = []
    root = characterisation.configuration.get("data", {}).get("root")
    assumed = "" if root or reading is not None or data.stored_bytes is None else ASSUMED
    if data.stored_bytes is not None:
        form = f" ({data.form})" if data.form else ""
        lines.append((f"a sample as stored{form}{assumed}", units.size(data.stored_bytes)))
        if data.train_samples:
            samples = units.counted(data.train_samples, "sample")
            lines.append((f"an epoch of {samples}{assumed}", units.size(data.stored_bytes * data.train_samples)))
        if seconds and characterisation.read_bytes is not None:
            need = characterisation.read_bytes * passes(characterisation) / seconds
            lines.append((f"a rank needs at the attained step{assumed}", f"{units.prefixed(need, 'B/s')}"))
    if data.landed_bytes is not None:
        lines.append(("a sample as staging lands it", units.size(data.landed_bytes)))
    lines.append(("a sample as the model takes it", units.size(data.prepared_bytes)))
    if data.files is not None:
        lines.append(("files of a sample", str(data.files)))
    if reading is not None:
        lines += [
            ("bytes that a rank reads of a sample", units.size(reading.bytes)),
            ("its read calls for that", units.significant(reading.calls)),
            *of_an_epoch(reading, times(data.train_samples, characterisation.sharing)),
            ("reading and decoding a sample, from the page cache", units.duration(reading.read_s)),
            ("processor time of that", units.duration(reading.processor_s)),
            ("preparing a sample on the device", units.duration(reading.prepare_s)),
        ]
    note = "Assumed: the application's size of a sample in this form; --data.root has it measured." if assumed else ""
    return Sheet("Input", ("what", "value"), tuple(lines), note=note)


def passes(characterisation: Characterisation) -> int:
    """Samples of a rank in a step."""
    return characterisation.local_batch * characterisation.accumulation


def of_an_epoch(reading: Reading, samples: float | None) -> list[tuple[str, str]]:
    """The lines of an epoch's bytes and read calls, where both are known; each rank that shares a sample reads it."""
    lines = []
    if reading.bytes is not None and samples is not None:
        lines.append(("bytes read of an epoch", units.size(reading.bytes * samples)))
    if reading.calls is not None and samples is not None:
        lines.append(("read calls of an epoch", units.integer(reading.calls * samples)))
    return lines


def tier_sheet(characterisation: Characterisation) -> Sheet:
    """Bytes and reads of each tier that the samples may be read from, and the rates that these need."""
    reads = [roof for roof in characterisation.roofs if roof.resource == "read"]
    rows: list[tuple[Tier | None, Roof | None]] = []
    for each in TIERS:
        rows += [(each, roof) for roof in reads if roof.tier == each] or [(each, None)]
    rows += [(None, roof) for roof in reads if roof.tier is None]
    size = characterisation.input.stored_bytes
    lines = tuple(tier_line(characterisation, tier, roof) for tier, roof in rows) if size is not None else ()
    reading = characterisation.input.reading
    tier = None if reading is None else reading.tier
    lies = "" if tier is None else f" The samples that were read lie on {TIER_WORDS[tier]}."
    return Sheet(
        "Input by tier, if samples are read from there",
        ("tier", "where", "a sample", "reads", "an epoch", "reads", "needs", "reads/s", "roof", "of roof"), lines, 2,
        "An epoch is that of all ranks; needs and roof are of one rank, at the attained step." + lies,
    )  # fmt: skip


def tier_line(characterisation: Characterisation, tier: Tier | None, roof: Roof | None) -> tuple[str, ...]:
    """The cells of one tier; staging lands another form on those of a node where it transforms the files."""
    data, seconds = characterisation.input, step_s(characterisation)
    lands = tier in ("memory", "node-local") and data.landed_bytes is not None
    size = data.landed_bytes if lands else characterisation.read_bytes
    calls = data.reading.calls if data.reading is not None and not lands else None
    samples = times(data.train_samples, characterisation.sharing)
    rate = passes(characterisation) / seconds if seconds else None
    needed = times(size, rate)
    share = needed / roof.value if needed is not None and roof is not None else None
    return (
        tier or "unknown", NOT_PROBED if roof is None else roof.name, units.size(size), units.significant(calls),
        units.size(times(size, samples)), units.integer(times(calls, samples)), units.prefixed(needed, "B/s"),
        units.significant(times(calls, rate)), units.prefixed(None if roof is None else roof.value, "B/s"),
        units.small_percent(share),
    )  # fmt: skip


def times(value: float | None, factor: float | None) -> float | None:
    """The product, where both are known."""
    return None if value is None or factor is None else value * factor
