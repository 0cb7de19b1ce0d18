"""What the plots of a run show, in sentences without their full stop; empty where nothing can be said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hpcbench.phase_names import BY_NAME
from hpcbench.results import comparable, units
from hpcbench.results.records import Run


def quality_finding(run: Run) -> str:
    """Whether the target was reached, and after how many epochs; without a target, the quality at the end."""
    s = run.summary
    if s.target is None:
        return "" if run.quality is None else f"It ends at {units.score(run.quality)}"
    if run.reached:
        after = units.counted_epochs(s.epochs_to_target or s.epochs)
        return f"The target of {units.score(s.target)} is reached after {after}"
    best = "" if s.best is None else f"; the best is {units.score(s.best)}"
    return f"The target of {units.score(s.target)} is not reached{best}"


def loss_finding(smoothed: Sequence[float]) -> str:
    """From where to where the smoothed loss went."""
    first, last = float(smoothed[0]), float(smoothed[-1])
    if not (math.isfinite(first) and math.isfinite(last)):
        return "The loss does not stay finite"
    ends = units.significant(first), units.significant(last)
    if ends[0] == ends[1]:
        return f"The smoothed loss ends where it began, at {ends[0]}"
    return f"The smoothed loss {'falls' if last < first else 'rises'} from {ends[0]} to {ends[1]}"


def phase_words(name: str) -> str:
    """A phase at the start of a sentence: ``Input wait``."""
    label = BY_NAME[name].label if name in BY_NAME else name.replace("_", " ")
    return label[:1].upper() + label[1:]


def phases_finding(seconds: Mapping[str, float], whole_s: float) -> str:
    """The longest phase and its share of ``whole_s`` seconds."""
    longest = max(seconds, key=lambda name: seconds[name])
    return f"{phase_words(longest)} takes {units.whole_percent(seconds[longest] / whole_s)} of the wall time"


def throughput_finding(run: Run) -> str:
    """The median that the summary gives."""
    rate = run.summary.samples_per_s
    return "" if rate is None else f"The median is {units.significant(rate)} samples/s"


def noise_scale_finding(run: Run) -> str:
    """The batch beside the noise scale of the whole run, by its 95 % interval where there is one."""
    s = run.summary
    value, batch = s.noise_scale, s.global_batch_size
    if value is None or not batch:
        return ""
    low, high = s.noise_scale_low, math.inf if s.noise_scale_high is None else s.noise_scale_high
    if low is not None and low <= batch <= high:
        return f"The batch of {batch:,} lies within the 95 % interval of the noise scale"
    if value > batch:
        return f"The noise scale of the run is {units.significant(value / batch)} times its batch of {batch:,}"
    return f"The batch of {batch:,} is {units.significant(batch / value)} times the noise scale of the run"


def trust_ratios_finding(last: Sequence[float]) -> str:
    """The range over the layers at the last step."""
    known = [value for value in last if math.isfinite(value)]
    if not known:
        return ""
    ends = f"{units.significant(min(known))} to {units.significant(max(known))}"
    return f"At the last recorded step the ratios reach from {ends} over {len(known)} layers"


def compared_quality_finding(runs: Mapping[str, Run]) -> str:
    """Which of the runs by name needed the fewest epochs to their common target; empty if none of them had one.

    Runs that differ in nothing but the seed have a range of epochs, and ones that train different problems have none.
    A single run is compared with none: it has its own.
    """
    every = list(runs.values())
    targets = {run.summary.target for run in every}
    reached = {name: float(run.summary.epochs_to_target or run.summary.epochs) for name, run in runs.items()
               if run.reached}  # fmt: skip
    if None in targets:
        return ""
    if len(targets) > 1:
        return f"{len(reached)} of {len(runs)} runs reach their targets, which differ"
    if len(runs) == 1 and reached:
        return f"{next(iter(reached))} reaches the target after {units.counted_epochs(next(iter(reached.values())))}"
    if not reached:
        return f"No run reaches the target of {units.score(targets.pop())}"
    return f"{_epochs_words(every, reached)}{comparable.reaching(every, 'it')}"


def _epochs_words(runs: Sequence[Run], reached: Mapping[str, float]) -> str:
    """The range of ``reached``, epochs by name, or who needs the fewest, or why they are not compared."""
    least, most = min(reached.values()), max(reached.values())
    if differing := comparable.differences([run for run in runs if run.reached]):
        return f"Epochs to the target are not compared, since the runs differ in {differing}"
    if same := comparable.repeats(runs):
        ends = units.epochs(least) if least == most else f"{units.epochs(least)} to {units.epochs(most)}"
        return f"S{same[1:]}: {ends} epochs to the target"
    first = [name for name, epochs in reached.items() if epochs == least]
    who = f"{first[0]} needs" if len(first) == 1 else f"{len(first)} need"
    return f"Of these runs {who} the fewest epochs to the target, {units.epochs(least)}"


def compared_phases_finding(seconds: Mapping[str, Mapping[str, float]]) -> str:
    """The phase that takes the longest in most runs, and its share if it is the longest in all of them.

    ``seconds`` are those of a run's bar: shares are of their sum.
    """
    known = [by_phase for by_phase in seconds.values() if any(by_phase.values())]
    longest = [max(by_phase, key=lambda name: by_phase[name]) for by_phase in known]
    most = max(dict.fromkeys(longest), key=longest.count)
    if longest.count(most) < len(seconds):
        return f"{phase_words(most)} is the longest phase of {longest.count(most)} of {len(seconds)} runs"
    shares = [by_phase[most] / sum(by_phase.values()) for by_phase in known]
    ends = list(dict.fromkeys(units.whole_percent(share) for share in (min(shares), max(shares))))
    return f"{phase_words(most)} takes {' to '.join(ends)} of the time"
