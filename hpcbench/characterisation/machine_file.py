"""A machine file from a characterisation: the facts that it measured or saw, with the measurement as their source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcbench.characterisation.model import SIXTEEN_BIT, Characterisation, Roof
from hpcbench.characterisation.new_file import write_new
from hpcbench.characterisation.roofline import node_bytes_per_s
from hpcbench.measure.system import filesystem
from hpcbench.results import units

PEAKS = {"peak_32bit_tflop_s": "float32", "peak_tf32_tflop_s": "tf32"}


def write_machine(characterisation: Characterisation, path: Path) -> Path:
    """Write the facts as a file that ``--machine`` takes; returns its path.

    Raises ``InputError`` where it cannot be written.
    """
    import yaml

    text = yaml.safe_dump(machine_facts(characterisation), sort_keys=False, allow_unicode=True, width=110)
    note = (
        "# Measured by hpcbench characterize: rates are what programs reached, not what makers state. Facts that were\n"
        "# not measured are absent.\n"
    )
    if any(roof.resource in ("read", "write") for roof in characterisation.roofs):
        note += (
            "# The path of a storage is where the folder that was probed is mounted on the machine that wrote this.\n"
            "# Change it if jobs use another.\n"
        )
    return write_new(path, "--machine-out", lambda temporary: temporary.write_text(note + text, encoding="utf-8"))


def machine_facts(characterisation: Characterisation) -> dict[str, Any]:
    """The values of a machine file; what was not measured is left out.

    Peaks and memory bandwidth are those of each accelerator. On a machine without any they are those of the node, so
    the values of its ranks are added up.
    """
    host = characterisation.host
    accelerated = host.device != "cpu"
    per_node = max(1, host.ranks // host.nodes)
    ranks = 1 if accelerated else per_node
    facts: dict[str, Any] = {"accelerators": per_node if accelerated else 0}
    if accelerated:
        facts |= {"accelerator": host.model, "accelerator_memory_gib": gib(host.memory_bytes)}
    else:
        facts |= {"processor": host.model, "cores": per_node * host.threads, "memory_gib": gib(host.memory_bytes)}
    facts["accelerator_memory_gb_s"] = scaled(characterisation.roof("memory"), ranks / 1e9)
    sixteen = [roof for name in SIXTEEN_BIT if (roof := characterisation.roof("compute", name)) is not None]
    facts["peak_16bit_tflop_s"] = scaled(max(sixteen, key=lambda roof: roof.value, default=None), ranks / 1e12)
    facts |= {
        name: scaled(characterisation.roof("compute", precision), ranks / 1e12) for name, precision in PEAKS.items()
    }
    facts |= links(characterisation)
    storage = storage_facts(characterisation, per_node)
    known = {name: value for name, value in facts.items() if value is not None}
    names = [*known, *(f"storage.{folder['path']}" for folder in storage)]
    source = {
        "url": f"measured: hpcbench {characterisation.version} on {host.name}",
        "read": characterisation.date[:10],
        "facts": names,
    }
    title = f"{host.name}, as measured with {units.counted(host.ranks, 'rank')}"
    return {"title": title, **known, **({"storage": storage} if storage else {}), "sources": [source]}


def gib(size: int | None) -> int | None:
    """Whole GiB."""
    return None if size is None else max(1, size // 2**30)


def scaled(roof: Roof | None, factor: float) -> float | None:
    """A rate in another unit, to four digits."""
    return None if roof is None else float(f"{roof.value * factor:.4g}")


def links(characterisation: Characterisation) -> dict[str, float]:
    """Rates at which ranks send to each other: between accelerators of a node, and from a node to others."""
    facts = {}
    if (network := node_bytes_per_s(characterisation)) is not None:
        facts["network_gb_s"] = float(f"{network / 1e9:.4g}")
    for curve in characterisation.curves:
        within = curve.operation == "exchange" and curve.link == "within a node"
        if within and characterisation.host.device != "cpu":
            facts["accelerator_link_gb_s"] = float(f"{curve.bytes_per_s / 1e9:.4g}")
    return facts


def storage_facts(characterisation: Characterisation, per_node: int) -> list[dict[str, Any]]:
    """Rates per node of each storage with a folder that was probed; of several folders on one, the best."""
    storages: dict[str, dict[str, Any]] = {}
    for roof in characterisation.roofs:
        if roof.resource in ("read", "write"):
            storage = storages.setdefault(mounted_at(Path(roof.name)), {"path": mounted_at(Path(roof.name))})
            rate = f"{roof.resource}_gb_s"
            storage[rate] = max(storage.get(rate, 0.0), scaled(roof, per_node / 1e9) or 0.0)
            if filesystem(Path(roof.name)) in ("tmpfs", "ramfs"):
                storage["in_memory"] = True
    return list(storages.values())


def mounted_at(folder: Path) -> str:
    """Where the storage of a folder is mounted; below the root, its first folder. A user's own names are no facts.

    A folder that is not on this machine, as in a characterisation of another, stays as it is.
    """
    if not folder.is_dir():
        return str(folder)
    whole = folder.resolve()
    mount = next(place for place in (whole, *whole.parents) if place.is_mount())
    return str(mount if mount.parent != mount else Path(*whole.parts[:2]))
