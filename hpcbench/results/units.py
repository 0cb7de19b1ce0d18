"""Numbers with units, for tables, plots and pages: sensible digits, one form everywhere."""

from __future__ import annotations

import math

MISSING = "-"


def significant(value: float | None, digits: int = 3) -> str:
    """``value`` to ``digits`` significant digits, without an exponent between 1e-4 and 1e15: 0.0123, 4.56, 1,230."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e15:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def score(value: float | None) -> str:
    """A quality metric, to four significant digits without trailing zeros: 0.1213, 0.124."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = significant(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def metric(value: float | None) -> str:
    """A metric in a column of metrics: four decimals between 0.001 and 10, else four significant digits."""
    if value is not None and 1e-3 <= abs(value) < 10:
        return f"{value:.4f}"
    return significant(value, 4)


def integer(value: float | None) -> str:
    """A count with thousands separators: 8,907,556."""
    return f"{round(value):,}" if value is not None and math.isfinite(value) else MISSING


def counted(number: int, thing: str, several: str = "") -> str:
    """``1 node``, ``3 nodes``; ``several`` is the plural where it does not just add an s."""
    return f"{number:,} {thing if number == 1 else several or f'{thing}s'}"


def epochs(value: float | None) -> str:
    """Epochs, whole or up to an evaluation within an epoch: 12, 2.25, 0.333."""
    if value is None or not math.isfinite(value) or value == round(value):
        return integer(value)
    return f"{value:,.3f}".rstrip("0")


def counted_epochs(value: float) -> str:
    """``1 epoch``, ``2.25 epochs``."""
    return f"{epochs(value)} {'epoch' if value == 1 else 'epochs'}"


def percent(fraction: float | None) -> str:
    """A share: 0.0731 is 7.3 %."""
    return f"{100 * fraction:.1f} %" if fraction is not None and math.isfinite(fraction) else MISSING


def small_percent(fraction: float | None) -> str:
    """A share that may be tiny but not nothing: 7.3 %, < 0.1 %."""
    return "< 0.1 %" if fraction is not None and 0 < fraction < 0.0005 else percent(fraction)


def whole_percent(fraction: float) -> str:
    """A share without decimals, for sentences: 72 %."""
    return "under 1 %" if 0 < fraction < 0.005 else f"{100 * fraction:.0f} %"


def interval(value: float, bounds: tuple[float, float]) -> str:
    """An estimate with its interval: 412 (300 to 640), infinity in words; the estimate alone where there is none."""
    middle, low, high = ("unbounded" if number == math.inf else significant(number) for number in (value, *bounds))
    return middle if math.isnan(bounds[0]) else f"{middle} ({low} to {high})"


def noise_scale(value: float | None, low: float | None, high: float | None) -> str:
    """A noise scale in samples with its 95 % interval, whose open ends are unset; empty where it was not measured."""
    if low is None:
        return "" if value is None else f"{significant(value)} samples"
    value, high = (math.inf if number is None else number for number in (value, high))
    return f"{interval(value, (low, high))} samples"


def duration(seconds: float | None) -> str:
    """A time span in the units that a reader would use: 83 ms, 4.21 s, 48.3 s, 3 min 12 s, 2 h 05 min."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 1:
        return f"{significant(1000 * seconds, 3)} ms"
    if seconds < 99.95:
        return f"{significant(seconds, 3)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def prefixed(value: float | None, unit: str) -> str:
    """A quantity with an SI prefix: 68.9 GFLOP."""
    if value is None or not math.isfinite(value):
        return MISSING
    for factor, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{significant(value / factor)} {prefix}{unit}"
    return f"{significant(value)} {unit}"


def size(n_bytes: float | None) -> str:
    """Bytes in binary units: 1.42 GiB."""
    if n_bytes is None or not math.isfinite(n_bytes):
        return MISSING
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(n_bytes) >= factor:
            return f"{significant(n_bytes / factor)} {unit}"
    return f"{n_bytes:.0f} B"
