"""The table of a proposal as text, for LaTeX, and as comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill

from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.tables import WIDTH, table
from hpcbench.study.scaling.proposal import Line, largest_recommended

LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "[": "{[}", "*": "{*}",  # \\ would take the last two as its options
}  # fmt: skip
LEFT = ("variant", "advice")
"""Columns that hold words."""

Cells = dict[str, list[str]]
"""Columns by header."""

CSV_COLUMNS: dict[str, Callable[[Line], str | float | None]] = {
    "variant": lambda line: line.variant,
    "nodes": lambda line: line.nodes,
    "ranks": lambda line: line.ranks,
    "instances": lambda line: line.instances,
    "runs": lambda line: line.campaign.runs,
    "epochs_per_run": lambda line: line.training.epochs,
    "samples_per_run": lambda line: line.training.samples,
    "hours_per_run": lambda line: line.hours_per_run,
    "node_hours": lambda line: line.node_hours,
    "core_hours": lambda line: line.core_hours,
    "gpu_hours": lambda line: line.gpu_hours,
    "contingency": lambda line: line.campaign.contingency,
    "node_hours_with_contingency": lambda line: line.asked(line.node_hours),
    "core_hours_with_contingency": lambda line: line.asked(line.core_hours),
    "gpu_hours_with_contingency": lambda line: line.asked(line.gpu_hours),
    "flop": lambda line: line.flop,
    "data_bytes": lambda line: line.data_bytes,
    "data_were": lambda line: "" if line.data_bytes is None else "staged" if line.staged else "read",
    "memory_per_rank_bytes": lambda line: line.memory_bytes,
    "memory_of": lambda line: "" if line.memory_bytes is None else "accelerator" if line.accelerators else "process",
    "dataset_bytes": lambda line: line.dataset_bytes,
    "run_folders_bytes": lambda line: line.run_folders_bytes,
    "storage_bytes": lambda line: line.storage_bytes,
    "efficiency": lambda line: line.efficiency,
    "efficiency_low": lambda line: line.efficiency_interval[0] if line.efficiency_interval else None,
    "efficiency_high": lambda line: line.efficiency_interval[1] if line.efficiency_interval else None,
    "min_efficiency": lambda line: line.campaign.min_efficiency,
    "recommended": lambda line: "yes" if line.recommended else "no",
    "basis": lambda line: line.training.basis,
    "verified": lambda _: NOT_VERIFIED,
}
"""Figures in plain base units; shares are fractions of 1."""


def as_text(lines: Sequence[Line]) -> str:
    """Two plain tables for each variant within 100 columns, under a title that says what they show.

    Here and for ``as_latex``, ``lines`` has at least one line.
    """
    blocks = [f"{fill(_title(lines), WIDTH)}\n{NOT_VERIFIED}."]
    for variant, members in _variants(lines).items():
        tables = [table(list(cells), list(zip(*cells.values(), strict=True)), right=sorted({*cells} - {*LEFT}))
                  for cells in (_sizes(members), _costs(members))]  # fmt: skip
        head = ": ".join(part for part in (variant, _advice(members)) if part)
        blocks += ["\n".join([fill(head, WIDTH), tables[0]]), tables[1]]
    return "\n\n".join(blocks) + "\n"


def as_latex(lines: Sequence[Line]) -> str:
    """Two tables for LaTeX with the package booktabs; the caption of the first is that of ``as_text``."""
    variants = _variants(lines)
    advice = [f"{name}: {_advice(members)}" if name else _advice(members) for name, members in variants.items()]
    names = {"variant": [line.variant for line in lines]} if [*variants] != [""] else {}
    first = _tabular(names | _sizes(lines), " ".join([_title(lines), f"{NOT_VERIFIED}.", *advice]))
    return first + "\n" + _tabular(names | _costs(lines), "Cost of the same runs.")


def as_csv(lines: Sequence[Line]) -> str:
    """Every figure with all its digits in base units; unset figures are empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows([column(line) for column in CSV_COLUMNS.values()] for line in lines)
    return file.getvalue()


def escaped(text: str) -> str:
    """``text`` for LaTeX's text mode."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def _tabular(cells: Cells, caption: str) -> str:
    rows = [list(cells), *zip(*cells.values(), strict=True)]
    head, *body = [" & ".join(escaped(cell) for cell in row) + r" \\" for row in rows]
    columns = "".join("l" if name in LEFT else "r" for name in cells)
    begin = [r"\begin{table}", r"\centering", rf"\caption{{{escaped(caption)}}}"]
    begin += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _variants(lines: Sequence[Line]) -> dict[str, list[Line]]:
    lines_by_variant: dict[str, list[Line]] = {}
    for line in lines:
        lines_by_variant.setdefault(line.variant, []).append(line)
    return lines_by_variant


def _title(lines: Sequence[Line]) -> str:
    """What the figures show, in sentences."""
    campaign = lines[0].campaign
    runs = f"{campaign.runs:,} run{'' if campaign.runs == 1 else 's'} on each size"
    said = [f"Cost of {runs}{_basis(lines)}."]
    if campaign.contingency:
        share = _share(campaign.contingency)
        said.append(f"Hours under a header with +{share} include {share} of contingency.")
    said.append(
        f"Efficiency is relative to the smallest size measured; below {_share(campaign.min_efficiency)} a size is not "
        "recommended."
    )
    known = {line.staged for line in lines if line.data_bytes is not None}
    if True in known:
        said.append("Staged: what landed on all nodes together.")
    if False in known:
        said.append("Read: the dataset from where it lies, once per epoch and evaluation.")
    if any(line.memory_bytes for line in lines):
        what = "accelerator" if any(line.accelerators for line in lines) else "rank's process"
        said.append(f"Memory: the peak of {'an' if what[0] == 'a' else 'a'} {what}.")
    if any(line.storage_bytes for line in lines):
        said.append("Storage: the dataset once, and the folders of all runs as large as those measured.")
    return " ".join(said)


def _basis(lines: Sequence[Line]) -> str:
    """What the length of a run is based on; by variant if that differs."""
    basis_by_variant = {variant: members[0].training.basis for variant, members in _variants(lines).items()}
    bases = dict.fromkeys(basis for basis in basis_by_variant.values() if basis)
    if len(bases) > 1:
        return ": " + "; ".join(f"{variant}: {basis}" for variant, basis in basis_by_variant.items())
    return "".join(f": {basis}" for basis in bases)


def _advice(lines: Sequence[Line]) -> str:
    """The largest recommended size of one variant, and the sizes for which repeats scatter too much to be sure."""
    nodes = largest_recommended(lines)
    later = any(line.recommended and line.nodes > (nodes or 0) for line in lines)
    if nodes is None:
        said = "No size is recommended."
    else:
        said = f"The largest recommended size is {units.counted(nodes, 'node')}."
    if later:
        said += " Sizes beyond the first that is not recommended do not count."
    once = [f"{line.nodes:,}" for line in lines[1:] if line.efficiency_interval is None]
    if once:
        said += f" Single repeats cannot tell how sure the efficiency is on {', '.join(once)} nodes."
    doubts = [
        f"{line.nodes:,} (95 %: {100 * low:.0f} to {100 * high:.0f} %)"
        for line in lines
        if line.in_doubt and line.efficiency_interval is not None
        for low, high in [line.efficiency_interval]
    ]
    if not doubts:
        return said
    return (
        f"{said} The repeats scatter too much to say whether the efficiency is below "
        f"{_share(lines[0].campaign.min_efficiency)} on {', '.join(doubts)} nodes: make more."
    )


def _sizes(lines: Sequence[Line]) -> Cells:
    """One run on each size, and whether the size is recommended."""
    columns: dict[str, Callable[[Line], str]] = {
        "nodes": lambda line: units.integer(line.nodes),
        "ranks": lambda line: units.integer(line.ranks),
        "instances": lambda line: units.integer(line.instances),
        "epochs/run": lambda line: units.significant(line.training.epochs),
        "h/run": lambda line: units.significant(line.hours_per_run),
        "memory": lambda line: _bytes(line.memory_bytes),
        "efficiency": lambda line: units.percent(line.efficiency),
        "advice": lambda line: "" if line.recommended else "not recommended",
    }
    if all(line.instances == 1 for line in lines):
        del columns["instances"]
    return _known(lines, columns)


def _costs(lines: Sequence[Line]) -> Cells:
    """All runs together on each size."""
    share = lines[0].campaign.contingency
    more = f" +{_share(share)}" if share else ""
    columns: dict[str, Callable[[Line], str]] = {
        "nodes": lambda line: units.integer(line.nodes),
        "node-h": lambda line: units.significant(line.node_hours),
        f"node-h{more}": lambda line: units.significant(line.asked(line.node_hours)),
        f"GPU-h{more}": lambda line: units.significant(line.asked(line.gpu_hours)),
        f"core-h{more}": lambda line: units.significant(line.asked(line.core_hours)),
        "operations": lambda line: units.MISSING if line.flop is None else units.prefixed(line.flop, "FLOP"),
        "staged": lambda line: _bytes(line.data_bytes if line.staged else None),
        "read": lambda line: _bytes(None if line.staged else line.data_bytes),
        "storage": lambda line: _bytes(line.storage_bytes),
    }
    return _known(lines, columns)


def _known(lines: Sequence[Line], columns: Mapping[str, Callable[[Line], str]]) -> Cells:
    """Columns by header, without those in which no line has a figure."""
    cells = {name: [cell(line) for line in lines] for name, cell in columns.items()}
    return {name: column for name, column in cells.items() if set(column) - {"", units.MISSING}}


def _bytes(value: float | None) -> str:
    """Bytes in decimal units: 30.0 TB."""
    return units.MISSING if value is None else units.prefixed(value, "B")


def _share(value: float) -> str:
    """A share without needless decimals: 15 %, 12.5 %."""
    return f"{100 * value:.4g} %"
