"""The definition of a gains study: the training that all its runs share, the options, and how often each is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcbench.config.bounds import within
from hpcbench.config.json_record import record
from hpcbench.config.schema import MOST_REPEATS, MOST_SAMPLES, MOST_STEPS
from hpcbench.study.definition import ADVICE, compare_settings, union
from hpcbench.study.gains.options import Missing, Option
from hpcbench.study.preset_values import compare_presets
from staging.errors import DataError, InputError
from staging.number_options import MOST_PER_NODE

KIND = "gains"


@dataclass(frozen=True)
class Gains:
    """The definition of a gains study, as ``study.json`` holds it."""

    application: str
    preset: str
    cores: int = field(metadata=within(1, MOST_PER_NODE))
    """Cores of the machine, shared among the ranks of a run."""
    ranks: int = field(metadata=within(1, MOST_PER_NODE))
    """Ranks of the baseline."""
    global_batch_size: int = field(metadata=within(1, MOST_SAMPLES))
    steps: int = field(metadata=within(1, MOST_STEPS))
    """Optimizer steps of a run, including those of the warm-up."""
    repeats: int = field(metadata=within(1, MOST_REPEATS))
    options: tuple[Option, ...]
    missing: tuple[Missing, ...] = ()
    """Options that are not measured."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted settings of all runs, including those of the plain baseline."""
    files: tuple[str, ...] = ()
    """YAML files of settings."""
    accelerators: int = 0
    preset_values: Mapping[str, Any] = field(default_factory=dict)
    """What the preset said when the study began, by dotted names (``preset_values.preset_values``)."""
    commands: tuple[str, ...] = ()
    """The commands that made the study, as they were given."""

    def as_dict(self) -> dict[str, Any]:
        """The definition as a JSON object."""
        return {"kind": KIND, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], path: Path) -> Gains:
        """Read a definition back. Raises ``DataError`` for anything else; ``path`` only names it in the message."""
        if values.get("kind") != KIND:
            raise DataError(path, f"is a study of the kind '{values.get('kind')}', not '{KIND}'", "give another folder")
        return record(cls, values, path, ADVICE)


SAME = ("application", "preset", "cores", "ranks", "global_batch_size", "steps", "files", "accelerators")
"""Fields that must be equal for two studies to share a folder."""


def grow(old: Gains, new: Gains, folder: Path) -> Gains:
    """The study that has the runs of both. Raises ``InputError`` if they cannot be compared."""
    pairs = [(name.replace("_", " "), getattr(old, name), getattr(new, name)) for name in SAME]
    pairs += [(f"preset's {name}", *values) for name, *values in compare_presets(old.preset_values, new.preset_values)]
    pairs += compare_settings(old.settings, new.settings)
    for name, before, now in pairs:
        if before != now:
            raise InputError(
                f"{folder} holds another study: its {name} is {before}, this one's {now}; give another --study-dir"
            )
    named = {option.name: option for option in (*old.options, *new.options)}
    labels = {option.label for option in named.values()}
    return replace(
        new,
        options=tuple(named.values()),
        missing=tuple(unmeasured for unmeasured in union(old.missing, new.missing) if unmeasured.label not in labels),
        repeats=max(old.repeats, new.repeats),
        commands=union(old.commands, new.commands),
        preset_values=old.preset_values,
    )
