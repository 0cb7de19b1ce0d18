"""The worked example of the page on characterisation, from counts and the facts of the machine."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from apps.cosmoflow.sizes import PUBLISHED_GZIP_BYTES
from hpcbench.application import find_application
from hpcbench.batch.machine import MACHINES, find_machine
from hpcbench.characterisation.counts import count_step
from hpcbench.characterisation.model import PRODUCTS, Characterisation, total
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import MeshShape

PAGE = Path(__file__).parents[2] / "docs/characterisation.md"


def test_the_table_of_keys_has_every_field_of_the_file() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| key | what it holds |\n")[2].partition("\n\n")[0]
    keys = [key for line in table.splitlines() for key in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(keys) == sorted(each.name for each in fields(Characterisation))


def least_ms(part: str) -> float:
    """The last cell of a row of the example."""
    example = PAGE.read_text(encoding="utf-8").partition("## Worked example")[2]
    found = re.search(rf"^\| {part}.*\| ([\d.]+) ms \|$", example, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_perlmutter_on_128_nodes() -> None:
    machine, application = find_machine("perlmutter-gpu", [MACHINES]), find_application("cosmoflow")
    settings = {"train.precision": "bf16-mixed", "train.local_batch_size": 1}
    counted = count_step(application, resolve(application, "mlperf", overrides=settings), MeshShape(1, (1,)))
    flop = total([kernel for kernel in counted.kernels if kernel.kind in PRODUCTS], "flop")
    assert machine.peak_16bit_tflop_s is not None
    assert machine.accelerator_memory_gb_s is not None
    assert machine.network_gb_s is not None
    assert machine.filesystem_read_gb_s is not None
    peak, memory = machine.peak_16bit_tflop_s * 1e9, machine.accelerator_memory_gb_s * 1e6  # per ms
    each = sum(
        kernel.count * max(kernel.flop / peak if kernel.kind in PRODUCTS else 0.0, kernel.bytes / memory)
        for kernel in counted.kernels
    )
    gradients = counted.messages[0].bytes
    for part, value in (
        ("compute", flop / peak), ("memory", total(counted.kernels, "bytes") / memory), ("kernels", each),
        ("network", 2 * gradients * 127 / 128 / (machine.network_gb_s * 1e6)),
        ("storage", 512 * PUBLISHED_GZIP_BYTES / (machine.filesystem_read_gb_s * 1e6)),
    ):  # fmt: skip
        assert least_ms(part) == pytest.approx(value, abs=0.005), part
