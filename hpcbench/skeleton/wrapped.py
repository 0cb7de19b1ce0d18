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
    made = (asked.data or asked.dataset or "").partition(":")
    module = asked.module.partition(":")
    arguments = f"{facts.folder_argument}=folder" if facts.folder_argument else ""
    words = {
        "name": name,
        "title": f"{module[2]} on the data of {made[2]}",
        "module_of_model": module[0],
        "model": ".".join(module[::2]),
        "module_of_data": made[0],
        "data": ".".join(made[::2]),
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
    loss = (asked.loss or "").partition(":")
    metric = asked.metrics[0].partition(":") if asked.metrics else None
    modules = {loss[0], *([metric[0]] if metric else [])}
    return {
        "imports": "\n".join(f"import {module}" for module in sorted(modules)),
        "loss": ".".join(loss[::2]),
        "metric": ".".join(metric[::2]) if metric else "None",
        "metric_name": metric[2] if metric else "loss",
    }


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
