"""Notes on schedules that lower the rate at fixed times in a study's runs, which may decide when the target is met."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from hpcbench.config.schema import RunConfig
from hpcbench.study.definition import Study
from hpcbench.study.preset_values import study_config


def schedule_notes(study: Study) -> list[str]:
    """A sentence for each schedule that decays at a fixed time: that may be when the target is met, at any batch."""
    series: dict[str, list[str]] = {}
    for name in study.optimizers:
        if words := decay_words(config_of(study, study.own_settings.get(name, {}))):
            series.setdefault(words, []).append(name)
    notes = []
    for words, names in series.items():
        whose = "The schedule" if len(names) == len(study.optimizers) else f"The schedule of {', '.join(names)}"
        notes.append(f"{whose} {words}; it may date the target, and with it the fit of epochs(B).")
    for preset, recipe in study.recipes.items():
        if words := decay_words(config_of(study, recipe)):
            notes.append(f"The schedule borrowed from preset {preset} {words}; it may date the target.")
    return notes


def config_of(study: Study, further_settings: Mapping[str, str]) -> RunConfig:
    """Schedule and length of runs with these settings in addition to the study's."""
    given = {**study.settings, **further_settings}
    settings = {key: value for key, value in given.items() if key.startswith("schedule.") or key == "train.max_epochs"}
    return study_config(study, settings)


def decay_words(config: RunConfig) -> str:
    """``drops at epochs 16 and 32``; empty if the rate depends on no date within a run after its warm-up."""
    schedule = config.schedule
    unit = "epoch" if schedule.unit == "epoch" else "optimizer step"
    after = "" if schedule.unit == "epoch" else " after the warm-up"
    if schedule.shape == "multistep":
        last = config.train.max_epochs if schedule.unit == "epoch" else inf
        dates = [f"{date:,}" for date in schedule.milestones if date < last]
        if not dates:
            return ""
        listed = " and ".join(filter(None, [", ".join(dates[:-1]), dates[-1]]))
        return f"drops at {unit}{'s' if len(dates) > 1 else ''} {listed}{after}"
    if schedule.shape in ("cosine", "polynomial"):
        return f"descends within {schedule.t_max:,} {unit}{'s' if schedule.t_max > 1 else ''} after the warm-up"
    return ""
