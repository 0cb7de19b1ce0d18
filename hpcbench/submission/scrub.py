"""Remove users, hosts and paths from what a submission publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcbench.results.mllog_reader import MARK

PATH, HOST, USER = "<path>", "<host>", "<user>"
PATHS = re.compile(r"(?<![\w/.<>~$}])(?:~[\w.-]*)?/(?!/)[^\s\"'`,;:()\[\]{}<>|=]+")
"""Absolute paths, and paths below a home; not the end of a relative path, nor of an address with ``://``."""
HOMES = re.compile(r"/(?:home|homes|users|Users|u)/(?:[a-z]/)?([\w.+-]+)")
"""Where paths name a user."""
OFFICIAL = re.compile(r"submission_|opt_|scheduler_")
"""Keys whose values checkers compare with fixed words, which a host's name must not change."""
CHOICE = re.compile(r"[\w+:-]*")
"""A setting that is one word, such as the name of an optimizer: a path or a sentence has other characters."""
SHORTEST = 3
COMMON = frozenset({"root", "user", "localhost", "local", "host", "node", "unnamed", "unknown"})
"""Names that reveal nothing, and that are words in settings."""


@dataclass(frozen=True)
class Scrubber:
    """Replaces names of hosts and users, and paths."""

    hosts: frozenset[str]
    users: frozenset[str]

    def text(self, text: str) -> str:
        """``text`` without paths and without names of hosts or people."""
        text = PATHS.sub(PATH, text)
        for names, word in ((self.hosts, HOST), (self.users, USER)):
            for name in sorted(names, key=len, reverse=True):
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", word, text)
        return text

    def value(self, value: Any) -> Any:
        """A value with all text in its lists and mappings scrubbed; keys stay."""
        return mapped(value, self.text)

    def settings(self, value: Any) -> Any:
        """Settings with paths and sentences scrubbed; single words stay, so that the settings can be read again."""
        return mapped(value, lambda text: text if CHOICE.fullmatch(text) else self.text(text))

    def log(self, text: str, identity: Mapping[str, str]) -> str:
        """An official log, with the values of ``identity`` by key, such as ``submission_org``.

        Lines that no parser can read stay wrong, so that a checker still objects to them.
        """
        return "".join(f"{self.log_line(line, identity)}\n" for line in text.splitlines())

    def log_line(self, line: str, identity: Mapping[str, str]) -> str:
        """A line of the log."""
        before, mark, entry = line.rpartition(MARK)
        try:
            record = json.loads(entry)
            key = record["key"]
            if key in identity:
                record["value"] = identity[key]
            elif not OFFICIAL.match(key):
                record["value"] = self.value(record["value"])
            record["metadata"] = self.value(record["metadata"])
        except (ValueError, TypeError, KeyError):
            return self.text(line)
        return f"{self.text(before)}{mark}{json.dumps(record)}"


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A value with ``change`` made to all text in its lists and mappings; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(part, change) for key, part in value.items()}
    return [mapped(part, change) for part in value] if isinstance(value, list) else value


def scrubber(texts: Iterable[str], hosts: Iterable[str], users: Iterable[str]) -> Scrubber:
    """A scrubber for the given hosts (and their first part), the given users, and users in the paths of ``texts``."""
    named = {name for text in texts for name in HOMES.findall(text)}
    parts = {part for host in hosts for part in (host, host.partition(".")[0])}
    return Scrubber(frozenset(filter(telling, parts)), frozenset(filter(telling, {*users, *named})))


def telling(name: str) -> bool:
    """Whether a name reveals a person or a place."""
    return len(name) >= SHORTEST and name.lower() not in COMMON
