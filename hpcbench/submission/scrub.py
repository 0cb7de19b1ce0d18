"""Takes users, hosts and paths out of what a submission publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcbench.results.mllog_reader import MARK

PATH, HOST, USER = "<path>", "<host>", "<user>"
PATHS = re.compile(r"(?<![\w/.<>~$}])(?:~[\w.-]*)?/(?!/)[^\s\"'`,;:()\[\]{}<>|=]+")
"""Absolute paths, and those below a home; not the end of a relative one, nor of an address with ``://``."""
HOMES = re.compile(r"/(?:home|homes|users|Users|u)/(?:[a-z]/)?([\w.+-]+)")
"""Where paths name a user."""
OFFICIAL = re.compile(r"submission_|opt_|scheduler_")
"""Keys whose values checkers compare with words, which no name of a host may change."""
SHORTEST = 3
COMMON = frozenset({"root", "user", "localhost", "local", "host", "node", "unnamed", "unknown"})
"""Names that tell nothing, and are words of settings."""


@dataclass(frozen=True)
class Scrubber:
    """Replaces names of hosts and users, and paths."""

    hosts: frozenset[str]
    users: frozenset[str]

    def text(self, text: str) -> str:
        """``text`` without what names a machine's place or a person."""
        text = PATHS.sub(PATH, text)
        for names, word in ((self.hosts, HOST), (self.users, USER)):
            for name in sorted(names, key=len, reverse=True):
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", word, text)
        return text

    def value(self, value: Any) -> Any:
        """Text within lists and mappings; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(each) for key, each in value.items()}
        return [self.value(each) for each in value] if isinstance(value, list) else value

    def log(self, text: str, identity: Mapping[str, str]) -> str:
        """An official log, with the values of ``identity`` by key, such as ``submission_org``.

        Lines that no parser reads stay wrong: what a checker would say of them is not hidden.
        """
        return "".join(f"{self.log_line(line, identity)}\n" for line in text.splitlines())

    def log_line(self, line: str, identity: Mapping[str, str]) -> str:
        """A line of the log."""
        before, mark, entry = line.rpartition(MARK)
        try:
            found = json.loads(entry)
            key = found["key"]
            if key in identity:
                found["value"] = identity[key]
            elif not OFFICIAL.match(key):
                found["value"] = self.value(found["value"])
            found["metadata"] = self.value(found["metadata"])
        except (ValueError, TypeError, KeyError):
            return self.text(line)
        return f"{self.text(before)}{mark}{json.dumps(found)}"


def scrubber(texts: Iterable[str], hosts: Iterable[str], users: Iterable[str]) -> Scrubber:
    """For the hosts and users given, and the users whom paths in ``texts`` name. Hosts go by their first part, too."""
    named = {name for text in texts for name in HOMES.findall(text)}
    parts = {part for host in hosts for part in (host, host.partition(".")[0])}
    return Scrubber(frozenset(filter(telling, parts)), frozenset(filter(telling, {*users, *named})))


def telling(name: str) -> bool:
    """Whether a name is one that tells of somebody or somewhere."""
    return len(name) >= SHORTEST and name.lower() not in COMMON
