"""Reads a page as a reader does: every tile, cell and sentence with a key, plots and what is folded away left out."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "link", "img", "input", "hr"}
UNREAD = {"style", "svg", "title", "footer"}
"""Plots have tests of their own; the title repeats the headline."""
BLOCKS = {"p", "h1", "h2", "h3", "pre", "figcaption", "summary", "dt", "dd", "small", "th", "td"}


class PageReader(HTMLParser):
    """``texts`` has the text of every block by its key, such as ``phase-table/compute/share``."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self.open: list[tuple[str, str]] = []
        self.places: list[str] = []
        self.parts: list[str] = []
        self.headers: list[str] = []
        self.row: list[str] = []
        self.tile = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        if tag == "thead":
            self.headers = []
        if tag == "tr":
            self.row = []
        if self.is_block(tag):
            self.end_block()
        found = dict(attrs)
        self.open.append((tag, found.get("id") or found.get("class") or ""))
        self.places.append(found.get("id") or (self.places[-1] if self.places else ""))

    def is_block(self, tag: str) -> bool:
        """Spans are blocks in the line above the headline alone; those of tables are swatches."""
        return tag in BLOCKS or (tag == "span" and ("div", "eyebrow") in self.open)

    def handle_endtag(self, tag: str) -> None:
        if self.is_block(tag):
            self.end_block()
        assert self.open.pop()[0] == tag
        self.places.pop()

    def handle_data(self, data: str) -> None:
        if not UNREAD & {tag for tag, _ in self.open}:
            self.parts.append(data)

    def end_block(self) -> None:
        """File the text since the last block under its key."""
        text, self.parts = " ".join("".join(self.parts).split()), []
        tag, name = next(((tag, name) for tag, name in reversed(self.open) if self.is_block(tag)), ("", ""))
        if tag in ("th", "td"):
            self.end_cell(tag, name, text)
        elif tag == "dt":
            self.tile = text
        elif tag in ("dd", "small"):
            self.keep(f"tiles/{self.tile}/{'note' if tag == 'small' else 'value'}", text)
        elif tag:
            self.keep(f"{self.places[-1]}/{name if tag == 'p' and name else tag}", text)

    def end_cell(self, tag: str, name: str, text: str) -> None:
        """A cell of a table: under the header of its column, and of its row."""
        if any(outer == "thead" for outer, _ in self.open):
            self.headers.append(text)
            return
        if self.open[-1][0] not in ("th", "td"):
            return
        self.row.append(text)
        column = self.headers[len(self.row) - 1] if len(self.row) <= len(self.headers) else str(len(self.row))
        if not any(outer == "thead" or name == "pairs" for outer, name in self.open):
            self.keep(f"{self.places[-1]}/{self.row[0]}/{column}", text)
        elif len(self.row) == 2:
            self.keep(f"{self.places[-1]}/{self.row[0]}", text)

    def keep(self, key: str, text: str) -> None:
        """Several blocks of a key are numbered."""
        if not text:
            return
        number, unique = 1, key
        while unique in self.texts:
            number += 1
            unique = f"{key} {number}"
        self.texts[unique] = text

    def numbers(self) -> dict[str, str]:
        """The texts that have digits."""
        return {key: text for key, text in self.texts.items() if re.search(r"[0-9]", text)}
