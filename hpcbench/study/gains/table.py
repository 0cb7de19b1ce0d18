"""The tables of a gains study, as text and as on its page, and every run as a line of ``results.csv``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcbench.phase_names import STEP_PARTS
from hpcbench.results import units
from hpcbench.results.plots import metric_label
from hpcbench.results.tables import table
from hpcbench.study.gains.results import APART, OptionResult, Results
from hpcbench.study.gains.sentences import both, label
from hpcbench.study.series_comparison import p_words

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sheet:
    """A table with a heading; its first column holds words, as do those in ``LEFT``."""

    heading: str
    headers: Sequence[str]
    lines: Sequence[Sequence[str]]

    def as_text(self) -> str:
        """The heading above the table."""
        right = [name for name in self.headers[1:] if name not in LEFT]
        return f"{self.heading}\n{table(self.headers, self.lines, right=right)}"


LEFT = ("verdict", "beside the baseline")
"""Columns that hold words."""


SHORT = {"no difference seen": "none seen", APART: "apart"}
"""Verdicts that a narrow column shows in fewer words."""


def members(results: Results) -> list[OptionResult]:
    """Every line of a table: the baseline, the options, then what was tried together and its own baseline."""
    return [results.baseline, *results.options, *both(results)]


def sheets(results: Results, metric: str) -> list[Sheet]:
    """All tables."""
    return [time_sheet(results), quality_sheet(results, metric), parts_sheet(results)]


def time_sheet(results: Results) -> Sheet:
    """The table of step times."""
    headers = ["option", "runs", "step ms", "ratio", "95 %", "p", "start s", "verdict"]
    lines = []
    for result in members(results):
        step, ratio = result.middle("step_s"), result.ratio
        plain = result is results.baseline or result is results.again
        lines.append([
            short(result), str(len(result.runs)), ms(step),
            units.MISSING if ratio is None else f"{ratio.ratio:.3f}",
            units.MISSING if ratio is None else "{:.3f} to {:.3f}".format(*ratio.interval),
            units.MISSING if ratio is None else p_words(ratio.p),
            units.significant(result.middle("init_s")), "" if plain else SHORT.get(result.verdict, result.verdict),
        ])  # fmt: skip
    return Sheet(
        "Time of a step (median of repeats) and its ratio to the baseline's in the same repeat", headers, lines
    )


def quality_sheet(results: Results, metric: str) -> Sheet:
    """The table of quality after equal samples."""
    name = metric_label(metric) if metric else "quality"
    headers = ["option", "runs", name, "sd of seeds", "p", "beside the baseline"]
    lines = []
    for result in members(results):
        if result is results.again or result is results.baseline:
            words = ""
        elif result.same_training:
            words = "the same training"
        elif result.quality is None:
            words = units.MISSING
        elif result.changes_quality:
            words = "worse" if result.quality.worse else "better"
        else:
            words = "no difference seen"
        lines.append([
            short(result), str(len(result.runs)), units.score(result.quality_mean),
            units.significant(result.quality_spread),
            units.MISSING if result.quality is None else p_words(result.quality.p), words,
        ])  # fmt: skip
    return Sheet("Quality after equal samples (mean of seeds)", headers, lines)


def parts_sheet(results: Results) -> Sheet:
    """The table of the parts of a step, in milliseconds."""
    parts = [name for name in STEP_PARTS if any((result.part(name) or 0) > 0 for result in members(results))]
    headers = ["option", *(label(name) for name in parts)]
    lines = [[short(result), *(ms(result.part(name)) for name in parts)] for result in members(results)]
    return Sheet("Milliseconds of a step by its parts (median of repeats, mean over ranks)", headers, lines)


def short(result: OptionResult) -> str:
    """The label of a line; the findings list the options that were tried together."""
    return "all that helped, together" if result.option.factor == "together" else result.option.label


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    return units.MISSING if seconds is None else units.significant(1000 * seconds)


def results_frame(results: Results) -> pd.DataFrame:
    """A table with one line per run."""
    import pandas as pd

    rows = [
        {
            "option": result.option.name, "label": result.option.label, "repeat": run.repeat, "step_s": run.step_s,
            **{f"{name}_s": run.parts_s.get(name) for name in STEP_PARTS}, "init_s": run.init_s,
            "quality": run.quality, "diverged": run.step_s is None,
        }
        for result in members(results)
        for run in result.runs
    ]  # fmt: skip
    return pd.DataFrame(rows)
