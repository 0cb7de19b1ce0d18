"""A build backend for the source tree that it lies in; nothing has to be installed for it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from wheel_writer import write_wheel  # type: ignore[import-not-found]  # lies beside it in that tree


def build_wheel(folder: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """The hook of PEP 517."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    needs = [*project["dependencies"], *(f"{text}; extra == '{extra}'" for extra, texts in extras for text in texts)]
    files = {"hpcbench/__init__.py": "", "hpcbench/cli/__init__.py": "", "hpcbench/cli/main.py": ""}
    name: str = write_wheel(Path(folder), "hpcbench_ml", project["version"], needs, files).name
    return name
