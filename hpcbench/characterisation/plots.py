"""The extended roofline and the least times of a step, as plots."""

from __future__ import annotations

import math

from matplotlib.axes import Axes

from hpcbench.characterisation.model import PRODUCTS, Characterisation, Kernel
from hpcbench.characterisation.roofline import Bound, bounds, longest, product_flop, step_s
from hpcbench.results import style, units
from hpcbench.results.plots import Figure

COLORS = {
    "compute": style.INK, "memory": style.BLUE, "input": style.ORANGE, "network": style.VERMILLION,
    "cache": style.SKY,
}  # fmt: skip
LABELS = {"compute": "compute", "memory": "memory", "input": "storage", "network": "network"}


def figures(characterisation: Characterisation) -> list[Figure]:
    """Every plot that the characterisation has numbers for."""
    every = [roofline(characterisation), least_times(characterisation)]
    return [figure for figure in every if figure is not None]


@style.styled
def roofline(characterisation: Characterisation) -> Figure | None:
    """Roofs of compute, memory, storage and network in one picture, with the step under each of them."""
    parts = bounds(characterisation)
    compute = next((bound for bound in parts if bound.part == "compute"), None)
    lines = [bound for bound in parts if bound.part != "compute"]
    seconds = step_s(characterisation)
    if compute is None or not lines or seconds is None or not all(bound.work > 0 for bound in parts):
        return None
    figure = style.canvas(4.6)
    axes = figure.subplots()
    flop = product_flop(characterisation)
    attained = flop / seconds
    low = min([flop / bound.work for bound in lines] + [compute.rate / bound.rate for bound in lines]) / 100
    high = max([compute.rate / bound.rate for bound in lines] + [flop / bound.work for bound in lines]) * 10
    rows = [kernel for kernel in characterisation.kernels if products_alone(kernel)]
    bottom = min([attained, *(kernel.flop / (kernel.alone_s or 1) for kernel in rows)]) / 4
    top = max(roof.value for roof in characterisation.roofs if roof.resource == "compute")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top * 3))
    draw_roofs(axes, characterisation, compute, lines, (low, high))
    for kernel in rows:
        axes.scatter(kernel.flop / kernel.bytes, kernel.flop / (kernel.alone_s or 1), s=area(kernel, seconds),
                     color=style.BLUE, alpha=0.25, linewidths=0)  # fmt: skip
    for bound in lines:
        draw_step(axes, bound, flop, attained, compute.rate)
    axes.axhline(attained, color=style.FAINT, linewidth=0.7, linestyle=":")
    axes.annotate(f"the step: {units.prefixed(attained, 'FLOP/s')}", (high, attained), ha="right", va="bottom",
                  xytext=(-4, 2), textcoords="offset points", fontsize=8.5)  # fmt: skip
    axes.set_xlabel(style.log_label("operations per byte of memory, storage or network (FLOP/B)"))
    axes.set_ylabel(style.log_label("operations per second of one rank (FLOP/s)"))
    return Figure(
        "roofline", "Which roof is the step under?",
        "A horizontal roof is what products reach, a slope what memory, storage or a link carries; all were measured "
        "here. The step stands once under each slope, at its operations per byte of that part; the thin line above it "
        "is what it could gain there. The part whose line is shortest holds the step up. Pale circles are its "
        "convolutions and matrix products alone, as large as their share of the step.",
        figure, finding(characterisation),
    )  # fmt: skip


def finding(characterisation: Characterisation) -> str:
    """Which part needs most time, beside what the step took."""
    most, seconds = longest(characterisation), step_s(characterisation)
    if most is None:
        return ""
    took = "" if seconds is None else f"; the step took {units.duration(seconds)}"
    return f"{most.words} needs the most time, at least {units.duration(most.bound_s)}{took}"


def products_alone(kernel: Kernel) -> bool:
    """Whether a kernel has a place in the picture: products, bytes, and a time."""
    return kernel.kind in PRODUCTS and kernel.flop > 0 and kernel.bytes > 0 and bool(kernel.alone_s)


def draw_roofs(
    axes: Axes, characterisation: Characterisation, compute: Bound, lines: list[Bound], ends: tuple[float, float]
) -> None:  # fmt: skip
    """Draw horizontal and sloping roofs with their names."""
    for roof in characterisation.roofs:
        if roof.resource == "compute":
            leading = roof.name == compute.roof
            axes.axhline(roof.value, color=style.INK, linewidth=1.6 if leading else 0.8, alpha=1 if leading else 0.45)
            axes.annotate(f"{roof.name}: {units.prefixed(roof.value, 'FLOP/s')}", (ends[1], roof.value), ha="right",
                          va="bottom", xytext=(-4, 2), textcoords="offset points", fontsize=8.5)  # fmt: skip
    for number, bound in enumerate(lines):
        name = f"{LABELS[bound.part]} {bound.roof}"
        slope(axes, bound.rate, compute.rate, ends, COLORS[bound.part], name, "-", 0.35 + 0.2 * (number % 3))
    for roof in characterisation.roofs:
        if roof.resource == "cache":
            slope(axes, roof.value, compute.rate, ends, COLORS["cache"], roof.name, "--")


def slope(
    axes: Axes, rate: float, most: float, ends: tuple[float, float], color: str, name: str, dash: str,
    along: float = 0.5,
) -> None:  # fmt: skip
    """Draw a roof of bytes per second, up to the roof of compute, with its name at the fraction ``along`` it."""
    ridge = most / rate
    bottom = axes.get_ylim()[0]
    start = max(ends[0], bottom / rate)
    axes.plot([start, min(ridge, ends[1])], [rate * start, rate * min(ridge, ends[1])], color=color, linestyle=dash)
    place = start * (min(ridge, ends[1]) / start) ** along if ridge > start else start
    label = name.removeprefix("memory ") if name == "memory memory" else name
    axes.annotate(f"{label}: {units.prefixed(rate, 'B/s')}", (place, rate * place), color=color, fontsize=8.5,
                  rotation=angle(axes), rotation_mode="anchor", ha="center", va="bottom",
                  xytext=(-3, 3), textcoords="offset points")  # fmt: skip


def angle(axes: Axes) -> float:
    """The angle of a slope of one on the screen, in degrees."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    width, height = 7.2, 3.9  # approximate size of the axes in inches
    return math.degrees(math.atan2(height / math.log10(top / bottom), width / math.log10(right / left)))


def draw_step(axes: Axes, bound: Bound, flop: float, attained: float, most: float) -> None:
    """Draw the step at its operations per byte of one part, and the room above it."""
    place = flop / bound.work
    roof = min(most, flop / bound.bound_s) if bound.bound_s > 0 else most
    axes.plot([place, place], [attained, max(roof, attained)], color=COLORS[bound.part], linewidth=0.9)
    axes.plot([place], [attained], marker="o", markersize=7, color=COLORS[bound.part])
    axes.plot([place], [max(roof, attained)], marker="_", markersize=9, color=COLORS[bound.part])


def area(kernel: Kernel, seconds: float) -> float:
    """Area of a kernel's circle in square points."""
    return 12 + 400 * min(1.0, kernel.count * (kernel.alone_s or 0.0) / seconds)


@style.styled
def least_times(characterisation: Characterisation) -> Figure | None:
    """The least time of each part beside the measured step."""
    parts = [bound for bound in bounds(characterisation) if bound.bound_s > 0]
    seconds = step_s(characterisation)
    if not parts:
        return None
    rows = [(f"{LABELS[bound.part]}: {bound.roof}", bound.bound_s, COLORS[bound.part]) for bound in parts]
    if seconds is not None:
        rows.append(("the step, measured", seconds, style.MUTED))
    figure = style.canvas(0.7 + 0.34 * len(rows))
    axes = figure.subplots()
    places = range(len(rows))[::-1]
    axes.barh(list(places), [row[1] for row in rows], color=[row[2] for row in rows], height=0.62)
    values = [row[1] for row in rows]
    axes.set(xscale="log", yticks=list(places), yticklabels=[row[0] for row in rows])
    axes.set_xlim(min(values) / 3, max(values) * 6)
    axes.grid(visible=False, axis="y")
    for place, (_, value, _) in zip(places, rows, strict=True):
        axes.annotate(units.duration(value), (value, place), va="center", xytext=(5, 0), textcoords="offset points",
                      fontsize=8.5)  # fmt: skip
    axes.set_xlabel("seconds of a step, log scale (each bar ends at its least time; they may overlap in time)")
    return Figure(
        "least_times", "How long would each part need at least?",
        "The longest bar above the last is what bounds the step; where the step is far longer than all of them, its "
        "time goes into operations that reach no roof, and into launching them.", figure,
        finding(characterisation),
    )  # fmt: skip
