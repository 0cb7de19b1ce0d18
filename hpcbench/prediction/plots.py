"""The picture of a prediction: how the parts add up at each size, with the 80 % interval of the sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcbench.prediction.forecast import Forecast
from hpcbench.prediction.predictions import Predicted
from hpcbench.prediction.tables import MINUTE_S, made, minutes, shown_parts
from hpcbench.results import style, units
from hpcbench.results.plots import Figure

COLORS = {
    "staging": style.YELLOW, "device": style.BLUE, "input": style.ORANGE, "jitter": style.SKY,
    "messages": style.VERMILLION, "evaluation": style.GREEN, "extras": style.FAINT, "last instance": style.PURPLE,
}  # fmt: skip
"""The colour of each part."""


@style.styled
def parts_figure(prediction: Predicted) -> Figure:
    """Bars of the parts, with the interval of their sum."""
    forecasts = made(prediction)
    names = shown_parts(forecasts)
    figure = style.canvas(0.62 * len(forecasts) + 1.5)
    axes = figure.subplots()
    positions = np.arange(len(forecasts))[::-1]
    left = np.zeros(len(forecasts))
    for name in names:
        values = np.array([one.parts[name] for one in forecasts]) / MINUTE_S
        axes.barh(positions, values, left=left, height=0.55, color=COLORS[name], label=name, zorder=2)
        left += values
    for place, one in zip(positions, forecasts, strict=True):
        ends = np.array([one.time.low, one.time.high]) / MINUTE_S
        axes.plot(ends, [place - 0.4, place - 0.4], color=style.INK, linewidth=1.1, marker="|", markersize=6, zorder=3)
        axes.annotate(f"{one.time.central / MINUTE_S:.3g} min", (one.time.central / MINUTE_S, place), xytext=(5, 0),
                      textcoords="offset points", va="center", fontsize=8.5, color=style.INK)  # fmt: skip
    axes.set_yticks(positions, [f"{one.training.nodes:,}" for one in forecasts])
    axes.set_ylabel("nodes")
    axes.set_xlabel("minutes (line below: 80 % interval of the whole)")
    axes.set_xlim(0, 1.13 * max(one.time.high for one in forecasts) / MINUTE_S)
    axes.set_ylim(-0.7, len(forecasts) - 0.4)
    axes.grid(visible=False, axis="y")
    figure.legend(loc="outside upper left", ncols=len(names))
    words = "The parts of the time to solution at each size, and the interval in which eight of ten are expected."
    return Figure(f"parts-{prediction.request.application}", "How the parts add up", words, figure, finding(forecasts))


def finding(forecasts: Sequence[Forecast]) -> str:
    """Which size is the fastest, and where its time goes."""
    fastest = min(forecasts, key=lambda one: one.time.central)
    part, seconds = max(fastest.parts.items(), key=lambda item: item[1])
    nodes, share = units.counted(fastest.training.nodes, "node"), seconds / sum(fastest.parts.values())
    return f"{minutes(fastest.time.central)} minutes on {nodes}, the fastest; {part} takes {units.whole_percent(share)}"
