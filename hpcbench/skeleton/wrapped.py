"""The files of a package that wraps a model and a dataset, as texts."""

from __future__ import annotations

import json
import string
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from hpcbench.skeleton.wrapping import Found, Wrapping

FOLDER = "wrapped_templates"
OWN_NAMES = frozenset({
    "Any", "KEYS", "METRICS", "LightningNetwork", "LightningTask", "Pairs", "PlainTask", "annotations", "build_model",
    "build_task", "config", "data_module", "data_module_split", "files_nowhere", "files_of_split", "folder", "nn",
    "open_split", "split", "split_of",
})  # fmt: skip
"""Names in the written files; a module of one of these names gets another one there."""


def render_wrapped(name: str, asked: Wrapping, facts: Found) -> dict[str, str]:
    """The files of the package by their path in it."""
    words = words_of(name, asked, facts)
    source = f"src/{name}"
    model, data = "lightning" if facts.lightning else "plain", "data_module" if asked.data else "datasets"
    texts = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{source}/__init__.py": "__init__.py",
        f"{source}/model.py": f"{model}_model.py",
        f"{source}/task.py": f"{model}_task.py",
        f"{source}/data.py": f"{data}.py",
        f"{source}/configs/smoke.yaml": "smoke.yaml",
    }
    if asked.data:
        texts[f"{source}/prepare.py"] = "prepare.py"
    return {path: template(text).substitute(words).rstrip() + "\n" for path, text in texts.items()}


def words_of(name: str, asked: Wrapping, facts: Found) -> dict[str, Any]:
    """The texts for the names in the templates."""
    made = asked.data or asked.dataset or ""
    arguments = f"{facts.folder_argument}=folder" if facts.folder_argument else ""
    words = {
        "name": name,
        "title": f"{asked.module.partition(':')[2]} on the data of {made.partition(':')[2]}",
        "module_of_model": as_import(asked.module),
        "model": as_name(asked.module),
        "module_of_data": as_import(made),
        "data": as_name(made),
        "arguments": arguments,
        "no_folder": "" if asked.dataset or facts.folder_argument else template("no_folder.py").template,
        "keys": "None" if asked.keys is None else quoted(asked.keys),
        "metrics": quoted(asked.metrics or ("val_loss",)),
        "better": asked.better,
        "preset": preset(asked, facts),
        "root": f"data/{name}",
    }
    return words | ({} if facts.lightning else plain_words(asked))


def plain_words(asked: Wrapping) -> dict[str, Any]:
    """The texts for the task of a plain module."""
    loss, metric = asked.loss or "", asked.metrics[0] if asked.metrics else None
    return {
        "imports": "\n".join(f"import {module}" for module in sorted({as_import(loss), as_import(metric or loss)})),
        "loss": as_name(loss),
        "metric": as_name(metric) if metric else "None",
        "metric_name": metric.partition(":")[2] if metric else "loss",
    }


def as_import(path: str) -> str:
    """What follows ``import`` for the module of ``package.module:name``."""
    module = path.partition(":")[0]
    own = module.partition(".")[0] in OWN_NAMES
    return f"{module} as their_{module.replace('.', '_')}" if own else module


def as_name(path: str) -> str:
    """The name, after that import, of what ``package.module:name`` names."""
    return f"{as_import(path).rpartition(' ')[2]}.{path.partition(':')[2]}"


def preset(asked: Wrapping, facts: Found) -> str:
    """The settings of a run in YAML."""
    lines = [f"optim:  # {facts.remark}"]
    lines += [f"  {key}: {number(value)}" for key, value in facts.optimizer.items()]
    lines += ["train:", f"  local_batch_size: {asked.batch_size}", f"  max_epochs: {asked.max_epochs}"]
    if asked.target is not None:
        lines.append(f"  target: {number(asked.target)}")
    if asked.data and not facts.folder_argument:
        lines = ["data:", "  root: .  # which the data module does not take", *lines]
    return "\n".join(lines)


def quoted(texts: tuple[str, ...]) -> str:
    """A tuple as Python source."""
    return f"({', '.join(map(json.dumps, texts))}{',' if len(texts) == 1 else ''})"


def number(value: Any) -> str:
    """A setting in YAML 1.1 with all of its digits; ``1e-08`` is a text there."""
    if isinstance(value, list):
        return f"[{', '.join(map(number, value))}]"
    if isinstance(value, float):
        return np.format_float_positional(value, trim="0")
    return json.dumps(value) if isinstance(value, bool) else str(value)


def template(name: str) -> string.Template:
    """One of the texts beside this file."""
    path = Path(str(files(__package__))) / FOLDER / f"{name}.tmpl"
    return string.Template(path.read_text(encoding="utf-8"))
