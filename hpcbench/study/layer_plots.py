"""Plots of what optimizers with trust ratios do to the layers at each batch size: why a large batch fails, or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.lines import Line2D

from hpcbench.results import style
from hpcbench.results.plots import Figure
from hpcbench.results.records import Run
from hpcbench.study.definition import Study
from hpcbench.study.figure_findings import layers_finding
from hpcbench.study.plots import color, log_values
from hpcbench.study.results import Row, series

PANELS = (
    ("rate", "rate x trust ratio (log)"),
    ("change", "change of a step / norm (log)"),
    ("growth", "norm / norm at first"),
)
FAINTEST = 0.3


def layer_medians(run: Run) -> pd.DataFrame | None:
    """The medians of ``PANELS`` over the adapted layers, indexed by epochs; ``None`` if they were not recorded."""
    if not run.folder.trust_ratios.exists():
        return None
    table = run.folder.read_trust_ratios()
    if not {"lr", "weight_norm", "update_norm"} <= set(table):
        return None
    adapted = table.groupby("layer")["trust_ratio"].transform(lambda ratios: (ratios != 1).any())
    table = table[adapted & (table["weight_norm"] > 0)]
    if table.empty:
        return None
    table = table.assign(
        rate=table["lr"] * table["trust_ratio"],
        change=table["update_norm"] / table["weight_norm"],
        growth=table["weight_norm"] / table.groupby("layer")["weight_norm"].transform("first"),
    )
    medians = table.groupby("step")[[name for name, _ in PANELS]].median()
    medians.index = medians.index * run.summary.global_batch_size / run.summary.train_samples
    return medians


@style.styled
def layers(study: Study, rows: Sequence[Row], curves: Mapping[str, Run]) -> Figure | None:
    """Rates, changes and norms of the layers against epochs: a row of panels per series, a curve per batch size."""
    drawn_by_label: dict[str, list[tuple[Row, bool, pd.DataFrame]]] = {}
    for label, members in series(rows).items():
        for row in members:
            for run, state in row.runs:
                table = layer_medians(curves[run.name]) if run.name in curves else None
                if table is not None:
                    drawn_by_label.setdefault(label, []).append((row, state.status == "reached", table))
                    break  # one seed of each batch is enough to see
    if not drawn_by_label:
        return None
    figure = style.canvas(0.9 + 1.9 * len(drawn_by_label))
    grid = figure.subplots(len(drawn_by_label), len(PANELS), squeeze=False, sharex=True, sharey="col")
    batches = sorted({row.point.batch for drawn in drawn_by_label.values() for row, _, _ in drawn})
    shade = {batch: FAINTEST + (1 - FAINTEST) * (place + 1) / len(batches) for place, batch in enumerate(batches)}
    for line, (label, drawn) in enumerate(drawn_by_label.items()):
        for axes, (name, title) in zip(grid[line], PANELS, strict=True):
            for row, reached, medians in drawn:
                axes.plot(medians.index, medians[name], color=color(study, row), alpha=shade[row.point.batch],
                          linestyle="-" if reached else "--", linewidth=1.2)  # fmt: skip
            axes.set_title("" if line else title)
            if name != "growth":
                log_values(axes, None)
        grid[line][0].set_ylabel(label)
    figure.supxlabel("epoch", fontsize=9, color=style.MUTED)
    handles = [Line2D([], [], color=style.INK, alpha=shade[batch], label=f"batch {batch:,}") for batch in batches]
    figure.legend(handles=handles, loc="outside upper left", ncols=6)
    caption = (
        "Medians over the layers that have trust ratios, of the first seed: the rate that a layer has; the norm of its "
        "change in one step, over that of its weights; and how its weights have grown. Dashed runs missed the target "
        "or diverged. A larger batch has fewer steps, and so must change a layer more in each."
    )
    return Figure("layers", "What each step does to the layers", caption, figure, layers_finding(drawn_by_label))
