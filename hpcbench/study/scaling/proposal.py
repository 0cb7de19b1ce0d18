"""What runs cost on each size, as a proposal for computer time asks for it: hours, operations, data and efficiency.

The baseline is the smallest size that was measured, and efficiency is relative to it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from textwrap import fill

from hpcbench.results import units
from hpcbench.results.tables import WIDTH, table
from hpcbench.study.scaling.rows import Row, by_variant, efficiency
from hpcbench.study.scaling.solution import HOUR_S, node_hours, run_s
from staging.errors import InputError

LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "[": "{[}", "*": "{*}",  # \\ would take the last two for its options
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One size of a variant. Figures beside ``hours`` are of all ``runs`` together, each of which trains one model."""

    variant: str
    nodes: int
    ranks: int
    instances: int
    """That train at the same time and share the nodes and ranks."""
    runs: int
    hours: float
    """Of one run, with its staging and start."""
    node_hours: float
    core_hours: float | None
    """Unset where the site does not say how many cores a node has; GPUs likewise."""
    gpu_hours: float | None
    exaflop: float | None
    """1e18 floating-point operations of training; unset where they were not counted."""
    terabytes: float | None
    """1e12 bytes that were staged, on all nodes together, or the dataset once per run where nothing was."""
    efficiency: float
    """Throughput over the baseline's, over the factor in nodes."""


def proposal(
    rows: Sequence[Row],
    runs: int,
    samples_per_run: Mapping[int, float] | float,
    dataset_bytes: int | None = None,
    evaluations_per_run: Mapping[int, float] | float = 0.0,
) -> list[Line]:
    """What ``runs`` runs cost on each size, variant by variant, smallest first.

    Samples and evaluations are those of one run of one instance: one number, or by number of nodes, where sizes that
    the samples do not name have no line. Raises ``InputError`` for numbers of runs and samples that are not positive.
    """
    if runs < 1:
        raise InputError(f"a proposal for {runs} runs has no cost; give at least 1")
    lines = []
    for members in by_variant(rows).values():
        for row in members:
            samples = _at(samples_per_run, row.nodes)
            if samples is not None:
                evaluations = _at(evaluations_per_run, row.nodes) or 0.0
                lines.append(_line(row, members[0], runs, samples, evaluations, dataset_bytes))
    return lines


def _at(value: Mapping[int, float] | float, nodes: int) -> float | None:
    return value.get(nodes) if isinstance(value, Mapping) else value


def _line(row: Row, baseline: Row, runs: int, samples: float, evaluations: float, dataset_bytes: int | None) -> Line:
    if not samples > 0:
        raise InputError(f"a run of {samples:g} samples on {row.nodes} nodes has no cost; it must have more than 0")
    seconds, staged = run_s(row, samples, evaluations), row.middle("staged_bytes")
    cost = runs * node_hours(row, seconds)
    moved = dataset_bytes if staged is None else staged / row.instances
    return Line(
        variant=row.variant, nodes=row.nodes, ranks=row.ranks, instances=row.instances, runs=runs,
        hours=seconds / HOUR_S, node_hours=cost, core_hours=cost * row.cores_per_node or None,
        gpu_hours=cost * row.gpus_per_node or None,
        exaflop=(row.middle("flops_per_sample") or 0.0) * samples * runs / 1e18 or None,
        terabytes=None if moved is None else moved * runs / 1e12, efficiency=efficiency(row, baseline),
    )  # fmt: skip


def as_text(lines: Sequence[Line], basis: str = "") -> str:
    """A plain table for each variant within 100 columns, under a line that says what they are of.

    ``basis`` tells how long a run is, such as ``20 epochs, as fitted``. There is at least one line, here and for
    ``as_latex``.
    """
    blocks = []
    for variant in dict.fromkeys(line.variant for line in lines):
        cells = _cells([replace(line, variant="") for line in lines if line.variant == variant])
        body = table(list(cells), list(zip(*cells.values(), strict=True)), right=list(cells))
        blocks.append(f"{fill(variant, WIDTH)}\n{body}" if variant else body)
    return "\n\n".join([fill(_title(lines, basis), WIDTH), *blocks]) + "\n"


def as_latex(lines: Sequence[Line], basis: str = "") -> str:
    """A table for LaTeX with the package booktabs; its caption is the first line of ``as_text``."""
    cells = _cells(lines)
    rows = [list(cells), *zip(*cells.values(), strict=True)]
    head, *body = [" & ".join(escaped(cell) for cell in row) + r" \\" for row in rows]
    columns = "".join("l" if name == "variant" else "r" for name in cells)
    begin = [r"\begin{table}", r"\centering", rf"\caption{{{escaped(_title(lines, basis))}}}"]
    begin += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def as_csv(lines: Sequence[Line], basis: str = "") -> str:
    """Every field of every line with all its digits, and ``basis`` in a last column; what is unset is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*(each.name for each in fields(Line)), "basis"])
    writer.writerows([*astuple(line), basis] for line in lines)
    return file.getvalue()


def escaped(text: str) -> str:
    """``text`` for LaTeX's text mode."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def _title(lines: Sequence[Line], basis: str) -> str:
    runs = lines[0].runs
    title = f"Cost of {runs:,} run{'' if runs == 1 else 's'} on each size" + (f": {basis}" if basis else "")
    data = any(line.terabytes is not None for line in lines)
    moved = " TB: data moved, that is staged on all nodes, or the dataset once per run." if data else ""
    return f"{title}. Efficiency is relative to the smallest size measured.{moved}"


def _cells(lines: Sequence[Line]) -> dict[str, list[str]]:
    """Columns by header, without those that no line has a figure in."""
    columns: dict[str, Callable[[Line], str]] = {
        "variant": lambda line: line.variant,
        "nodes": lambda line: units.integer(line.nodes),
        "ranks": lambda line: units.integer(line.ranks),
        "instances": lambda line: units.integer(line.instances),
        "h/run": lambda line: units.significant(line.hours),
        "node-h": lambda line: units.significant(line.node_hours),
        "GPU-h": lambda line: units.significant(line.gpu_hours),
        "core-h": lambda line: units.significant(line.core_hours),
        "EFLOP": lambda line: units.significant(line.exaflop),
        "TB": lambda line: units.significant(line.terabytes),
        "efficiency": lambda line: units.percent(line.efficiency),
    }
    if all(line.instances == 1 for line in lines):
        del columns["instances"]
    cells = {name: [cell(line) for line in lines] for name, cell in columns.items()}
    return {name: column for name, column in cells.items() if set(column) - {"", units.MISSING}}
