"""What a gains study shows, in sentences and in cells that follow from its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.phase_names import BY_NAME
from hpcbench.results import units
from hpcbench.results.plots import metric_label
from hpcbench.results.units import counted
from hpcbench.study.epoch_comparison import LEVEL
from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.options import left_out
from hpcbench.study.gains.quality_comparison import seeds_needed
from hpcbench.study.gains.results import APART, MOST_BLOCKS, OptionResult, Results, helpful
from hpcbench.study.gains.step_ratio import LEAST_PAIRS, StepRatio
from hpcbench.study.series_comparison import p_words


def heading(study: Gains, results: Results) -> str:
    """The finding as a title."""
    best = fastest(results)
    if best is None or best.ratio is None:
        return f"No option is seen to make a step of {study.application} faster" if is_compared(results) else (
            f"What optimisation brings to a step of {study.application}"
        )  # fmt: skip
    how = best.option.label.removeprefix("together: ")
    *others, last = how.split(", ") if best is results.together else [how]
    names = f"{', '.join(others)} and {last}" if others else last
    return f"{capital(names)} {'make' if others else 'makes'} a step of {study.application} {times(best.ratio)} faster"


def is_compared(results: Results) -> bool:
    """Whether all options have ended, and the time of one or more is compared: it takes two repeats, and a baseline."""
    ended = not any(result.left or result.verdict == APART for result in (results.baseline, *results.options))
    return ended and any(result.ratio is not None for result in results.options)


def capital(text: str) -> str:
    """The text with a capital first letter, unless it starts with the name of a format."""
    return text if text[:4] in ("bf16", "fp16") else text[:1].upper() + text[1:]


def fastest(results: Results) -> OptionResult | None:
    """The option with the shortest step among those that were faster; those tried together take precedence."""
    if results.together is not None and results.together.verdict == "faster":
        return results.together
    helped = [result for result in results.options if result.verdict == "faster" and result.ratio is not None]
    return min(helped, key=lambda result: result.ratio.ratio if result.ratio else 1.0, default=None)


def times(ratio: StepRatio) -> str:
    """How many times faster: ``2.10x``."""
    return f"{1 / ratio.ratio:.3g}x"


def findings(results: Results, metric: str) -> list[str]:
    """Which options were faster, which were not, and what they did to the quality."""
    said = []
    if results.together is not None and results.together.ratio is not None:
        said.append(f"{capital(results.together.option.label)}: {ratio_sentence(results.together, metric)}")
    said += together_words(results)
    for result in results.options:
        if result.verdict in ("faster", "slower", "worse quality") and result.ratio is not None:
            said.append(f"{capital(result.option.label)}: {ratio_sentence(result, metric)}")
    unseen = [result.option.label for result in results.options if result.verdict == "no difference seen"]
    if unseen:
        said.append(f"No difference in time is seen with {listed(unseen)}.")
    apart = [result.option.label for result in results.options if result.verdict == APART]
    if apart:
        said.append(f"No time is compared of {listed(apart)}, which did not run beside the baseline.")
    return said or [f"Too few runs are done to say: a ratio takes {LEAST_PAIRS} repeats of an option and the baseline."]


def listed(labels: Sequence[str]) -> str:
    """Labels in a row, apart by semicolons where one of them has a comma."""
    return ("; " if any("," in label for label in labels) else ", ").join(labels)


def together_words(results: Results) -> list[str]:
    """Which options that helped were not tried together, and why; nothing before all have ended and are compared."""
    if not is_compared(results):
        return []
    helped = helpful(results)
    unused, reason = left_out(helped)
    names = "; ".join(option.label for option in unused)
    said = f"Helped alone but not combined, since {reason}: {names}"
    if results.together is not None:
        return [f"{said}."] if unused else []
    if unused:
        return [f"{said}; one option was left, so that none were tried together."]
    if helped:
        return ["Fewer than two options of different kinds helped, so that none were tried together."]
    return ["No option made a step shorter than the baseline's noise, so that none were tried together."]


def ratio_sentence(result: OptionResult, metric: str) -> str:
    """Step time, quality and changed parts of a step for one option."""
    assert result.ratio is not None
    low, high = result.ratio.interval
    faster = result.ratio.ratio < 1
    factor = 1 / result.ratio.ratio if faster else result.ratio.ratio
    ends = (1 / high, 1 / low) if faster else (low, high)
    sure = "" if result.ratio.p <= LEVEL else ", which is not beyond the noise"
    time = f"a step is {units.interval(factor, ends)} times {'faster' if faster else 'slower'}{sure}"
    changes = [
        f"{label(name)} {'-' if seconds < 0 else '+'}{units.significant(1000 * abs(seconds))} ms"
        for name, seconds in result.changed_s.items()
    ]
    parts = f" ({', '.join(changes)})" if changes else ""
    return f"{time}{parts}; {quality_sentence(result, metric)}."


def quality_sentence(result: OptionResult, metric: str) -> str:
    """Whether the quality after equal samples differs."""
    if result.same_training:
        return "it trains as the baseline to the last bit"
    if result.quality is None:
        return "the quality is not compared"
    name, p = metric_label(metric), p_words(result.quality.p)
    if result.changes_quality:
        return f"{name} after equal samples is {'worse' if result.quality.worse else 'better'} (p {p})"
    return f"no difference in {name} after equal samples is seen (p {p})"


def label(part: str) -> str:
    """The name of a part of a step, as in tables."""
    return BY_NAME[part].label


def notes(study: Gains, results: Results, warmup_steps: int) -> list[str]:
    """How the figures were obtained, and what they do not say."""
    batch = study.global_batch_size
    said = [
        f"Every run has the same {study.steps * batch:,} training samples: {study.steps} steps of {batch}, the first "
        f"{warmup_steps} of which are in no time. Repeats have seeds 1 to {study.repeats}.",
        "Within a repeat the baseline and all options follow one another in an order that chance decides. Time over "
        "baseline is the geometric mean of the ratios within repeats, with Student's 95 % interval of their "
        "logarithms; p of no difference is for all options together (Holm).",
        "Quality is that of the last step. Seeds of an option and of the baseline are compared by an exact permutation "
        "test, Holm's p for all options together.",
    ]
    needed = seeds_needed(max(1, results.tested))
    if study.repeats < needed and results.tested:
        said.append(
            f"{counted(study.repeats, 'repeat')} cannot show a difference in quality of one of "
            f"{counted(results.tested, 'option')}; {needed} could (--repeats {needed})."
        )
    said += [
        f"{result.option.label}: {result.apart} of {len(result.runs)} runs began more than {MOST_BLOCKS:g} lengths of "
        "a repeat before or after its baseline, so their times are not compared; more --repeats measure both together."
        for result in (*results.options, *both(results)) if result.apart
    ]  # fmt: skip
    if any(result.option.ranks for result in results.options):
        said.append("Where the number of ranks changes, so does the batch of a rank, which batch norm sees.")
    said += [f"{result.option.label}: {counted(result.diverged, 'run')} of {len(result.runs)} diverged."
             for result in results.options if result.diverged]  # fmt: skip
    said += [f"{result.option.label}: {result.left} of {study.repeats} repeats left to run."
             for result in (results.baseline, *results.options, *both(results)) if result.left]  # fmt: skip
    return said


def both(results: Results) -> list[OptionResult]:
    """The results of the second stage, if there is one."""
    return [result for result in (results.again, results.together) if result is not None]


def unavailable(study: Gains, results: Results) -> list[tuple[str, str]]:
    """Options that were not measured, and why; the baseline, too, if it failed."""
    tried = (results.baseline, *results.options, *both(results))
    failed = [(result.option.label, result.failed) for result in tried if result.failed]
    return [*((unmeasured.label, unmeasured.reason) for unmeasured in study.missing), *failed]
