"""Which modules some code loads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def loaded(code: str, names: Iterable[str]) -> list[str]:
    """Those of the modules ``names`` that a new Python has loaded after ``code``."""
    program = f"{code}\nimport json, sys\nprint(json.dumps([name for name in {[*names]} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    found: list[str] = json.loads(done.stdout)
    return found
