"""``python -m staging``, killed as it gives a file its name: the third, or the one of number ``KILLED_AT``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from staging.__main__ import main

rename, names = os.rename, list[Any]()


def count(*words: Any, **more: Any) -> None:
    """Rename the files before."""
    names.append(words)
    if len(names) == int(os.environ.get("KILLED_AT", "3")):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(*words, **more)


os.rename = count
sys.exit(main())
