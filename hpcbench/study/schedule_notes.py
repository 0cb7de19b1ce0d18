"""Whether the schedules of a study's runs drop at a time of their own, which may decide when the target is met."""

from __future__ import annotations

from collections.abc import Mapping

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import ScheduleConfig
from hpcbench.study.definition import Study


def schedule_notes(study: Study) -> list[str]:
    """A sentence for each schedule that decays at a fixed time: epochs to target may then be its date, at any batch."""
    series: dict[str, list[str]] = {}
    for name in study.optimizers:
        if words := decay_words(schedule_of(study, study.own_settings.get(name, {}))):
            series.setdefault(words, []).append(name)
    notes = []
    for words, names in series.items():
        whose = "The schedule" if len(names) == len(study.optimizers) else f"The schedule of {', '.join(names)}"
        notes.append(f"{whose} {words}; it may date the target, and with it the fit of epochs(B).")
    for preset, recipe in study.recipes.items():
        if words := decay_words(schedule_of(study, recipe)):
            notes.append(f"The schedule borrowed from preset {preset} {words}; it may date the target.")
    return notes


def schedule_of(study: Study, own: Mapping[str, str]) -> ScheduleConfig:
    """The schedule of runs with these settings beside the study's."""
    settings = {key: value for key, value in {**study.settings, **own}.items() if key.startswith("schedule.")}
    return resolve(find_application(study.application), study.preset, None, settings).schedule


def decay_words(schedule: ScheduleConfig) -> str:
    """``drops at epochs 16 and 32``; empty where the rate depends on no date but the end of the warm-up."""
    unit = "epoch" if schedule.unit == "epoch" else "optimizer step"
    after = "" if schedule.unit == "epoch" else " after the warm-up"
    if schedule.shape == "multistep":
        dates = [f"{date:,}" for date in schedule.milestones]
        listed = " and ".join(filter(None, [", ".join(dates[:-1]), dates[-1]]))
        return f"drops at {unit}{'s' if len(dates) > 1 else ''} {listed}{after}"
    if schedule.shape in ("cosine", "polynomial"):
        return f"descends within {schedule.t_max:,} {unit}{'s' if schedule.t_max > 1 else ''} after the warm-up"
    return ""
