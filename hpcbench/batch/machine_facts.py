"""The facts of machines in words: a page for one with its sources, and a table of many."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.batch.machine import Machine, Source, Storage
from hpcbench.results.tables import WIDTH, table

FACTS = {
    "organization": ("run by", ""), "nodes": ("nodes", ""), "processor": ("processors of a node", ""),
    "cores": ("cores of a node", ""), "threads_per_core": ("threads of a core", ""),
    "memory_gib": ("memory of a node", "GiB"), "accelerators": ("accelerators of a node", ""),
    "accelerator": ("accelerator", ""), "accelerator_memory_gib": ("its memory", "GiB"),
    "accelerator_memory_gb_s": ("memory bandwidth", "GB/s"), "peak_16bit_tflop_s": ("peak in 16 bits", "TFLOP/s"),
    "peak_tf32_tflop_s": ("peak in TF32", "TFLOP/s"), "peak_32bit_tflop_s": ("peak in float32", "TFLOP/s"),
    "accelerator_link_gb_s": ("link between two of them", "GB/s each way"),
    "host_link_gb_s": ("link to one from its node", "GB/s"), "network": ("network", ""),
    "network_gb_s": ("network of a node", "GB/s"), "local_disk": ("storage device in a node", ""),
    "filesystem": ("file system", ""), "filesystem_tb": ("room there", "TB"),
    "filesystem_read_gb_s": ("read by all nodes", "GB/s"), "charge": ("a node-hour costs", ""),
}  # fmt: skip
"""The facts in the order of a page: words and unit."""


def facts_page(machine: Machine) -> str:
    """The facts of a machine with their units and sources, unknown ones too: lines that begin with ``#``."""
    values = {words: (name, fact_words(machine, name, unit)) for name, (words, unit) in FACTS.items()}
    values |= {
        f"its memory with {feature.name}": ("features", f"{feature.accelerator_memory_gib:g} GiB")
        for feature in machine.features
    }
    storage = {f"storage {store.path or ''}".rstrip(): (store.fact, storage_words(store)) for store in machine.storage}
    if not storage:
        storage = {"node-local storage": ("", "none" if machine.local_disk is False else "unknown")}
    names = ", ".join(sorted({f"{published.organization}/{published.system}" for published in machine.published_as}))
    values |= storage | {"in published rounds as": ("published_as", names or "none known")}
    numbers = {name: number for number, source in enumerate(machine.sources, 1) for name in source.facts}
    rows = [[words, value, f"[{numbers[name]}]" if name in numbers else ""] for words, (name, value) in values.items()]
    width = max(min(len(value), 40) for _, value, _ in rows)
    lines = [f"{words:26} {value:{width}} {source}".rstrip() for words, value, source in rows]
    sources = [line for number, source in enumerate(machine.sources, 1) for line in source_lines(number, source)]
    head = f"{machine.title}: facts of the machine, and the pages that they are from"
    return "\n".join(f"# {line}" for line in [head, *lines, *sources])


def source_lines(number: int, source: Source) -> list[str]:
    """Address and date of a source, on two lines if one would be too wide. Addresses are not broken."""
    line = f"[{number}] {source.url}, read {source.read}"
    return [line] if len(line) <= WIDTH - 2 else [f"[{number}] read {source.read}:", source.url]


def fact_words(machine: Machine, name: str, unit: str) -> str:
    """The value of a fact with its unit, or ``unknown``."""
    value = getattr(machine, name)
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "charge":
        unit = machine.charge_unit or ""
    return f"{value_words(value)} {unit}".rstrip()


def value_words(value: object) -> str:
    """A number without needless decimals, or a text."""
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)


def storage_words(storage: Storage) -> str:
    """Room, speed, and what kind of storage it is."""
    room = "room unknown" if storage.gb is None else f"{storage.gb:g} GB"
    speeds = [f"{way} {value:g} GB/s" for way, value in (("reads", storage.read_gb_s), ("writes", storage.write_gb_s))
              if value is not None]  # fmt: skip
    kind = ["memory of the node"] if storage.in_memory else []
    return ", ".join([room, *kind, *speeds, *(["shared with other jobs"] if storage.shared else [])])


def machines_table(machines: Sequence[Machine]) -> str:
    """What a node of each machine has, below a text that explains the columns; ``?`` if it is unknown."""
    rows = [
        [machine.name, number(machine.nodes), accelerator_words(machine), number(machine.peak_16bit_tflop_s),
         number(machine.accelerator_memory_gb_s), number(machine.network_gb_s), room_words(machine),
         "yes" if machine.published_as else ""]
        for machine in machines
    ]  # fmt: skip
    head = ("machine", "nodes", "of a node", "TFLOP/s", "GB/s", "network", "storage", "rounds")
    said = (
        "TFLOP/s (peak in 16 bits) and GB/s (memory) are of an accelerator, network (GB/s) and storage of\n"
        "a node; rounds: whether it has published results of MLPerf HPC. Where nothing is known, ?."
    )
    return f"{said}\n\n{table(head, rows, head[1:2] + head[3:6])}"


def room_words(machine: Machine) -> str:
    """The largest room of a node that jobs may write to, and whether it is memory; ``none`` without devices or size."""
    best = max(machine.storage, key=lambda storage: (storage.in_memory is False, storage.gb or 0), default=None)
    if machine.local_disk is False and (best is None or best.gb is None):
        return "none"
    if best is None:
        return "?"
    room = "?" if best.gb is None else f"{best.gb:g} GB"
    return f"{room}, memory" if best.in_memory else room


def number(value: float | None) -> str:
    """A number, or ``?``."""
    return "?" if value is None else value_words(value)


def accelerator_words(machine: Machine) -> str:
    """Number and model of the accelerators of a node, or its processors if it has none."""
    if machine.accelerators == 0:
        return machine.processor or "?"
    return f"{number(machine.accelerators)} {machine.accelerator or '?'}"
