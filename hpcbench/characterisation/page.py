"""The page of a characterisation, and what the terminal shows."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.characterisation.model import MESSAGE, Characterisation
from hpcbench.characterisation.new_file import write_new
from hpcbench.characterisation.plots import figures
from hpcbench.characterisation.roofline import longest, product_flop, step_s
from hpcbench.characterisation.tables import kernel_sheet, message_sheet, roof_sheet, sheets, touches
from hpcbench.results import units
from hpcbench.results.report import Drawn
from hpcbench.results.tables import WIDTH


def as_text(characterisation: Characterisation) -> str:
    """What was characterised, what limits a step, every table, and what is left out; within 100 columns."""
    head = f"{headline(characterisation)}. {host_words(characterisation)} {verdict(characterisation)}"
    blocks = [textwrap.fill(head, WIDTH), *(sheet.as_text() for sheet in sheets(characterisation))]
    return "\n\n".join([*blocks, *notes_text(characterisation)])


def notes_text(characterisation: Characterisation) -> list[str]:
    """What is left out, as a block of lines; none where nothing is."""
    lines = [
        textwrap.fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in characterisation.notes
    ]  # fmt: skip
    return ["\n".join(lines)] if lines else []


def kernels_text(characterisation: Characterisation, kind: str | None, most: int) -> str:
    """The kernels of one kind, the messages, or all, with the roofs that they are compared with; within 100 columns."""
    kernels = tuple(kernel for kernel in characterisation.kernels if kind in (None, kernel.kind))
    messages = characterisation.messages if kind in (None, MESSAGE) else ()
    shown = [
        kernel_sheet(replace(characterisation, kernels=kernels, messages=messages), most),
        message_sheet(characterisation),
        roof_sheet(characterisation),
    ]
    blocks = [textwrap.fill(f"{headline(characterisation)}. {host_words(characterisation)}", WIDTH)]
    blocks += [sheet.as_text() for sheet in shown if sheet.lines]
    return "\n\n".join([*blocks, *notes_text(characterisation)])


def write_characterisation_page(characterisation: Characterisation, path: Path, command: str = "") -> Path:
    """Write the page by way of a temporary name; returns its path. Raises ``InputError`` where it cannot be written."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.characterisation"), PackageLoader("hpcbench.results")]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    page = environment.get_template("characterisation.html").render(
        version=__version__, page_title=headline(characterisation), characterisation=characterisation,
        headline=headline(characterisation), verdict=verdict(characterisation), tiles=tiles(characterisation),
        figures=[Drawn.of(figure) for figure in figures(characterisation)],
        sheets=sheets(characterisation), host=host_words(characterisation), command=command,
    )  # fmt: skip
    return write_new(path, "--page", lambda temporary: temporary.write_text(page, encoding="utf-8"))


def headline(characterisation: Characterisation) -> str:
    """What was characterised."""
    batch = f"local batch {characterisation.local_batch}"
    if characterisation.accumulation > 1:
        batch += f" x {characterisation.accumulation}"
    return f"{characterisation.application} {characterisation.preset}, {batch}, {characterisation.precision}"


def host_words(characterisation: Characterisation) -> str:
    """Where it was measured."""
    host = characterisation.host
    threads = f" x {units.counted(host.threads, 'thread')}" if host.device == "cpu" else ""
    versions = ", ".join(f"{name} {version}" for name, version in host.software.items())
    ranks = f"{units.counted(host.nodes, 'node')}, {units.counted(host.ranks, 'rank')}{threads}"
    return f"{ranks} on {host.model or host.device} ({host.device}); {versions}."


def verdict(characterisation: Characterisation) -> str:
    """What limits a step, in a sentence."""
    most, seconds = longest(characterisation), step_s(characterisation)
    if most is None:
        return "Nothing was measured: the counts are those of any machine."
    words = f"Of all parts, {most.words} needs most time, {units.duration(most.bound_s)} a step at least"
    if seconds is None:
        return f"{words}."
    return f"{words}; the step took {units.duration(seconds)}, {units.significant(seconds / most.bound_s)} times that."


def tiles(characterisation: Characterisation) -> list[dict[str, str]]:
    """The numbers at the top."""
    seconds, batch = step_s(characterisation), characterisation.local_batch * characterisation.accumulation
    flop, size = product_flop(characterisation), characterisation.bytes
    touched = touches(characterisation)
    rate = None if seconds is None else batch / seconds
    shared = characterisation.sharing > 1
    per = f"per sample, on each of {characterisation.sharing} ranks that share it" if shared else "per sample"
    who = f"{characterisation.sharing} ranks that share samples" if shared else "a rank"
    return [
        {"label": "Operations", "value": units.prefixed(characterisation.useful_flop, "FLOP"),
         "note": f"{per}; products, forward and backward"},
        {"label": "Least bytes", "value": units.size(size / batch),
         "note": f"{per}; {units.significant(flop / size if size else None)} FLOP/B"},
        {"label": "Activations", "value": units.size(characterisation.footprint.written / characterisation.local_batch),
         "note": f"{per}; each touched {units.significant(touched)} times"},
        {"label": "Samples", "value": units.MISSING if rate is None else f"{units.significant(rate)}/s",
         "note": "not measured" if rate is None else f"{who}, all ranks at work"},
    ]  # fmt: skip
