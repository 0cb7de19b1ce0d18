"""A run of a study of any kind: one `hpcbench train`, with the settings that define the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StudyRun:
    """A run to make. ``name`` is a function of what the run computes, so that a study finds it again in its folder."""

    name: str
    words: tuple[str, ...]
    """What follows ``hpcbench train``, except run folder and threads; the application comes first."""

    @classmethod
    def of(
        cls, name: str, application: str, preset: str, settings: Mapping[str, str], files: Sequence[str] = ()
    ) -> StudyRun:
        """The run of a preset, with YAML files of settings and dotted settings, which come last."""
        configs = [word for path in files for word in ("--config", path)]
        return cls(name, (application, "--preset", preset, *configs, *dotted_words(settings)))

    @property
    def settings(self) -> dict[str, str]:
        """The dotted settings of the run."""
        pairs = (word.removeprefix("--").partition("=") for word in self.words if word.startswith("--"))
        return {key: value for key, equals, value in pairs if equals and "." in key}

    def but_with(self, name: str, settings: Mapping[str, str]) -> StudyRun:
        """Another run, with these settings after the run's own."""
        return StudyRun(name, (*self.words, *dotted_words(settings)))

    def arguments(self, run_dir: Path, threads: int) -> list[str]:
        """The words after ``hpcbench`` that begin the run; its settings may set another number of threads."""
        thread_words = [] if "parallel.threads" in self.settings else [f"--parallel.threads={threads}"]
        return ["train", *self.words, *thread_words, "--run-dir", str(run_dir)]

    def resuming(self, run_dir: Path) -> list[str]:
        """The words that continue the run in ``run_dir``, which holds the run's settings."""
        return ["train", self.words[0], "--run-dir", str(run_dir), "--resume"]


def dotted_words(settings: Mapping[str, str]) -> list[str]:
    """Dotted settings as words of a command line."""
    return [f"--{key}={value}" for key, value in settings.items()]
