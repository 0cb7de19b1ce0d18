"""The page of a characterisation, and what the terminal shows."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.characterisation.model import Characterisation
from hpcbench.characterisation.plots import figures
from hpcbench.characterisation.roofline import Bound, bounds, product_flop, step_s
from hpcbench.characterisation.tables import kernel_sheet, message_sheet, roof_sheet, sheets, touches
from hpcbench.results import units
from hpcbench.results.report import Drawn, write_page
from hpcbench.results.tables import WIDTH


def as_text(found: Characterisation) -> str:
    """What was characterised, what limits a step, every table, and what is left out; within 100 columns."""
    head = f"{headline(found)}. {host_words(found)} {verdict(found)}"
    blocks = [textwrap.fill(head, WIDTH), *(each.as_text() for each in sheets(found))]
    if found.notes:
        blocks.append("\n".join(textwrap.fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ")
                                for note in found.notes))  # fmt: skip
    return "\n\n".join(blocks)


def kernels_text(found: Characterisation, kind: str | None, most: int) -> str:
    """The kernels of one kind, or of all, with the roofs that they are compared with; within 100 columns."""
    chosen = tuple(kernel for kernel in found.kernels if kind in (None, kernel.kind))
    shown = [kernel_sheet(replace(found, kernels=chosen), most), message_sheet(found), roof_sheet(found)]
    blocks = [textwrap.fill(f"{headline(found)}. {host_words(found)}", WIDTH)]
    return "\n\n".join([*blocks, *(each.as_text() for each in shown if each.lines)])


def write_characterisation_page(found: Characterisation, path: Path, command: str = "") -> None:
    """Write the page by way of a temporary name. Raises ``InputError`` where its folder cannot be written."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.characterisation"), PackageLoader("hpcbench.results")]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    page = environment.get_template("characterisation.html").render(
        version=__version__, page_title=headline(found), found=found, headline=headline(found),
        verdict=verdict(found), tiles=tiles(found), figures=[Drawn.of(each) for each in figures(found)],
        sheets=sheets(found), host=host_words(found), command=command,
    )  # fmt: skip
    write_page(path, page)


def headline(found: Characterisation) -> str:
    """What was characterised."""
    batch = f"local batch {found.local_batch}"
    if found.accumulation > 1:
        batch += f" x {found.accumulation}"
    return f"{found.application} {found.preset}, {batch}, {found.precision}"


def host_words(found: Characterisation) -> str:
    """Where it was measured."""
    host = found.host
    threads = f" x {units.counted(host.threads, 'thread')}" if host.device == "cpu" else ""
    versions = ", ".join(f"{name} {version}" for name, version in host.software.items())
    ranks = f"{units.counted(host.nodes, 'node')}, {units.counted(host.ranks, 'rank')}{threads}"
    return f"{ranks} on {host.model or host.device} ({host.device}); {versions}."


def longest(found: Characterisation) -> Bound | None:
    """The part whose least time is the longest."""
    return max(bounds(found), key=lambda each: each.bound_s, default=None)


def verdict(found: Characterisation) -> str:
    """What limits a step, in a sentence."""
    most, seconds = longest(found), step_s(found)
    if most is None:
        return "Nothing was measured: the counts are those of any machine."
    words = f"Of all parts, {most.part} ({most.roof}) needs most time, {units.duration(most.bound_s)} a step at least"
    if seconds is None:
        return f"{words}."
    return f"{words}; the step took {units.duration(seconds)}, {units.significant(seconds / most.bound_s)} times that."


def tiles(found: Characterisation) -> list[dict[str, str]]:
    """The numbers at the top."""
    seconds, batch = step_s(found), found.local_batch * found.accumulation
    flop, size = product_flop(found), found.bytes
    touched = touches(found)
    rate = None if seconds is None else batch / seconds
    shared = found.sharing > 1
    per = f"per sample, on each of {found.sharing} ranks that share it" if shared else "per sample"
    who = f"{found.sharing} ranks that share samples" if shared else "a rank"
    return [
        {"label": "Operations", "value": units.prefixed(found.useful_flop, "FLOP"),
         "note": f"{per}; products, forward and backward"},
        {"label": "Least bytes", "value": units.size(size / batch),
         "note": f"{per}; {units.significant(flop / size)} FLOP/B"},
        {"label": "Activations", "value": units.size(found.footprint.written / found.local_batch),
         "note": f"{per}; each touched {units.significant(touched)} times"},
        {"label": "Samples", "value": units.MISSING if rate is None else f"{units.significant(rate)}/s",
         "note": "not measured" if rate is None else f"{who}, all ranks at work"},
    ]  # fmt: skip
