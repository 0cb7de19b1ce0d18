"""What only people know about a system, in a YAML file, and the system description of a submission made with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hpcbench.config.read_yaml import read_yaml
from hpcbench.submission.submitted_runs import SubmittedRun, group_of
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError

STATUSES = {
    "cloud": "anyone can rent it",
    "onprem": "it is sold, to at least one other party",
    "preview": "it will be available by the next round but one",
    "research": "the rest: research, development, or internal",
}
"""Values of ``submission_status`` in MLPerf HPC, and what each requires of a system."""
ASKED = {
    "host_processor_interconnect": "between the processors of a node, such as UPI or xGMI",
    "host_networking": "adapters of a node, such as 4x Slingshot-11 200 Gb/s",
    "host_networking_topology": "such as Dragonfly or fat tree",
    "host_memory_configuration": "modules, such as 16x 64 GB DDR5-4800",
    "host_storage_type": "what the dataset is read from, such as NVMe SSD",
    "host_storage_capacity": "of a node, or of the filesystem",
    "accelerator_host_interconnect": "such as PCIe 5.0 x16 or NVLink-C2C",
    "accelerator_frequency": "such as 1410 MHz",
    "accelerator_on-chip_memories": "such as 40 MB L2",
    "accelerator_memory_configuration": "such as HBM3",
    "accelerator_interconnect": "between those of a node, such as NVLink 4 900 GB/s",
    "accelerator_interconnect_topology": "such as fully connected",
    "cooling": "air, liquid, ...",
    "hw_notes": "what else of the hardware decides the score, such as a power limit",
    "sw_notes": "what else of the software does",
}
"""Keys of a system description that often cannot be read from a machine, and what they ask for."""
ACCELERATED = "accelerator_"
DECIDED = {
    "submitter": "it is the ORG of the command", "division": "it is that of the runs",
    "number_of_nodes": "it is that of the runs",
}  # fmt: skip
IDENTITY = (*DECIDED, "system_name", "status")
"""Keys that say whose system it is, or that checkers compare with fixed words: they are published as given."""
COMPARED = (
    "host_processor_model_name", "host_processors_per_node", "accelerator_model_name", "accelerators_per_node",
    "framework",
)  # fmt: skip
"""What the runs of one system share."""
NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
"""Names of folders in a submission: no space, and no dot at the start."""


@dataclass(frozen=True)
class Facts:
    """What the file says; empty without a file."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def system_name(self) -> str:
        """Name of the system; empty if the file has none."""
        return str(self.values.get("system_name", ""))


def read_facts(path: Path | None, known: Sequence[str]) -> Facts:
    """The facts in a file; ``known`` are the keys of a system description. Raises a one-line ``InputError``."""
    if path is None:
        return Facts()
    facts = read_yaml(path)
    for key, value in facts.items():
        if key in DECIDED:
            raise InputError(f"{path}: {key} cannot be set, because {DECIDED[key]}; leave it out")
        if key not in known:
            raise InputError(f"{path}: unknown key '{shown(key)}'; {suggest(key, list(known))}")
        if key == "other_software_stack" and isinstance(value, dict):
            continue
        if isinstance(value, dict | list):
            raise InputError(f"{path}: {key} must be a text; write it in one line")
    if facts.get("status") not in (None, *STATUSES):
        raise InputError(f"{path}: status '{shown(facts['status'])}' must be one of {', '.join(STATUSES)}")
    texts = {key: "" if value is None else value if isinstance(value, dict) else str(value)
             for key, value in facts.items()}  # fmt: skip
    return Facts(path, texts)


def describe(run: SubmittedRun, facts: Facts, organization: str, name: str, nodes: int) -> dict[str, Any]:
    """The system description of ``name``: what the run measured, overridden by what people say."""
    said = {key: value for key, value in facts.values.items() if value != ""}
    measured = dict(run.system)
    if isinstance(said.get("other_software_stack"), dict):
        said["other_software_stack"] = {
            **group_of(measured, "other_software_stack"), **said["other_software_stack"],
        }  # fmt: skip
    decided = {"submitter": organization, "division": run.record.division or run.system.get("division", ""),
               "system_name": name, "number_of_nodes": str(nodes)}  # fmt: skip
    return {**measured, **said, **decided}


def blanks(description: Mapping[str, Any]) -> list[str]:
    """Empty keys that people could fill in; those of accelerators only if there are any."""
    none = str(description.get("accelerators_per_node", "0")) in ("", "0")
    return [key for key in ASKED if not description.get(key) and not (none and key.startswith(ACCELERATED))]


def template(run: SubmittedRun, organization: str) -> str:
    """The file to fill in: blanks first, then what was measured, as comments."""
    lines = [
        f"# The system that {organization} submits: what only people know. Blanks may stay; reviewers ask for them.",
        "# A line of the second part, without its #, replaces what was measured.",
        "",
        f"system_name: {quoted(run.platform)}  # of the folders, such as perlmutter_n64; no spaces",
        f"status: {quoted(str(run.system.get('status', 'research')))}  # one of:",
        *(f"#   {status:9} {meaning}" for status, meaning in STATUSES.items()),
    ]
    empty = blanks(run.system)
    lines += [f'{key}: ""  # {ASKED[key]}' for key in empty]
    lines += ["", "# measured:"]
    hidden = {"system_name", "status", "other_software_stack", *DECIDED, *empty}
    lines += [f"# {key}: {quoted(str(value))}" for key, value in run.system.items() if key not in hidden and value]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A text quoted for YAML."""
    return yaml.safe_dump(text, default_style='"', width=float("inf"), allow_unicode=True).strip()


def unlike(runs: Sequence[SubmittedRun]) -> list[str]:
    """The differences between the systems of runs that must be of one system."""
    told = []
    for key in COMPARED:
        values: dict[str, SubmittedRun] = {}
        for run in runs:
            values.setdefault(str(run.system.get(key, "")), run)
        if len(values) > 1:
            told.append(f"{key}: " + ", ".join(f"{value or 'none'} ({run.name})" for value, run in values.items()))
    return told


def checked_name(name: str, what: str) -> str:
    """``name``, if a folder of a submission may have it. Raises ``InputError`` otherwise."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"{what} '{shown(name)}' must have letters, digits, '.', '_', '+' and '-' alone, and begin with a letter "
            "or digit, because it names a folder"
        )
    return name
