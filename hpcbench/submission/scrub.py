"""Remove users, hosts and paths from what a submission publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.config.read_yaml import MOST_LEVELS, is_within
from hpcbench.results.mllog_reader import MARK
from staging.errors import DataError

PATH, HOST, USER = "<path>", "<host>", "<user>"
PATHS = re.compile(r"(?:(?<=file://)|(?<![\w/.<>~$}])(?:~[\w.-]*)?)/(?!/)[^\s\"'`,;:()\[\]{}<>|=]+")
"""Absolute paths, those of ``file://``, and paths below a home; not the end of a relative path or other address."""
INTERFACE = r"(?:-(?:hsn|ib|opa|eth|mgmt)\d*)?"
"""What the name of a network interface adds to that of its host, such as ``-hsn0``."""
NUMBERED = re.compile(r"(\D*[A-Za-z-])\d+")
"""A host of a cluster that numbers its nodes: lists of nodes give the common part once, ``nid[004711-004712]``."""
HOMES = re.compile(r"/(?:home|homes|users|Users|u)/(?:([a-z])/)?([\w.+-]+)")
"""Where paths name a user: below a home, or below a letter there."""
OFFICIAL = re.compile(r"submission_|opt_|scheduler_")
"""Keys whose values checkers compare with fixed words, which a host's name must not change."""
CHOICE = re.compile(r"[\w+:-]*")
"""A setting that is one word, such as the name of an optimizer: a path or a sentence has other characters."""
COMMON = frozenset({"root", "user", "localhost", "local", "host", "node", "unnamed", "unknown"})
"""Names that reveal nothing, and that are words in settings."""


@dataclass(frozen=True)
class Scrubber:
    """Replaces names of hosts and users, and paths."""

    hosts: frozenset[str]
    users: frozenset[str]
    alike: frozenset[str] = frozenset()
    """Names that stay, because they look like numbers or single letters."""

    def text(self, text: str) -> str:
        """``text`` without paths and without names of hosts or people."""
        text = PATHS.sub(PATH, text)
        for stem in sorted({match[1] for name in self.hosts if (match := NUMBERED.match(name))}):
            text = re.sub(rf"(?<![\w.-]){re.escape(stem)}\d*\[[\d,-]+\]", HOST, text)
        for names, more, word in ((self.hosts, INTERFACE, HOST), (self.users, "", USER)):
            for name in sorted(names, key=len, reverse=True):
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}{more}(?![\w-])", word, text)
        return text

    def value(self, value: Any) -> Any:
        """A value with all text in its lists and mappings scrubbed; keys stay."""
        return mapped(value, self.text)

    def settings(self, value: Any) -> Any:
        """Settings with paths and sentences scrubbed; single words stay, so that the settings can be read again."""
        return mapped(value, lambda text: text if CHOICE.fullmatch(text) else self.text(text))

    def kept(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """The single words in ``settings`` that are names of hosts or users, by dotted key."""
        words = dict(leaves(settings))
        return {key: word for key, word in words.items() if word in self.hosts | self.users | self.alike}

    def log(self, text: str, identity: Mapping[str, str], path: Path) -> str:
        """The official log at ``path``, with the values of ``identity`` by key, such as ``submission_org``.

        Lines that no parser can read stay wrong, so that a checker still objects to them. Raises ``DataError`` for a
        line that nests deeper than checkers can follow.
        """
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            try:
                lines.append(f"{self.log_line(line, identity)}\n")
            except RecursionError:
                problem = f"line {number} has more than {MOST_LEVELS} levels within one another"
                raise DataError(path, problem, "mend the line, or leave the run out") from None
        return "".join(lines)

    def log_line(self, line: str, identity: Mapping[str, str]) -> str:
        """A line of the log. Raises ``RecursionError`` for one with more than ``MOST_LEVELS`` levels."""
        before, mark, entry = line.rpartition(MARK)
        try:
            record = json.loads(entry)
            if not is_within(record, MOST_LEVELS):
                raise RecursionError
            key = record["key"]
            if key in identity:
                record["value"] = identity[key]
            elif not OFFICIAL.match(key):
                record["value"] = self.value(record["value"])
            record["metadata"] = self.value(record["metadata"])
            return f"{self.text(before)}{mark}{json.dumps(record)}"
        except (ValueError, TypeError, KeyError):
            return self.text(line)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A value with ``change`` made to all text in its lists and mappings; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(part, change) for key, part in value.items()}
    return [mapped(part, change) for part in value] if isinstance(value, list) else value


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text in lists and mappings, with its dotted place: ``model.names[0]``."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from leaves(part, f"{place}[{number}]")


def scrubber(texts: Iterable[str], hosts: Iterable[str], users: Iterable[str]) -> Scrubber:
    """A scrubber for the given hosts (and their first part), the given users, and users in the paths of ``texts``."""
    named = {name for text in texts for found in HOMES.findall(text) for name in users_of(*found)}
    hosts = {part for host in hosts for part in (host, host.partition(".")[0]) if telling(part)}
    users = {name for name in {*users, *named} if telling(name)}
    alike = frozenset(name for name in hosts | users if not is_distinct(name))
    return Scrubber(frozenset(hosts) - alike, frozenset(users) - alike, alike)


def users_of(letter: str, name: str) -> Iterator[str]:
    """Who may be meant by a path such as ``/home/j/jdoe``: not the letter, unless another name follows it."""
    yield name
    if not name.startswith(letter):
        yield letter


def telling(name: str) -> bool:
    """Whether a name reveals a person or a place."""
    return bool(name) and name.lower() not in COMMON


def is_distinct(name: str) -> bool:
    """Whether a name can be told from small numbers and single letters, which texts have for other reasons."""
    return len(name) > 2 or (len(name) == 2 and not name.isdecimal())
