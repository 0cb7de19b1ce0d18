"""Where staging keeps what it writes down about a destination."""

from __future__ import annotations

BOOKKEEPING = ".staging"
"""Folder below a destination that holds all of it."""
ARRIVING = "arriving"
"""Folder in it for files that a re-shuffle brings."""
