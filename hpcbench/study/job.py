"""A job of a study: one `hpcbench train`, with the settings that make it this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """A run to make. ``name`` is a function of what it computes, so that a study finds it again in its folder."""

    name: str
    application: str
    preset: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted settings as a command line would give them."""

    def arguments(self, run_dir: Path, threads: int) -> list[str]:
        """The words after ``hpcbench``; its settings may name another number of threads."""
        words = ["train", self.application, "--preset", self.preset, "--run-dir", str(run_dir)]
        for key, value in {"parallel.threads": str(threads), **self.settings}.items():
            words += [f"--{key}", value]
        return words

    def resuming(self, run_dir: Path) -> list[str]:
        """The words that continue the run in ``run_dir``, which has its own settings."""
        return ["train", self.application, "--run-dir", str(run_dir), "--resume"]
