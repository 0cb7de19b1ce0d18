"""Names the folders in which staging keeps its records of a destination."""

from __future__ import annotations

BOOKKEEPING = ".staging"
"""Folder below a destination that holds all records."""
ARRIVING = "arriving"
"""Folder within ``BOOKKEEPING`` for files that a re-shuffle brings."""
